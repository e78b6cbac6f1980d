"""Failures made for real: a full disk, a directory that refuses, a server gone or losing its answer."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

import pytest

from midstream.errors import StoreError
from midstream.state.directory import DirectoryStore
from midstream.state.store import Store, open_store
from tests.servers import S3Server, free_ports

SPAWN = multiprocessing.get_context("spawn")
NOBODY = 65534

USES: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create("manifests/1", b"data"),
    "put": lambda store: store.put("object", b"data"),
    "read": lambda store: store.read("object"),
    "list": lambda store: list(store.list("manifests")),
    "delete": lambda store: store.delete(["object"]),
}
every_use = pytest.mark.parametrize("use", USES.values(), ids=USES)


@pytest.fixture
def s3(s3_server: S3Server) -> Store:
    return open_store(s3_server.url(f"failures/{uuid4().hex}"), s3_server.options)


def answer_error(limit: Callable[[], None], act: Callable[[], object], answer: Connection) -> None:
    limit()
    try:
        act()
        answer.send(None)
    except StoreError as error:
        answer.send(error)


def error_in_process(limit: Callable[[], None], act: Callable[[], object]) -> StoreError:
    """What `act` raises in a process of its own that has limited itself first."""
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=answer_error, args=(limit, act, sender))
    process.start()
    assert receiver.poll(60), "the process did not answer"
    error = receiver.recv()
    process.join(10)
    assert isinstance(error, StoreError)
    return error


def become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def allow_small_files_only() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


@contextmanager
def mounted_tmpfs(directory: Path, options: str) -> Iterator[bool]:
    """A file system of its own there; False where mounting is not permitted."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(directory)], check=True)


