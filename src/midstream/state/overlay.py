"""A store to try things on: reads see the real one, writes land aside and can be taken away without a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from midstream.state.store import ObjectInfo, Store


@dataclass(frozen=True)
class Overlay:
    """Everything written goes below a prefix. What is written is never read back through it."""

    base: Store
    prefix: str

    @property
    def url(self) -> str:
        return self.base.url

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        return self.base.create(f"{self.prefix}/{path}", data)

    def put(self, path: str, data: bytes | pa.Buffer, pause: Callable[[], None] | None = None) -> None:
        self.base.put(f"{self.prefix}/{path}", data, pause)

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        return self.base.read(path, start, length)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self.base.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        self.base.delete(f"{self.prefix}/{path}" for path in paths)

    def sweep(self, older_than_seconds: float) -> int:
        return 0

    def local_path(self, path: str) -> Path | None:
        return self.base.local_path(path)

    def clear(self) -> None:
        """Take everything away that was written."""
        self.base.delete([item.path for item in self.base.list(self.prefix)])
