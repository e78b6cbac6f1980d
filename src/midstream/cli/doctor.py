"""`midstream doctor`: whether this machine has what a pipeline needs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich.text import Text

from midstream.changes.verdict import in_bytes
from midstream.cli import show
from midstream.cli.exits import Exit
from midstream.cli.options import Output, pairs
from midstream.errors import MidstreamError
from midstream.state.store import open_store

OLDEST_JAVA = 17
LITTLE_MEMORY = 2 * 10**9
LITTLE_DISK, TOO_LITTLE_DISK = 5 * 10**9, 500 * 10**6

EXTRAS = {
    "pandas": "pandas",
    "polars": "polars",
    "delta": "deltalake",
    "postgres": "psycopg",
    "plot": "matplotlib",
    "nexmark": "duckdb",
    "otel": "opentelemetry",
}
"""Optional parts of midstream, and the module each needs."""


class Mark(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    NOTE = "note"


_SHOWN = {Mark.OK: ("✓", "green"), Mark.WARN: ("!", "yellow"), Mark.FAIL: ("✗", "red"), Mark.NOTE: ("–", "dim")}


@dataclass(frozen=True)
class Finding:
    what: str
    mark: Mark
    told: str
    hint: str = ""


def doctor(
    checkpoint: Annotated[
        str | None, typer.Option(metavar="URI", help="Also check that this store can be read and written.")
    ] = None,
    store_option: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="For the checkpoint's store; may be repeated.")
    ] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", envvar="MIDSTREAM_OUTPUT", help="For people or for programs.")
    ] = Output.TABLE,
) -> None:
    """Check what a pipeline needs: Java, memory, versions, names, disk, and the store of a checkpoint.

    Exit code 1 when something is missing.

    Example: midstream doctor --checkpoint s3://bucket/orders
    """
    findings = [check() for check in CHECKS]
    findings += [*packages(), *extras()]
    if checkpoint is not None:
        findings.append(store(checkpoint, pairs(store_option, "--store-option")))
    if output is Output.JSON:
        show.raw_value([asdict(finding) for finding in findings])
    else:
        table = show.plain_table("", "", "")
        table.show_header = False
        for finding in findings:
            character, style = _SHOWN[finding.mark]
            told = Text(finding.told)
            if finding.hint:
                told.append(f"\n{finding.hint}", style="dim")
            table.add_row(Text(character, style=f"bold {style}"), finding.what, told)
        show.out().print(table)
    if any(finding.mark is Mark.FAIL for finding in findings):
        raise typer.Exit(Exit.ERROR)


def java() -> Finding:
    """The Java that PySpark would start: JAVA_HOME's, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    hint = f"install a Java runtime {OLDEST_JAVA} or newer, or set JAVA_HOME to one."
    if command is None:
        return Finding("Java", Mark.FAIL, "not found by JAVA_HOME or PATH", hint)
    try:
        asked = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as cause:
        return Finding("Java", Mark.FAIL, f"{command} does not start: {cause}", hint)
    found = java_version(asked.stderr + asked.stdout)
    if asked.returncode or found is None:
        return Finding("Java", Mark.FAIL, f"{command} does not say its version", hint)
    if found < OLDEST_JAVA:
        return Finding("Java", Mark.FAIL, f"{found} at {command}; Spark 4 needs {OLDEST_JAVA}", hint)
    return Finding("Java", Mark.OK, f"{found} at {command}")


