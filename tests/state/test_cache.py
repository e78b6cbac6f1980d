"""The cache of blocks, over a real directory and a real S3 server."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from midstream.errors import StoreError
from midstream.state import cache as cache_module
from midstream.state.cache import BlockCache, process_cache
from midstream.state.store import Store, open_store
from tests.servers import S3Server

SPAWN = multiprocessing.get_context("spawn")
MB = 1_000_000


@pytest.fixture
def remote(s3_server: S3Server) -> Store:
    return open_store(s3_server.url(f"cache/{uuid4().hex}"), s3_server.options)


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(directory: Path) -> BlockCache:
    return BlockCache(directory, 100 * MB)


def copies(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in copies(directory))


class TestReading:
    DATA = os.urandom(10_000)

    @pytest.mark.parametrize(
        ("start", "length"),
        [(0, 10_000), (0, 100), (4321, 1000), (9_990, 100), (20_000, 5), (-50, 50), (-50, 20)],
    )
    @pytest.mark.parametrize("way", ["put", "write_through"])
    def test_ranges(self, store: Store, cache: BlockCache, start: int, length: int, way: str) -> None:
        if way == "put":
            store.put("seg/a", self.DATA)
        else:
            cache.write_through(store, "seg/a", self.DATA)
        expected = self.DATA[start:][:length]
        for _ in range(3):
            assert cache.read(store, "seg/a", start, length).to_pybytes() == expected
        assert store.read("seg/a").to_pybytes() == self.DATA

    def test_missing_object(self, store: Store, cache: BlockCache) -> None:
        with pytest.raises(StoreError, match=r"MISSING_OBJECT.* seg/none "):
            cache.read(store, "seg/none", 0, 10)

    def test_read_after_the_object_is_gone(self, store: Store, cache: BlockCache) -> None:
        store.put("seg/a", self.DATA)
        first = cache.read(store, "seg/a", 0, 5000)
        store.delete(["seg/a"])
        assert first.to_pybytes() == self.DATA[:5000]
        assert cache.read(store, "seg/a", 0, 5000).to_pybytes() == self.DATA[:5000]

    def test_forget(self, store: Store, cache: BlockCache) -> None:
        cache.write_through(store, "seg/a", self.DATA)
        cache.read(store, "seg/a", 0, 10)
        store.delete(["seg/a"])
        cache.forget(store, "seg/a")
        with pytest.raises(StoreError, match="MISSING_OBJECT"):
            cache.read(store, "seg/a", 0, 10)

    def test_many_threads(self, store: Store, directory: Path) -> None:
        cache = BlockCache(directory, 100_000, max_maps=3)
        for number in range(8):
            store.put(f"seg/{number}", self.DATA)

        def read(turn: int) -> bool:
            start = turn * 37 % 9000
            found: bytes = cache.read(store, f"seg/{turn % 8}", start, 500).to_pybytes()
            return found == self.DATA[start : start + 500]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(400)))


class TestLocal:
    def test_file_is_mapped_once_and_in_place(self, local: Store, cache: BlockCache, directory: Path) -> None:
        cache.write_through(local, "seg/a", bytes(MB))
        first = cache.read(local, "seg/a", 1000, 10)
        second = cache.read(local, "seg/a", 2000, 10)
        assert second.address - first.address == 1000
        assert cache.hits == 1
        assert cache.fetched_bytes == 0
        assert not directory.exists()

    def test_maps_are_bounded(self, local: Store, directory: Path) -> None:
        cache = BlockCache(directory, MB, max_maps=2)
        for number in range(5):
            local.put(f"seg/{number}", b"x" * 100)
            cache.read(local, f"seg/{number}", 0, 10)
        cache.read(local, "seg/4", 5, 10)
        assert cache.hits == 1
        cache.read(local, "seg/0", 0, 10)
        assert cache.hits == 1


class TestRemote:
    DATA = os.urandom(100_000)

    def test_range_is_fetched_once_for_all_processes(self, remote: Store, cache: BlockCache, directory: Path) -> None:
        remote.put("seg/a", self.DATA)
        for _ in range(3):
            assert cache.read(remote, "seg/a", 100, 1000).to_pybytes() == self.DATA[100:1100]
        assert (cache.hits, cache.fetched_bytes) == (2, 1000)
        (file,) = copies(directory)
        assert file.parts[-3:] == ("seg", "a", "100-1000")
        remote.delete(["seg/a"])
        later = BlockCache(directory, 100 * MB)
        assert later.read(remote, "seg/a", 100, 1000).to_pybytes() == self.DATA[100:1100]
        assert (later.hits, later.fetched_bytes) == (1, 0)

    def test_what_was_written_through_is_never_fetched(self, remote: Store, cache: BlockCache, directory: Path) -> None:
        cache.write_through(remote, "seg/a", pa.py_buffer(self.DATA))
        remote.delete(["seg/a"])
        assert cache.read(remote, "seg/a", 100, 1000).to_pybytes() == self.DATA[100:1100]
        later = BlockCache(directory, 100 * MB)
        assert later.read(remote, "seg/a", -10, 10).to_pybytes() == self.DATA[-10:]

    def test_stores_do_not_mix(self, s3_server: S3Server, remote: Store, cache: BlockCache) -> None:
        other = open_store(s3_server.url(f"cache/{uuid4().hex}"), s3_server.options)
        cache.write_through(remote, "seg/a", b"one")
        cache.write_through(other, "seg/a", b"two")
        assert cache.read(remote, "seg/a", 0, 3).to_pybytes() == b"one"
        assert cache.read(other, "seg/a", 0, 3).to_pybytes() == b"two"

    @pytest.mark.parametrize("left", [0, 500, 1008])
    def test_copy_cut_short_is_fetched_again(
        self, remote: Store, cache: BlockCache, directory: Path, left: int
    ) -> None:
        remote.put("seg/a", self.DATA)
        cache.read(remote, "seg/a", 0, 1000)
        (file,) = copies(directory)
        os.truncate(file, left)
        later = BlockCache(directory, 100 * MB)
        assert later.read(remote, "seg/a", 0, 1000).to_pybytes() == self.DATA[:1000]
        assert later.fetched_bytes == 1000

    def test_directory_that_cannot_be_written_costs_only_speed(
        self, remote: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_bytes(b"")
        cache = BlockCache(tmp_path / "file" / "cache", MB)
        cache.write_through(remote, "seg/a", self.DATA)
        for _ in range(2):
            assert cache.read(remote, "seg/a", 0, 1000).to_pybytes() == self.DATA[:1000]
        assert cache.fetched_bytes == 2000
        assert len(caplog.records) == 1
        assert "cannot be written, going on without" in caplog.text


class TestEviction:
    BLOCK = 10_000

    def fill(self, cache: BlockCache, store: Store, count: int) -> None:
        for number in range(count):
            cache.write_through(store, f"seg/{number:03}", os.urandom(self.BLOCK))

    def test_least_recently_used_go_first(self, remote: Store, directory: Path) -> None:
        self.fill(BlockCache(directory, 100 * MB), remote, 20)
        for age, file in enumerate(reversed(copies(directory))):
            os.utime(file, (time.time() - 100 - age,) * 2)
        small = BlockCache(directory, 12 * self.BLOCK)
        small.read(remote, "seg/000", 0, 10)
        small.sweep()
        assert size_of(directory) <= small.max_bytes
        kept = {file.parent.name for file in copies(directory)}
        assert kept == {"000", *(f"{number:03}" for number in range(11, 20))}
        assert not (directory / copies(directory)[0].parts[-4] / "seg" / "001").exists()
        assert small.read(remote, "seg/001", 0, 10).size == 10

    def test_size_stays_bounded_without_being_asked(self, remote: Store, directory: Path) -> None:
        cache = BlockCache(directory, 10 * self.BLOCK)
        for _ in range(3):
            self.fill(cache, remote, 15)
            assert cache._sweeper is not None
            cache._sweeper.join()
        assert size_of(directory) <= 12 * self.BLOCK

    def test_directory_is_not_walked_at_every_read(
        self, remote: Store, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = BlockCache(directory, 100 * MB)
        sweeps: list[None] = []
        monkeypatch.setattr(cache, "sweep", lambda: sweeps.append(None))
        self.fill(cache, remote, 30)
        for number in range(30):
            cache.read(remote, f"seg/{number:03}", 0, 10)
        assert len(sweeps) == 1

    def test_copy_in_use_is_marked(
        self, remote: Store, cache: BlockCache, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache.write_through(remote, "seg/a", b"x" * 100)
        (file,) = copies(directory)
        os.utime(file, (1, 1))
        cache.read(remote, "seg/a", 0, 10)
        assert file.stat().st_mtime == 1
        monkeypatch.setattr(cache_module, "TOUCH_SECONDS", 0.0)
        cache.read(remote, "seg/a", 0, 10)
        assert file.stat().st_mtime > 1

    def test_half_written_copies_of_dead_processes_go(self, remote: Store, cache: BlockCache, directory: Path) -> None:
        cache.write_through(remote, "seg/a", b"x" * 100)
        old, new = directory / ".tmp" / "old", directory / ".tmp" / "new"
        old.write_bytes(b"x")
        new.write_bytes(b"x")
        os.utime(old, (1, 1))
        cache.sweep()
        assert not old.exists()
        assert new.exists()

    def test_processes_share_a_directory_too_small_for_them(self, remote: Store, directory: Path) -> None:
        for number in range(10):
            remote.put(f"seg/{number}", bytes([number]) * self.BLOCK)
        with SPAWN.Pool(3) as pool:
            wrong = pool.starmap(read_all, [(remote, directory, 4 * self.BLOCK)] * 3)
        assert wrong == [0, 0, 0]


def read_all(store: Store, directory: Path, max_bytes: int) -> int:
    """Read everything again and again; the number of answers that were wrong."""
    cache = BlockCache(directory, max_bytes, max_maps=2)
    wrong = 0
    for turn in range(150):
        number = turn * 7 % 10
        wrong += cache.read(store, f"seg/{number}", 10, 5000).to_pybytes() != bytes([number]) * 5000
    return wrong


class TestProcessCache:
    @pytest.fixture(autouse=True)
    def fresh(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(cache_module, "_of_process", None)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.delenv("MIDSTREAM_CACHE_DIR", raising=False)
        monkeypatch.delenv("MIDSTREAM_CACHE_BYTES", raising=False)

    def test_settings(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("MIDSTREAM_CACHE_DIR", str(tmp_path / "c"))
        monkeypatch.setenv("MIDSTREAM_CACHE_BYTES", "12345")
        cache = process_cache()
        assert (cache.directory, cache.max_bytes) == (tmp_path / "c", 12345)
        assert process_cache() is cache

    def test_default_is_private_to_the_user(self, tmp_path: Path) -> None:
        cache = process_cache()
        assert cache.directory.parent == tmp_path
        assert cache.directory.stat().st_mode & 0o777 == 0o700
        assert cache.max_bytes == 8 * 2**30

    def test_default_that_somebody_put_there(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / f"midstream-cache-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="CACHE_NOT_USABLE"):
            process_cache()

    @pytest.mark.parametrize("given", ["8GiB", "-1", "0", ""])
    def test_bad_size(self, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
        monkeypatch.setenv("MIDSTREAM_CACHE_BYTES", given)
        with pytest.raises(StoreError, match="BAD_CACHE_SIZE"):
            process_cache()
