"""What every store must do, whatever it is made of."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from midstream.errors import StoreError
from midstream.state.directory import MAP_FROM_BYTES
from midstream.state.s3 import PART_BYTES
from midstream.state.store import Store, open_store
from tests.servers import S3Server

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(params=["directory", "directory with fsync", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        return open_store(server.url(f"contract/{uuid4().hex}"), server.options)
    options = {"fsync": "true"} if "fsync" in request.param else {}
    return open_store(str(tmp_path / "store"), options)


def names(store: Store, prefix: str) -> list[str]:
    return [info.path for info in store.list(prefix)]


class TestWriting:
    def test_create_puts_only_the_first(self, store: Store) -> None:
        assert store.create("manifests/1", b"first")
        assert not store.create("manifests/1", b"second")
        assert store.read("manifests/1").to_pybytes() == b"first"

    def test_create_again_after_delete(self, store: Store) -> None:
        assert store.create("a", b"first")
        store.delete(["a"])
        assert store.create("a", b"second")
        assert store.read("a").to_pybytes() == b"second"

    @pytest.mark.parametrize("size", [0, 1000, 20_000_000])
    def test_any_size_comes_back_that_was_put_with_pauses(self, store: Store, size: int) -> None:
        data, pauses = os.urandom(size), list[int]()
        store.put("put", pa.py_buffer(data), pause=lambda: pauses.append(1))
        assert store.read("put").to_pybytes() == data
        if store.local_path("put") is None:
            assert len(pauses) == -(-size // PART_BYTES)

    def test_what_breaks_off_in_a_pause_leaves_nothing_to_be_read(self, s3_server: S3Server) -> None:
        """A directory gets all of it at once."""
        store = open_store(s3_server.url(f"contract/{uuid4().hex}"), s3_server.options)
        pauses = iter([None])

        def pause() -> None:
            next(pauses)  # there is no second one

        with pytest.raises(Exception, match=r"StopIteration|generator"):
            store.put("put", os.urandom(20_000_000), pause)
        assert names(store, "") == []

    @pytest.mark.parametrize("size", [0, 1, 1000, MAP_FROM_BYTES + 1, 12_000_000])
    def test_any_size_comes_back(self, store: Store, size: int) -> None:
        data = os.urandom(size)
        store.put("put", data)
        assert store.create("created", pa.py_buffer(data))
        assert store.read("put").to_pybytes() == data
        assert store.read("created").to_pybytes() == data

    def test_names_with_odd_characters(self, store: Store) -> None:
        odd = ["a b/ü", "a b/100%", "a b/x=1", "a b/#?&+", "a b/.hidden"]
        for name in odd:
            store.put(name, name.encode())
        assert names(store, "a b") == sorted(odd)
        assert all(store.read(name).to_pybytes() == name.encode() for name in odd)

    @pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../../b", "a/./b", ".tmp/a"])
    def test_names_that_leave_the_store_are_refused(self, store: Store, path: str) -> None:
        for use in (lambda: store.put(path, b""), lambda: store.create(path, b""), lambda: store.read(path)):
            with pytest.raises(StoreError, match="BAD_OBJECT_PATH"):
                use()

    def test_delete(self, store: Store) -> None:
        for name in ("d/1", "d/2", "d/3"):
            store.put(name, b"x")
        store.delete(["d/1", "never/there", "d/3"])
        store.delete(["d/1"])
        store.delete([])
        assert names(store, "d") == ["d/2"]


class TestReading:
    DATA = bytes(range(100))

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, None, DATA),
            (10, None, DATA[10:]),
            (10, 5, DATA[10:15]),
            (0, 0, b""),
            (95, 50, DATA[95:]),
            (100, 5, b""),
            (500, None, b""),
            (-10, None, DATA[-10:]),
            (-10, 4, DATA[-10:-6]),
            (-500, None, DATA),
            (-500, 3, DATA[:3]),
        ],
    )
    def test_ranges(self, store: Store, start: int, length: int | None, expected: bytes) -> None:
        store.put("object", self.DATA)
        assert store.read("object", start, length).to_pybytes() == expected

    def test_large_ranges(self, store: Store) -> None:
        data = os.urandom(3 * MAP_FROM_BYTES)
        length = 2 * MAP_FROM_BYTES
        store.put("object", data)
        assert store.read("object", 1000, length).to_pybytes() == data[1000 : 1000 + length]
        assert store.read("object", -length).to_pybytes() == data[-length:]

    def test_empty_object(self, store: Store) -> None:
        store.put("empty", b"")
        assert store.read("empty").size == 0
        assert store.read("empty", -8).size == 0
        assert store.read("empty", 0, 8).size == 0

    @pytest.mark.parametrize(("start", "length"), [(0, None), (5, 5), (-5, None), (0, 0)])
    def test_missing_object_is_named(self, store: Store, start: int, length: int | None) -> None:
        store.put("there/object", b"x")
        for path in ("not/there", "there", "there/object/below"):
            with pytest.raises(StoreError, match=f"MISSING_OBJECT.* {path} ") as raised:
                store.read(path, start, length)
            assert store.url in str(raised.value)

    def test_what_was_read_outlives_the_object(self, store: Store) -> None:
        data = os.urandom(2 * MAP_FROM_BYTES)
        store.put("object", data)
        read = store.read("object")
        store.delete(["object"])
        assert read.to_pybytes() == data


class TestListing:
    def test_prefix_is_a_whole_part_and_order_is_by_name(self, store: Store) -> None:
        paths = ["a/x", "a-b/x", "a/b/x", "ab/x", "b", "a.x/y", "a/10", "a/9", "Z"]
        for path in paths:
            store.put(path, path.encode())
        assert names(store, "") == sorted(paths)
        assert names(store, "a") == ["a/10", "a/9", "a/b/x", "a/x"]
        assert names(store, "a/") == ["a/10", "a/9", "a/b/x", "a/x"]
        assert names(store, "a/b") == ["a/b/x"]
        assert names(store, "b") == []
        assert names(store, "nothing") == []

    def test_size_and_time(self, store: Store) -> None:
        store.put("d/object", b"12345")
        (info,) = store.list("d")
        assert info.size == 5
        assert abs(datetime.now(UTC) - info.modified) < timedelta(minutes=1)

    def test_more_than_a_page(self, store: Store) -> None:
        expected = [f"many/{number:05}" for number in range(1100)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda path: store.put(path, b"x"), reversed(expected)))
        assert names(store, "many") == expected
        store.delete(expected)
        assert names(store, "many") == []

    def test_store_without_objects(self, store: Store) -> None:
        assert names(store, "") == []


CONTESTED = [f"manifests/{number}" for number in range(30)]


def create_all(store: Store, who: int, paths: list[str], start: Callable[[], object]) -> list[str]:
    # Together for each path: a loser asks twice, so it would fall behind and never contest again.
    return [path for path in paths if (start(), store.create(path, f"{who}".encode()))[1]]


def create_all_in_process(
    store: Store, who: int, paths: list[str], barrier: threading.Barrier, answer: Connection
) -> None:
    answer.send(create_all(store, who, paths, barrier.wait))


class TestConcurrentCreators:
    def check(self, store: Store, won: list[list[str]]) -> None:
        assert sorted(path for each in won for path in each) == sorted(CONTESTED)
        for who, paths in enumerate(won):
            assert all(store.read(path).to_pybytes() == f"{who}".encode() for path in paths)

    def test_exactly_one_thread_wins(self, store: Store) -> None:
        barrier = threading.Barrier(4)
        with ThreadPoolExecutor(4) as pool:
            tries = [pool.submit(create_all, store, who, CONTESTED, barrier.wait) for who in range(4)]
            self.check(store, [each.result() for each in tries])

    def test_exactly_one_process_wins(self, store: Store) -> None:
        barrier = SPAWN.Barrier(3)
        pipes = [SPAWN.Pipe(duplex=False) for _ in range(3)]
        processes = [
            SPAWN.Process(target=create_all_in_process, args=(store, who, CONTESTED, barrier, sender))
            for who, (_, sender) in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        won = [receiver.recv() if receiver.poll(60) else [] for receiver, _ in pipes]
        for process in processes:
            process.join(10)
        self.check(store, won)


class TestOpening:
    def test_pickled_store_is_the_same_store(self, store: Store) -> None:
        store.put("object", b"data")
        copy: Store = pickle.loads(pickle.dumps(store))
        assert copy == store
        assert copy.url == store.url
        assert copy.read("object").to_pybytes() == b"data"

    def test_relative_path_becomes_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        store = open_store("some dir/chk/")
        assert store.url == (tmp_path / "some dir" / "chk").as_uri()
        store.put("object", b"x")
        assert (tmp_path / "some dir" / "chk" / "object").read_bytes() == b"x"

    @pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "file://localhost{}"])
    def test_forms_of_a_directory(self, tmp_path: Path, form: str) -> None:
        assert open_store(form.format(tmp_path)).url == tmp_path.as_uri()

    def test_url_of_a_store_opens_it(self, tmp_path: Path) -> None:
        store = open_store(str(tmp_path / "100% ü #1"))
        assert open_store(store.url) == store

    def test_s3a_is_s3(self) -> None:
        assert open_store("s3a://bucket/pre/fix/").url == "s3://bucket/pre/fix"

    @pytest.mark.parametrize("url", ["hdfs://host/chk", "gs://bucket/chk", "dbfs:/chk"])
    def test_unknown_scheme_is_named(self, url: str) -> None:
        with pytest.raises(StoreError, match=f"UNKNOWN_STORE.*'{url.partition(':')[0]}:'"):
            open_store(url)

    @pytest.mark.parametrize("url", ["s3:///prefix", "s3://bucket/a?b=c", "file://otherhost/chk"])
    def test_bad_url(self, url: str) -> None:
        with pytest.raises(StoreError, match="BAD_STORE_URL"):
            open_store(url)

    def test_unknown_option_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"no option 'fsyncc'[\s\S]*did you mean 'fsync'"):
            open_store(str(tmp_path), {"fsyncc": "true"})
        with pytest.raises(StoreError, match=r"no option 'end_point'[\s\S]*did you mean 'endpoint'"):
            open_store("s3://bucket", {"end_point": "x"})

    @pytest.mark.parametrize(
        ("url", "options"),
        [
            ("dir", {"fsync": "perhaps"}),
            ("s3://bucket", {"allow_http": "perhaps"}),
            ("s3://bucket", {"max_retries": "many"}),
            ("s3://bucket", {"endpoint": "127.0.0.1:9000"}),
            ("s3://bucket", {"endpoint": "http://127.0.0.1:9000", "allow_http": "false"}),
        ],
    )
    def test_bad_option_is_named(self, url: str, options: dict[str, str]) -> None:
        with pytest.raises(StoreError, match=f"BAD_STORE_OPTION.*'{next(iter(options))}'"):
            open_store(url, options)

    def test_directory_does_not_load_the_s3_client(self, tmp_path: Path) -> None:
        code = (
            "import sys; from midstream.state.store import open_store;"
            f" open_store({str(tmp_path)!r}).put('a', b''); sys.exit('obstore' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