def java_version(text: str) -> int | None:
    """
    >>> java_version('openjdk version "21.0.4" 2024-07-16'), java_version('java version "1.8.0_412"')
    (21, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def memory() -> Finding:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    with suppress(OSError, ValueError):  # no container, or one without a limit
        size = min(size, int(limit.read_text()))
    if size < LITTLE_MEMORY:
        return Finding("memory", Mark.WARN, in_bytes(size), "the JVM and its Python workers need 2 GB or more.")
    return Finding("memory", Mark.OK, in_bytes(size))


def python() -> Finding:
    told = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} at {sys.executable}"
    return Finding("Python", Mark.OK, told)


def workers_python() -> Finding:
    """Workers must be the same Python: what is sent to them is pickled code."""
    given = os.environ.get("PYSPARK_PYTHON")
    if given is None:
        return Finding("PYSPARK_PYTHON", Mark.OK, "not set: midstream's own Python is used on this machine")
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run([given, "-c", ask], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as cause:
        return Finding("PYSPARK_PYTHON", Mark.FAIL, f"{given} does not start: {cause}", "unset it, or correct it.")
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if asked.stdout.strip() != mine:
        told = f"{given} is Python {asked.stdout.strip() or '?'}, the driver's is {mine}"
        return Finding("PYSPARK_PYTHON", Mark.FAIL, told, "both must be the same; unset it, or correct it.")
    return Finding("PYSPARK_PYTHON", Mark.OK, given)


def loopback() -> Finding:
    try:
        found = socket.gethostbyname("localhost")
    except OSError as cause:
        return Finding("localhost", Mark.FAIL, f"cannot be resolved: {cause}", "add it to /etc/hosts as 127.0.0.1.")
    return Finding("localhost", Mark.OK if found.startswith("127.") else Mark.WARN, found)


def host_name() -> Finding:
    """Spark binds to what the name of the machine resolves to, unless told otherwise."""
    if address := os.environ.get("SPARK_LOCAL_IP"):
        return Finding("host name", Mark.OK, f"not needed: SPARK_LOCAL_IP is {address}")
    name = socket.gethostname()
    try:
        return Finding("host name", Mark.OK, f"{name} is {socket.gethostbyname(name)}")
    except OSError as cause:
        hint = "set SPARK_LOCAL_IP=127.0.0.1 for runs on this machine alone, or add the name to /etc/hosts."
        return Finding("host name", Mark.WARN, f"{name} cannot be resolved: {cause}", hint)


def disk() -> Finding:
    directory = tempfile.gettempdir()
    free = shutil.disk_usage(directory).free
    told = f"{in_bytes(free)} free in {directory}"
    if free < LITTLE_DISK:
        mark = Mark.FAIL if free < TOO_LITTLE_DISK else Mark.WARN
        return Finding("disk", mark, told, "Spark spills there; make room, or set spark.local.dir and TMPDIR.")
    return Finding("disk", Mark.OK, told)


CHECKS: tuple[Callable[[], Finding], ...] = (java, python, workers_python, memory, disk, loopback, host_name)


def packages() -> Iterator[Finding]:
    for name in ("midstream", "pyspark", "pyarrow", "numpy", "obstore"):
        try:
            yield Finding(name, Mark.OK, version(name))
        except PackageNotFoundError:
            yield Finding(name, Mark.FAIL, "not installed", f"pip install {name}")


def extras() -> Iterator[Finding]:
    for extra, module in EXTRAS.items():
        if find_spec(module) is not None:
            yield Finding(f"extra {extra}", Mark.OK, _version_of(module))
        else:
            yield Finding(f"extra {extra}", Mark.NOTE, f"not installed: pip install 'midstream[{extra}]'")


def _version_of(module: str) -> str:
    try:
        return f"{module} {version(module)}"
    except PackageNotFoundError:
        return module


def store(url: str, options: dict[str, str]) -> Finding:
    """Put, read and remove an object, as commits do: only if it is absent."""
    path, data = f"doctor-{uuid4().hex}", b"midstream doctor"
    try:
        opened = open_store(url, options)
        try:
            if not opened.create(path, data) or opened.read(path).to_pybytes() != data:
                return Finding("store", Mark.FAIL, f"{opened.url} does not give back what was put there")
            if opened.create(path, data):
                hint = "commits rest on that: use a store with conditional writes (If-None-Match)."
                return Finding("store", Mark.FAIL, f"{opened.url} creates an object that exists already", hint)
        finally:
            opened.delete([path])
    except MidstreamError as error:
        return Finding("store", Mark.FAIL, error.message, error.hint or "")
    return Finding("store", Mark.OK, f"{opened.url} can be read and written")
