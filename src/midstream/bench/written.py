"""Bytes written to a checkpoint directory, by looking at it: the same for every engine."""

from __future__ import annotations

import os
import time
from pathlib import Path

SCAN_SECONDS = 2.0
"""Between scans. All engines keep superseded files longer than that, so none is missed."""


class WrittenBytes:
    """Files that appeared or changed since `start`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._before: dict[str, tuple[int, int]] = {}
        self._written: dict[str, int] = {}
        self._scanned = 0.0

    def start(self) -> None:
        self._before = self._scan()
        self._written = {}

    def look(self) -> None:
        """Scan again, unless that was done a moment ago."""
        if time.monotonic() - self._scanned >= SCAN_SECONDS:
            self.total()

    def total(self) -> int:
        for path, (size, modified) in self._scan().items():
            if self._before.get(path) != (size, modified):
                self._written[path] = max(size, self._written.get(path, 0))
        return sum(self._written.values())

    def _scan(self) -> dict[str, tuple[int, int]]:
        self._scanned = time.monotonic()
        found = {}
        for folder, _, names in os.walk(self._directory):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:  # removed since the folder was listed
                    continue
                found[path] = (status.st_size, status.st_mtime_ns)
        return found