class TestDirectory:
    def test_full_disk(self, tmp_path: Path) -> None:
        data = os.urandom(700_000)
        with mounted_tmpfs(tmp_path / "small", "size=1m") as mounted:
            store = DirectoryStore(tmp_path / "small")
            store.put("first", data)
            if mounted:
                with pytest.raises(StoreError) as raised:
                    store.create("second", data)
                error = raised.value
                assert error.error_class == "DISK_FULL"
                assert "Nothing was committed" in error.message
                assert "free or add space" in str(error)
            else:
                # No disk can be made that fills up; a limit on the size of files fails the same write.
                error = error_in_process(allow_small_files_only, partial(store.create, "second", data))
            assert store.url in error.message
            assert [info.path for info in store.list("")] == ["first"]
            assert os.listdir(tmp_path / "small" / ".tmp") == []
            store.delete(["first"])
            assert store.create("second", data)

    def test_root_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        store = DirectoryStore(tmp_path / "file" / "store")
        for write in (partial(store.create, "a", b""), partial(store.put, "a", b"")):
            with pytest.raises(StoreError, match=r"STORE_NOT_WRITABLE.*Nothing was committed\."):
                write()

    def test_directory_of_somebody_else(self, tmp_path: Path) -> None:
        (tmp_path / "store").mkdir(mode=0o555)
        store = DirectoryStore(tmp_path / "store")
        error = error_in_process(become_nobody, partial(store.put, "object", b"data"))
        assert error.error_class == "STORE_NOT_WRITABLE"
        assert "Permission denied" in error.message
        assert store.url in error.message
        assert list(store.list("")) == []

    def test_read_only_file_system(self, tmp_path: Path) -> None:
        with mounted_tmpfs(tmp_path / "fixed", "size=1m,ro") as mounted:
            if not mounted:
                pytest.skip("mounting is not permitted here")
            with pytest.raises(StoreError, match=r"STORE_NOT_WRITABLE.*Read-only"):
                DirectoryStore(tmp_path / "fixed").create("a", b"x")

    def test_link_whose_answer_was_lost(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """NFS clients send a link again when no answer came, and are then told that it exists."""
        link = os.link

        def link_twice(source: str, target: str) -> None:
            link(source, target)
            link(source, target)

        monkeypatch.setattr(os, "link", link_twice)
        store = DirectoryStore(tmp_path)
        assert store.create("a", b"first")
        assert not store.create("a", b"second")
        assert os.listdir(tmp_path / ".tmp") == []

    def test_leftovers_of_a_crash(self, tmp_path: Path) -> None:
        store = DirectoryStore(tmp_path)
        store.put("object", b"data")
        (tmp_path / ".tmp" / "half").write_bytes(b"da")
        assert [info.path for info in store.list("")] == ["object"]
        assert store.sweep(older_than_seconds=3600) == 0
        assert store.sweep(older_than_seconds=-1) == 1
        assert [info.path for info in store.list("")] == ["object"]


class TestS3:
    @every_use
    def test_unreachable_endpoint(self, s3_server: S3Server, use: Callable[[Store], object]) -> None:
        endpoint = f"http://127.0.0.1:{free_ports(1)[0]}"
        options = s3_server.options | {"endpoint": endpoint, "max_retries": "1"}
        with pytest.raises(StoreError, match=f"STORE_UNREACHABLE.*{endpoint}.*refused"):
            use(open_store(s3_server.url("chk"), options))

    @every_use
    def test_wrong_credentials(self, s3_server: S3Server, use: Callable[[Store], object]) -> None:
        for wrong in ({"secret_access_key": "not-the-secret"}, {"access_key_id": "not-a-key"}):
            store = open_store(s3_server.url("chk"), s3_server.options | wrong)
            with pytest.raises(StoreError, match=r"STORE_ACCESS_DENIED.*HTTP 403") as raised:
                use(store)
            secrets = [*wrong.values(), s3_server.secret_access_key]
            told = f"{raised.value!s} {raised.value!r} {raised.value.__cause__!r} {store!r}"
            assert not [secret for secret in secrets if secret in told]

    def test_no_credentials(self, s3_server: S3Server) -> None:
        # Without keys the client asks the machine for its role; here that is a port nobody listens on.
        options = {"endpoint": s3_server.endpoint, "max_retries": "0"}
        metadata = {"AWS_METADATA_ENDPOINT": f"http://127.0.0.1:{free_ports(1)[0]}"}
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            for name, value in metadata.items():
                patch.setenv(name, value)
            with pytest.raises(StoreError, match=r"STORE_ACCESS_DENIED.*no keys were given"):
                open_store(s3_server.url("chk"), options).read("object")

    @every_use
    def test_missing_bucket(self, s3_server: S3Server, use: Callable[[Store], object]) -> None:
        with pytest.raises(StoreError, match=r"MISSING_BUCKET.*'no-such-bucket'"):
            use(open_store("s3://no-such-bucket/chk", s3_server.options))

    def test_keys_from_the_environment(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_access_key)
        store = open_store(s3_server.url(f"failures/{uuid4().hex}"))
        assert store.create("a", b"x")
        assert store.read("a").to_pybytes() == b"x"

    def test_create_whose_answer_was_lost(self, s3_server: S3Server) -> None:
        with losing_first_answer(s3_server.endpoint) as endpoint:
            store = open_store(s3_server.url(f"failures/{uuid4().hex}"), s3_server.options | {"endpoint": endpoint})
            assert store.create("manifests/1", b"first")
            assert not store.create("manifests/1", b"first")

    def test_use_after_fork_is_an_error_and_no_hang(self, s3: Store) -> None:
        s3.put("object", b"data")
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                s3.read("object")
                os._exit(1)
            except StoreError as error:
                os._exit(0 if error.error_class == "STORE_USED_AFTER_FORK" else 2)
        _, status = os.waitpid(child, 0)
        assert status == 0


@contextmanager
def losing_first_answer(endpoint: str) -> Iterator[str]:
    """A way to the server on which the first answer is lost, after the server has done what it was asked."""
    host, _, port = endpoint.removeprefix("http://").partition(":")
    answers = 0

    def forward(client: socket.socket) -> None:
        nonlocal answers
        with client, socket.create_connection((host, int(port))) as server:
            while request := client.recv(65536):
                server.sendall(request)
                answer = server.recv(65536)
                answers += 1
                if answers == 1:
                    return
                client.sendall(answer)

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=forward, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    assert answers > 1, "nothing was sent again, so nothing was tested"
