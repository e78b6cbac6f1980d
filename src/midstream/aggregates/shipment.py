"""The columns Catalyst computes and sends to the state task, each once however many aggregates use it."""

from __future__ import annotations

from dataclasses import dataclass, field

from midstream.schemas import quoted


@dataclass(frozen=True)
class Shipped:
    """A column on its way to the state task: its name among grouped and among per-row partials.

    Without a name among the grouped ones, the step can only run on per-row partials.
    """

    grouped: str | None
    per_row: str


@dataclass
class Shipment:
    """The SQL of all partial columns, collected while a plan is made."""

    grouped: dict[str, str] = field(default_factory=dict)
    per_row: dict[str, str] = field(default_factory=dict)
    supports_grouped: bool = True
    kept: bool = False
    """Whether the columns become state as they are: then each goes by what it holds, so that a column of another
    version of the step is never taken for it. Else they go by number."""

    def over_group(self, sql: str) -> str:
        """Ship an aggregate over the rows of a key within one task.

        It must be a bare call: the engine may take Spark's buffers, before any expression on them.
        """
        return self.grouped.setdefault(sql, f"__{sql}" if self.kept else f"__g{len(self.grouped)}")

    def of_row(self, sql: str) -> str:
        """Ship an expression of each row."""
        return self.per_row.setdefault(sql, f"__{sql}" if self.kept else f"__r{len(self.per_row)}")

    def add(self, over_group: str, of_row: str) -> Shipped:
        return Shipped(self.over_group(over_group), self.of_row(of_row))

    def only_of_row(self, sql: str) -> Shipped:
        self.supports_grouped = False
        return Shipped(None, self.of_row(sql))

    def grouped_sql(self) -> tuple[str, ...]:
        return tuple(f"{sql} AS {self._alias(name)}" for sql, name in self.grouped.items())

    def grouped_names(self) -> tuple[str, ...]:
        """What the grouped columns are called, as SQL takes it."""
        return tuple(self._alias(name) for name in self.grouped.values())

    def per_row_sql(self) -> tuple[str, ...]:
        return tuple(f"{sql} AS {self._alias(name)}" for sql, name in self.per_row.items())

    def _alias(self, name: str) -> str:
        return quoted(name) if self.kept else name
