"""A store in a directory: a local disk, or one that all machines of the cluster see under the same path."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TypeVar

import pyarrow as pa

from midstream.errors import StoreError
from midstream.state.store import ObjectInfo, check_path, cut

T = TypeVar("T")

TEMPORARY = ".tmp"
"""Objects are written here, then moved. One place, so that a crash's leftovers are found without a search."""

MAP_FROM_BYTES = 256 * 1024
"""Smaller ranges are copied: a map costs its page faults, and a small copy is cheaper than those."""

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


@dataclass(frozen=True)
class DirectoryStore:
    """Objects as files below a root directory, which is made at the first write.

    With `fsync` a write returns only when the file and its directory are on disk, so that it outlives a power
    cut; without, it outlives the end of any process but not of the machine.

    >>> from tempfile import TemporaryDirectory
    >>> directory = TemporaryDirectory()
    >>> store = DirectoryStore(Path(directory.name))
    >>> store.create("manifests/1", b"first"), store.create("manifests/1", b"second")
    (True, False)
    >>> store.read("manifests/1").to_pybytes()
    b'first'
    >>> directory.cleanup()
    """

    root: Path
    fsync: bool = False
    url: str = field(init=False)
    # Strings, because joining paths with pathlib costs more than the system calls that follow.
    _base: str = field(init=False, repr=False, compare=False)
    _temporary: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        root = Path(os.path.abspath(self.root))
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "url", root.as_uri())
        object.__setattr__(self, "_base", os.path.join(root, ""))
        object.__setattr__(self, "_temporary", os.path.join(root, TEMPORARY, ""))

    @classmethod
    def from_options(cls, root: Path, options: Mapping[str, str]) -> DirectoryStore:
        for name, value in options.items():
            if name != "fsync":
                raise StoreError.unknown_option(str(root), name, ["fsync"])
            if value.lower() not in ("true", "false"):
                raise StoreError.bad_option(str(root), name, "'true' or 'false'")
        return cls(root, fsync=options.get("fsync", "false").lower() == "true")

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        target = self._base + check_path(path)
        temporary = self._write_temporary(data)
        try:
            return self._link(temporary, target)
        except OSError as error:
            raise self._write_error(error) from error
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def put(self, path: str, data: bytes | pa.Buffer, pause: Callable[[], None] | None = None) -> None:
        target = self._base + check_path(path)
        temporary = self._write_temporary(data)
        try:
            self._with_parent(target, lambda: os.rename(temporary, target))
            self._sync_parent(target)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise self._write_error(error) from error

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        name = self._base + check_path(path)
        try:
            file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(file).st_size
                begin, end, _ = slice(start, None).indices(size)
                wanted = end - begin if length is None else min(end - begin, length)
                if wanted < MAP_FROM_BYTES:
                    return pa.py_buffer(os.pread(file, max(wanted, 0), begin))
            finally:
                os.close(file)
            return cut(map_file(name), start, length)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise StoreError.missing(path, self.url) from error
        except OSError as error:
            raise StoreError.unreadable(path, self.url, error) from error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        prefix = prefix.strip("/")
        if prefix:
            check_path(prefix)
            prefix += "/"
        try:
            yield from self._walk(prefix)
        except OSError as error:
            raise StoreError.unreadable(prefix, self.url, error) from error

    def delete(self, paths: Iterable[str]) -> None:
        try:
            for path in paths:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(self._base + check_path(path))
        except OSError as error:
            raise self._write_error(error) from error

    def local_path(self, path: str) -> Path | None:
        return Path(self._base + check_path(path))

    def sweep(self, older_than_seconds: float) -> int:
        """Remove what writers that died left half written; the age spares those still at it."""
        limit = time() - older_than_seconds
        removed = 0
        with suppress(FileNotFoundError), os.scandir(self._temporary) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat().st_mtime < limit:
                        os.unlink(entry.path)
                        removed += 1
        return removed

    def _write_temporary(self, data: bytes | pa.Buffer) -> str:
        """Write a file that only this call knows, under a random name: other machines write here too."""
        name = self._temporary + os.urandom(12).hex()
        try:
            file = self._with_parent(name, lambda: os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(file, rest) :]
                if self.fsync:
                    os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            with suppress(OSError):
                os.unlink(name)
            raise self._write_error(error) from error
        return name

    def _link(self, temporary: str, target: str) -> bool:
        try:
            self._with_parent(target, lambda: os.link(temporary, target))
        except FileExistsError:
            # On NFS the answer to a link can be lost and the link tried again; two names show it is ours.
            if os.stat(temporary).st_nlink == 1:
                return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StoreError.no_atomic_create(self.url, error) from error
            raise
        self._sync_parent(target)
        return True

    def _with_parent(self, name: str, act: Callable[[], T]) -> T:
        """Try first and make the directory only when it lacks: it nearly always exists."""
        try:
            return act()
        except FileNotFoundError:
            self._make_directory(os.path.dirname(name))
            return act()

    def _make_directory(self, name: str) -> None:
        missing = []
        above = name
        while not os.path.lexists(above):
            missing.append(above)
            above = os.path.dirname(above)
        os.makedirs(name, exist_ok=True)
        for made in missing:
            self._sync_parent(made)

    def _sync_parent(self, name: str) -> None:
        if not self.fsync:
            return
        directory = os.open(os.path.dirname(name), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        try:
            with os.scandir(self._base + prefix) as found:
                # A directory sorts as its name with "/", so that whole paths come in the order of bytes.
                entries = sorted((f"{e.name}/" if e.is_dir() else e.name, e) for e in found)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, entry in entries:
            if name.endswith("/"):
                if prefix or entry.name != TEMPORARY:
                    yield from self._walk(prefix + name)
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            yield ObjectInfo(prefix + name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def _write_error(self, error: OSError) -> StoreError:
        if error.errno in _FULL:
            return StoreError.disk_full(self.url, error)
        if error.errno in _FORBIDDEN:
            return StoreError.not_writable(self.url, error)
        return StoreError.failed(self.url, error)


def map_file(name: str) -> pa.Buffer:
    """A whole file as memory. It stays readable after the file is deleted."""
    with pa.memory_map(name) as mapped:
        return mapped.read_buffer() if mapped.size() else pa.py_buffer(b"")
