"""Stores and servers that fail or are full: a clear error, and nothing lost once they are back."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import midstream as ms
from midstream.errors import MidstreamError
from midstream.state.ledger import committed_epochs
from midstream.state.store import open_store
from tests.recovery.processes import wait_until
from tests.recovery.summing import Case, Step, summed, use_fresh_workers
from tests.servers import S3Server, free_ports

# Workers get the functions below by value and need not be able to import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class TestStores:
    def test_a_store_below_a_file(self, case: Case) -> None:
        (case.root / "file").write_text("")
        place = str(case.root / "file" / "chk")
        case.fails(case.flow(), "STORE_NOT_WRITABLE", place, checkpoint=place)
        case.run()
        case.check()

    def test_stores_that_do_not_exist(self, case: Case) -> None:
        case.fails(case.flow(), "UNKNOWN_STORE", "gopher", checkpoint="gopher://host/chk")
        case.fails(case.flow(), "UNKNOWN_STORE_OPTION", "fsinc", store_options={"fsinc": "true"})

    def test_an_s3_server_that_does_not_answer(self, case: Case, s3_server: S3Server) -> None:
        (port,) = free_ports(1)
        nobody = {**s3_server.options, "endpoint": f"http://127.0.0.1:{port}", "max_retries": "1"}
        case.fails(
            case.flow(), "STORE_UNREACHABLE", f"127.0.0.1:{port}", checkpoint="s3://bucket/chk", store_options=nobody
        )
        case.fails(
            case.flow(),
            "MISSING_BUCKET",
            "no-such-bucket",
            checkpoint="s3://no-such-bucket/chk",
            store_options=s3_server.options,
        )
        wrong = {**s3_server.options, "secret_access_key": "wrong"}
        url = s3_server.url("bad-input")
        error = case.fails(case.flow(), "STORE_ACCESS_DENIED", url, checkpoint=url, store_options=wrong)
        assert "wrong" not in str(error)

    def test_a_postgres_server_that_does_not_answer(self, case: Case) -> None:
        dsn = f"postgresql://someone:secret@/nowhere?host={case.root}"
        flow = summed(case.inbox.source()).sink("out", ms.sinks.postgres(dsn, "sums"))
        error = case.fails(flow, "SINK_UNREACHABLE", "nowhere", "table sums")
        assert "secret" not in str(error)
        case.run()
        case.check()


class TestSpace:
    """No space left, for real."""

    @staticmethod
    def hoarding(size: int) -> Step:
        """Keeps so many bytes for every key, beside its sum."""

        def hoard(rows: pa.Table, state: pa.Table) -> Any:

            found = {row["k"]: row["total"] for row in state.to_pylist()}
            for row in rows.to_pylist():
                found[row["k"]] = found.get(row["k"], 0) + row["v"]
            keys = pa.array(list(found), pa.string())
            totals = pa.array(list(found.values()), pa.int64())
            ballast = pa.array([os.urandom(size) for _ in found], pa.binary())
            output = pa.table({"k": keys, "total": totals})
            return output, pa.table({"k": keys, "ballast": ballast, "total": totals})

        return lambda s: s.key_by("k").stateful(
            "sums", hoard, state="ballast binary, total bigint", output="k string, total bigint", parallelism=1
        )

    def test_the_disk_is_full(self, case: Case) -> None:
        disk = case.root / "disk"
        try:
            mounted = tmpfs(disk, "2m")
        except PermissionError as error:
            warnings.warn(f"a disk cannot be mounted here ({error}): a limit of files is used instead", stacklevel=1)
            self.fill_up_to_a_limit(case)
            return
        with mounted:
            full = Case(disk, case.spark)
            full.add_epoch()
            full.run(self.hoarding(50_000))
            for _ in range(5):
                full.add_epoch()
            url = f"file://{disk}"
            error = full.fails(full.flow(self.hoarding(50_000)), "DISK_FULL", url, "No space left on device")
            assert "space" in str(error.hint)
            first = max(committed_epochs(open_store(str(full.checkpoint))))
            assert 1 <= first < 5
            full.fails(full.flow(self.hoarding(50_000)), "DISK_FULL", url)
            assert max(committed_epochs(open_store(str(full.checkpoint)))) == first

            assert remounted(disk, "size=64m")
            full.run(self.hoarding(50_000))
            full.check()

    def test_the_disk_becomes_read_only(self, case: Case) -> None:
        """As the kernel does with a disk that has errors. Spark's own log is mostly the first to notice."""
        disk = case.root / "disk"
        try:
            mounted = tmpfs(disk, "64m")
        except PermissionError as error:
            warnings.warn(f"a disk cannot be mounted here ({error}): a file is put in the way", stacklevel=1)
            self.put_a_file_in_the_way(case)
            return
        with mounted:
            broken = Case(disk, case.spark)
            # Rows go on coming in: they lie on another disk.
            (disk / "in").symlink_to(case.inbox.directory)
            run = broken.start()
            run.process_available()
            wait_until(lambda: remounted(disk, "ro"), 30, "no file is open for writing")
            broken.add_epoch()
            with pytest.raises(MidstreamError) as raised:
                run.process_available()
            assert raised.value.error_class == "STORE_NOT_WRITABLE"
            assert f"file://{disk}" in raised.value.message
            assert raised.value.hint
            broken.fails(broken.flow(), "STORE_NOT_WRITABLE", f"file://{disk}")
            assert remounted(disk, "rw")
            broken.run()
            broken.check()

    def test_a_limit_to_the_size_of_files(self, case: Case) -> None:
        self.fill_up_to_a_limit(case)

    def test_a_file_where_a_folder_should_be(self, case: Case) -> None:
        self.put_a_file_in_the_way(case)

    def fill_up_to_a_limit(self, case: Case) -> None:
        """`ulimit -f` in the worker: the kernel refuses to make a segment larger."""
        small = self.hoarding(10)
        case.run(small)
        case.add_epoch()
        limit = case.root / "limit"
        limit.touch()

        def limited(rows: pa.Table, state: pa.Table) -> Any:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000 if limit.exists() else hard, hard))
            return grown(rows, state)

        grown = self.hoarding(10_000)(case.inbox.source()).step.function  # type: ignore[attr-defined]

        def step(stream: ms.Stream) -> ms.Stream:
            return stream.key_by("k").stateful(
                "sums", limited, state="ballast binary, total bigint", output="k string, total bigint", parallelism=1
            )

        use_fresh_workers(case.spark)
        case.fails(case.flow(step), "STORE_FAILED", f"file://{case.checkpoint}", "File too large")
        limit.unlink()
        case.run(step)
        case.check()
        use_fresh_workers(case.spark)

    def put_a_file_in_the_way(self, case: Case) -> None:
        run = case.start()
        run.process_available()
        shutil.rmtree(case.checkpoint / ".tmp")
        (case.checkpoint / ".tmp").write_text("")
        case.add_epoch()
        with pytest.raises(MidstreamError) as raised:
            run.process_available()
        assert raised.value.error_class == "STORE_NOT_WRITABLE"
        assert f"file://{case.checkpoint}" in raised.value.message
        assert raised.value.hint
        case.fails(case.flow(), "STORE_NOT_WRITABLE", f"file://{case.checkpoint}")
        (case.checkpoint / ".tmp").unlink()
        case.run()
        case.check()


@contextmanager
def _unmounting(place: Path) -> Iterator[None]:
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def tmpfs(place: Path, size: str) -> Any:
    """A small disk. Raises `PermissionError` where one may not be mounted."""
    place.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise PermissionError(str(error)) from error
    if done.returncode != 0:
        raise PermissionError(done.stderr.strip())
    return _unmounting(place)


def remounted(place: Path, option: str) -> bool:
    """Mount a disk in another way. Fails while a file is open for writing, if it is to be read-only."""
    done = subprocess.run(["mount", "-o", f"remount,{option}", str(place)], capture_output=True, text=True)
    assert done.returncode == 0 or "busy" in done.stderr, done.stderr
    return done.returncode == 0
