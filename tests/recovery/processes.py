"""Processes a test starts: each in a session of its own, so that all it started itself can be found and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.recovery.workload import Orders

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Process:
    """A Python program and everything it has started: JVM, Python workers, compactor."""

    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def members(self) -> dict[int, str]:
        """The processes of the session by id, each with its command line. Python workers make process groups of their
        own, but nobody leaves the session."""
        return {pid: command for pid, session, command in _processes() if session == self.pid}

    def jvm(self) -> int | None:
        return next((pid for pid, command in self.members().items() if "java" in command.split("\0")[0]), None)

    def kill_all(self) -> None:
        """End the whole session at once and wait until nothing of it is left."""
        deadline = time.monotonic() + 20
        while members := self.members():
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.popen.poll()
            assert time.monotonic() < deadline, f"still there after SIGKILL: {members}"
            time.sleep(0.01)
        self.popen.wait(5)

    def wait(self, timeout: float) -> int:
        """Wait for its end; what it leaves behind must go by itself, and is ended if it does not."""
        try:
            code = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"not finished after {timeout} s:\n{self.tail()}") from None
        self.kill_all()
        return code

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])


@dataclass(frozen=True)
class Driver:
    """A started workload."""

    process: Process
    orders: Orders

    @classmethod
    def start(cls, orders: Orders) -> Driver:
        return cls(run_module("tests.recovery.workload", orders.to_json(), log=Path(orders.result + ".log")), orders)

    def finish(self, timeout: float = 600) -> dict[str, Any]:
        """Wait for the end and give what it wrote as its result."""
        self.process.wait(timeout)
        result = self.result()
        assert result, f"no result:\n{self.process.tail()}"
        return result

    def result(self) -> dict[str, Any]:
        """What it wrote as its result, nothing when it did not come to it."""
        file = Path(self.orders.result)
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found


def run_module(module: str, *arguments: str, log: Path, **variables: str) -> Process:
    """Start a module of the tests with the interpreter and the packages of this one."""
    return run_command([sys.executable, "-m", module, *arguments], log, SPARK_LOCAL_IP="127.0.0.1", **variables)


def run_command(command: Sequence[str], log: Path, **variables: str) -> Process:
    """Start a command in a session of its own, its Python the one of the tests."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
        "PYSPARK_PYTHON": sys.executable,
        **variables,
    }
    with log.open("ab") as output:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=REPOSITORY,
            env=environment,
            start_new_session=True,
        )
    return Process(popen, log)


def wait_until(happened: Callable[[], bool], timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not within {timeout} s"
        time.sleep(0.01)


def _processes() -> Iterator[tuple[int, int, str]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                status = Path(entry.path, "stat").read_text()
                # The name in parentheses may itself hold spaces and parentheses.
                state, _, _, session = status.rpartition(")")[2].split()[:4]
                if state not in "ZX":
                    yield int(entry.name), int(session), Path(entry.path, "cmdline").read_text()
