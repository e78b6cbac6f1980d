"""A user's function of the rows of windows: `(rows) -> output`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from midstream.task.frames import from_arrow, library_of
from midstream.task.userfn import checked, user_error


@dataclass(frozen=True)
class WindowFunction:
    """The function with the schema it promised."""

    step: str
    function: Callable[..., Any]
    output: pa.Schema

    def __call__(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return self.output.empty_table()
        names = [name for name in rows.column_names if not name.startswith("__midstream_")]
        try:
            result = self.function(from_arrow(rows.select(names), library_of(self.function)))
        except Exception as cause:
            raise user_error(self.step, self.function, cause) from cause
        return checked(self.step, self.function, result, self.output, "its output")
