"""Byte ranges of stored objects, through memory maps: of the object itself, or of a copy on this machine.

Objects are immutable, so a copy is never stale and is never checked against the store.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import monotonic, time

import pyarrow as pa

from midstream.errors import StoreError
from midstream.state.directory import map_file
from midstream.state.ownfolder import own_folder, path_of
from midstream.state.store import Store, cut

_FOLDER = "midstream-cache"
DEFAULT_MAX_BYTES = 8 * 2**30
MAX_MAPS = 1024
"""Open maps per process. Each costs one of the 65 530 mappings Linux allows, and no memory of its own."""

WHOLE = "whole"
SEAL = b"midstrm1"
"""The last bytes of each copy, after its length. A copy left short by a power cut lacks them and goes."""

SWEEP_FRACTION = 64
"""The size of the directory is looked at once per this fraction of `max_bytes` that a process has added."""
KEEP_FRACTION = 0.9
"""How much of `max_bytes` a sweep leaves, so that the next write does not need another."""
TOUCH_SECONDS = 60.0
"""How often a copy in use is marked as used. Maps are read without the file system noticing."""
ABANDONED_SECONDS = 3600.0
"""The age at which a half-written copy counts as left behind by a process that died."""

_log = logging.getLogger(__name__)


@dataclass
class _Map:
    data: pa.Buffer
    file: str | None
    touched: float


class BlockCache:
    """Reads ranges of immutable objects; several processes may share the directory.

    An object of a local store is mapped in place. Of a remote store, each range fetched is kept as a file
    `<directory>/<hash of the store's URL>/<path>/<start>-<length>`, and an object written through it as
    `<path>/whole`, until `max_bytes` are reached and those used least recently go.
    """

    def __init__(self, directory: Path, max_bytes: int, max_maps: int = MAX_MAPS) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.hits = 0
        """Reads that needed nothing from the store."""
        self.fetched_bytes = 0
        """Bytes that came from remote stores."""
        self._max_maps = max_maps
        self._maps: OrderedDict[tuple[str, str, str], _Map] = OrderedDict()
        self._lock = threading.Lock()
        self._unswept = max_bytes
        self._sweeper: threading.Thread | None = None
        self._warned = False

    def read(self, store: Store, path: str, start: int, length: int, whole: bool = False) -> pa.Buffer:
        """A range of an object with the rules of `Store.read`. If that is the `whole` object, whatever is read of it
        later is here, too."""
        url = store.url
        everything = self._mapped((url, path, WHOLE))
        if everything is not None:
            return cut(everything, start, length)
        block = WHOLE if whole else f"{start}-{length}"
        part = self._mapped((url, path, block))
        if part is not None:
            return part
        local = store.local_path(path)
        if local is not None:
            return cut(self._map_in_place(store, path, local), start, length)
        copies = self._copies(url, path)
        everything = self._map_copy((url, path, WHOLE), copies + WHOLE)
        if everything is not None:
            return cut(everything, start, length)
        part = self._map_copy((url, path, block), copies + block)
        if part is not None:
            return part
        data = store.read(path, start, length)
        with self._lock:
            self.fetched_bytes += data.size
        return self._keep((url, path, block), copies + block, data)

    def bring(self, store: Store, path: str, parts: Sequence[tuple[int, int]]) -> None:
        """Have ranges (start and length) of an object here. Those that adjoin come with one request and are kept one by
        one, as they will be read."""
        missing = [part for part in parts if not self.is_here(store, path, *part)]
        at = 0
        while at < len(missing):
            end = at + 1
            while end < len(missing) and sum(missing[end - 1]) == missing[end][0]:
                end += 1
            start = missing[at][0]
            data = store.read(path, start, sum(missing[end - 1]) - start)
            with self._lock:
                self.fetched_bytes += data.size
            for offset, length in missing[at:end]:
                block = f"{offset}-{length}"
                part = data.slice(offset - start, length)
                self._keep((store.url, path, block), self._copies(store.url, path) + block, part)
            at = end

    def is_here(self, store: Store, path: str, start: int, length: int) -> bool:
        """Whether a range can be read without asking the store."""
        if store.local_path(path) is not None:
            return True
        names = (WHOLE, f"{start}-{length}")
        copies = self._copies(store.url, path)
        return any(self._mapped((store.url, path, name)) or os.path.exists(copies + name) for name in names)

    def write_through(self, store: Store, path: str, data: bytes | pa.Buffer) -> None:
        """Put an object into the store and keep a copy, for it will soon be read here."""
        store.put(path, data)
        if store.local_path(path) is None:
            self._keep((store.url, path, WHOLE), self._copies(store.url, path) + WHOLE, pa.py_buffer(data))

    def forget(self, store: Store, path: str) -> None:
        """Drop all copies of an object, for one that was found damaged or has been deleted."""
        with self._lock:
            for key in [key for key in self._maps if key[:2] == (store.url, path)]:
                del self._maps[key]
        if store.local_path(path) is None:
            with suppress(FileNotFoundError), os.scandir(self._copies(store.url, path)) as copies:
                for copy in copies:
                    _unlink(copy.path)

    def _copies(self, url: str, path: str) -> str:
        return f"{self.directory}/{_hash(url)}/{path}/"

    def _mapped(self, key: tuple[str, str, str]) -> pa.Buffer | None:
        with self._lock:
            found = self._maps.get(key)
            if found is None:
                return None
            self._maps.move_to_end(key)
            self.hits += 1
            if found.file is None or monotonic() - found.touched < TOUCH_SECONDS:
                return found.data
            found.touched = monotonic()
        _touch(found.file)
        return found.data

    def _remember(self, key: tuple[str, str, str], data: pa.Buffer, file: str | None) -> pa.Buffer:
        with self._lock:
            self._maps[key] = _Map(data, file, monotonic())
            self._maps.move_to_end(key)
            while len(self._maps) > self._max_maps:
                self._maps.popitem(last=False)
        return data

    def _map_in_place(self, store: Store, path: str, file: Path) -> pa.Buffer:
        try:
            return self._remember((store.url, path, WHOLE), map_file(str(file)), None)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise StoreError.missing(path, store.url) from error
        except OSError as error:
            raise StoreError.unreadable(path, store.url, error) from error

    def _map_copy(self, key: tuple[str, str, str], file: str) -> pa.Buffer | None:
        try:
            sealed = map_file(file)
        except OSError:
            # Nearly always: there is no copy. Whatever else it is, the store has the object.
            return None
        data = _unseal(sealed)
        if data is None:
            _unlink(file)
            return None
        _touch(file)
        with self._lock:
            self.hits += 1
        return self._remember(key, data, file)

    def _keep(self, key: tuple[str, str, str], file: str, data: pa.Buffer) -> pa.Buffer:
        """Write a copy and answer with its map. A copy that cannot be written costs speed, never the read."""
        try:
            self._write_copy(file, data)
            mapped = _unseal(map_file(file))
        except FileNotFoundError:
            # Another process swept it away at once.
            return data
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning("the cache directory %s cannot be written, going on without: %s", self.directory, error)
            return data
        if mapped is None:
            return data
        self._count(data.size)
        return self._remember(key, mapped, file)

    def _write_copy(self, file: str, data: pa.Buffer) -> None:
        temporary = f"{self.directory}/.tmp/{os.urandom(12).hex()}"
        os.makedirs(os.path.dirname(temporary), mode=0o700, exist_ok=True)
        try:
            with open(temporary, "xb") as out:
                out.write(data)
                out.write(data.size.to_bytes(8, "little") + SEAL)
            os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
            os.rename(temporary, file)
        except OSError:
            _unlink(temporary)
            raise

    def _count(self, added: int) -> None:
        """Sweep now and then, first at the first copy: others may have filled the directory before."""
        with self._lock:
            self._unswept += added
            if self._unswept * SWEEP_FRACTION < self.max_bytes:
                return
            if self._sweeper is not None and self._sweeper.is_alive():
                return
            self._unswept = 0
            # Beside the read that brought it about: a large directory takes a while to look through.
            self._sweeper = threading.Thread(target=self.sweep, name="midstream-cache-sweep", daemon=True)
            self._sweeper.start()

    def sweep(self) -> None:
        """Remove the copies used least recently until the directory is below its size."""
        found: list[tuple[float, int, str]] = []
        for folder, _, names in os.walk(self.directory):
            for name in names:
                file = os.path.join(folder, name)
                with suppress(FileNotFoundError):
                    status = os.stat(file)
                    found.append((status.st_mtime, status.st_size, file))
        in_progress = f"{self.directory}/.tmp/"
        total = sum(size for _, size, _ in found)
        too_much = total > self.max_bytes
        for used, size, file in sorted(found):
            if file.startswith(in_progress):
                if used < time() - ABANDONED_SECONDS:
                    _unlink(file)
            elif too_much and total > self.max_bytes * KEEP_FRACTION:
                total -= size
                _unlink(file)
                with suppress(OSError):
                    os.rmdir(os.path.dirname(file))


@lru_cache(maxsize=64)
def _hash(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _unseal(sealed: pa.Buffer) -> pa.Buffer | None:
    size = sealed.size - 8 - len(SEAL)
    if size < 0 or sealed.slice(size).to_pybytes() != size.to_bytes(8, "little") + SEAL:
        return None
    return sealed.slice(0, size)


def _touch(file: str) -> None:
    with suppress(OSError):
        os.utime(file)


def _unlink(file: str) -> None:
    # Several processes sweep the same directory: a file gone is a file removed.
    with suppress(OSError):
        os.unlink(file)


_of_process: tuple[int, BlockCache] | None = None
_of_process_lock = threading.Lock()


def process_cache() -> BlockCache:
    """The cache of this process. MIDSTREAM_CACHE_DIR and MIDSTREAM_CACHE_BYTES say where and how large; `{executor}`
    in the former stands for the id of the executor, should several on one machine not share theirs."""
    global _of_process
    found = _of_process
    if found is not None and found[0] == os.getpid():
        return found[1]
    with _of_process_lock:
        # A forked worker makes its own: the parent's locks and counters are the parent's.
        if _of_process is None or _of_process[0] != os.getpid():
            _of_process = os.getpid(), BlockCache(_directory(), _max_bytes())
        return _of_process[1]


def _directory() -> Path:
    given = os.environ.get("MIDSTREAM_CACHE_DIR")
    if given:
        return Path(given.replace("{executor}", _executor_id())).absolute()
    try:
        return own_folder(_FOLDER)
    except OSError as error:
        raise StoreError.bad_cache(path_of(_FOLDER), error) from error


def _executor_id() -> str:
    """The id of the Spark executor this process works for, as told by the command line of its grandparent."""
    process = os.getppid()
    for _ in range(3):
        with suppress(OSError, ValueError):
            command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if b"--executor-id" in command:
                return command[command.index(b"--executor-id") + 1].decode()
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return "driver"


def _max_bytes() -> int:
    given = os.environ.get("MIDSTREAM_CACHE_BYTES")
    if given is None:
        return DEFAULT_MAX_BYTES
    if not given.isdecimal() or int(given) == 0:
        raise StoreError.bad_cache_size(given)
    return int(given)
