"""What every error has: a class in capitals, a message and a hint."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


class MidstreamError(Exception):
    """An error with a class in capitals, a message and a hint.

    >>> print(MidstreamError("UNKNOWN_STEP", "No step 'totls'.", hint="did you mean 'totals'?"))
    [UNKNOWN_STEP] No step 'totls'.
    <BLANKLINE>
    Hint: did you mean 'totals'?
    """

    def __init__(self, error_class: str, message: str, *, hint: str | None = None) -> None:
        self.error_class = error_class
        # Causes of other libraries come with blank lines, which set off the hint here.
        self.message = re.sub(r"\n\s*\n", "\n", message)
        self.hint = hint
        super().__init__(error_class, self.message)

    def __str__(self) -> str:
        text = f"[{self.error_class}] {self.message}"
        return f"{text}\n\nHint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and errors cross processes.
        return _rebuild, (type(self), self.error_class, self.message, self.hint)


def _rebuild(kind: type[MidstreamError], error_class: str, message: str, hint: str | None) -> MidstreamError:
    return kind(error_class, message, hint=hint)


def did_you_mean(given: str, known: list[str]) -> str:
    """A hint that names the nearest known word, or all of them."""
    near = get_close_matches(given, known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known are: {', '.join(known)}."


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def sentence(cause: object) -> str:
    return str(cause).strip().rstrip(".") + "."
