"""The one interface midstream needs of storage, and `open_store` that picks an implementation by URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from midstream.errors import StoreError

# Two letters at least: a single one is a drive, not a scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


@dataclass(frozen=True)
class ObjectInfo:
    """One stored object as a listing shows it."""

    path: str
    size: int
    modified: datetime


class Store(Protocol):
    """A flat name space of immutable objects. Paths are relative, with `/` between parts.

    Implementations are picklable (tasks on executors open the same store) and safe to use from several
    threads.
    """

    @property
    def url(self) -> str: ...

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Put an object unless one is there; say whether it was put. Atomic: the commit point rests on it.

        When it raises, the object may be there nevertheless (an answer lost on the network): look before
        going on.
        """
        ...

    def put(self, path: str, data: bytes | pa.Buffer, pause: Callable[[], None] | None = None) -> None:
        """Put an object under a name nobody else uses. Readers see all of it or nothing. A store that takes it in parts
        over a network lets others go first by a `pause` before each."""
        ...

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        """The bytes of an object, or a range of them. A negative start counts from the end.

        Like a slice of `bytes`, a range is cut at the ends of the object, so fewer bytes than asked for may
        come.
        """
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects below a prefix (a whole path part), in name order. An empty prefix lists everything."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects; those already gone are no error."""
        ...

    def sweep(self, older_than_seconds: float) -> int:
        """Remove what writers that died left half written, where a store can have such a thing."""
        ...

    def local_path(self, path: str) -> Path | None:
        """Where the object lies as a file that can be memory-mapped, or None for a remote store."""
        ...


def open_store(url: str, options: Mapping[str, str] | None = None) -> Store:
    """Open `dir/`, `file:///dir` or `s3://bucket/prefix`; options are those of the store (endpoint, keys).

    Nothing is read or written yet, so a store that cannot be reached shows at its first use.

    >>> open_store("file:///data/chk").url
    'file:///data/chk'
    """
    # The implementations are imported here so that a directory never costs the import of an S3 client.
    from midstream.state.directory import DirectoryStore

    match = _SCHEME.match(url)
    if match is None:
        return DirectoryStore.from_options(Path(url), options or {})
    scheme = match[1].lower()
    if scheme == "file":
        return DirectoryStore.from_options(_file_url_path(url), options or {})
    if scheme in ("s3", "s3a"):
        # Spark's users write s3a://, the name of Hadoop's client; the store behind it is the same.
        from midstream.state.s3 import S3Store

        return S3Store.from_url(url, options or {})
    raise StoreError.unknown_scheme(url, scheme)


def cut(data: pa.Buffer, start: int, length: int | None) -> pa.Buffer:
    """A range of a buffer with the rules of `Store.read`, without copying."""
    begin, end, _ = slice(start, None).indices(data.size)
    if length is not None:
        end = min(end, begin + length)
    return data.slice(begin, max(end - begin, 0))


def check_path(path: str) -> str:
    """The path itself, unless it could leave the store or name different objects in different stores."""
    if not path or path[0] == "/" or path[-1] == "/" or "//" in path:
        raise StoreError.bad_path(path)
    # Nearly all paths have no part that begins with a dot, and this runs several times in each micro-batch.
    if path[0] == "." or "/." in path:
        parts = path.split("/")
        if parts[0] == ".tmp" or "." in parts or ".." in parts:
            raise StoreError.bad_path(path)
    return path


def _file_url_path(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise StoreError.bad_url(url, f"names the host '{parts.netloc}', but file: is for this machine's directories")
    if parts.query or parts.fragment:
        raise StoreError.bad_url(url, "has a '?' or '#'; write them as %3F and %23")
    return Path(unquote(parts.path))
