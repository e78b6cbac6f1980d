"""From what Spark raises to what midstream tells: the error of a task or of the epoch, found in Spark's wrapping."""

from __future__ import annotations

import re
import socket
import traceback
from pathlib import Path

import py4j
import pyspark
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException

from midstream import errors
from midstream.errors import CheckpointError, EpochError, GraphError, MidstreamError, StoreError
from midstream.graph.steps import Step
from midstream.state.ledger import Ledger
from midstream.task.userfn import raised_at

_TOLD = re.compile(
    r"midstream\.errors(?:\.[a-z]+)?\.(?P<kind>\w+): \[(?P<name>[A-Z_]+)\] (?P<message>.*?)"
    r"(?:\n\nHint: (?P<hint>[^\n]*))?(?=\n\s*$|\n\tat |\n\n|\Z)",
    re.DOTALL,
)
_OF_THE_JVM = re.compile(r"\n(?:\tat |\t\.\.\. |Driver stacktrace:|JVM stacktrace:)[^\n]*")
_PLAN = "=== Streaming Query ==="
_CONCURRENT = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected", "Multiple streaming queries")
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_FORBIDDEN = re.compile(r"Read-only file system|Permission denied|Mkdirs failed to create")
_NOT_THERE = re.compile(r"ModuleNotFoundError: No module named '(midstream|pyarrow|numpy|obstore|xxhash)'")
_TALKS_TO_JVM = tuple(Path(path) for package in (py4j, pyspark) for path in package.__path__)


def as_midstream_error(error: BaseException, ledger: Ledger) -> MidstreamError:
    """The midstream error behind an exception, or one that carries Spark's message."""
    if (lost := lost_spark(error)) is not None:
        return EpochError.spark_gone(str(lost))
    if isinstance(error, MidstreamError):
        return error
    text = _OF_THE_JVM.sub("", str(error).partition(_PLAN)[0]).strip()
    # Of a chain of errors the last is the one that was raised; the others are its causes.
    told = list(_TOLD.finditer(text))[-1:]
    if told:
        kind = getattr(errors, told[0]["kind"], MidstreamError)
        found: MidstreamError = kind(told[0]["name"], told[0]["message"].strip(), hint=told[0]["hint"])
        return found
    if missing := _NOT_THERE.search(text):
        return EpochError.not_on_executors(missing[1])
    if isinstance(error, StreamingQueryException):
        return _error_of_log(text, ledger) or EpochError.failed(text)
    if isinstance(error, PySparkException):
        return EpochError.failed(text)
    if isinstance(error, ConnectionError):
        return EpochError.spark_gone(text)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return EpochError.failed(f"{type(error).__name__}: {text}{where}")


def lost_spark(error: BaseException) -> BaseException | None:
    """What a call into a JVM that is gone has raised, also behind an error that blames whoever made the call."""
    cause: BaseException | None = error
    while cause is not None and not _is_of_connection(cause):
        cause = cause.__cause__
    return cause


def _is_of_connection(error: BaseException) -> bool:
    """Whether it was the connection to the JVM that failed: Py4J tells so, unless it was about to connect anew, and
    PySpark reads results from sockets of its own."""
    if isinstance(error, Py4JNetworkError):
        return True
    if isinstance(error, PySparkException):
        return error.getCondition() == "CANNOT_OPEN_SOCKET"
    if not isinstance(error, OSError | EOFError):
        return False
    frames = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    callers = [file for file in frames if file != Path(socket.__file__)]
    return bool(callers) and any(callers[-1].is_relative_to(package) for package in _TALKS_TO_JVM)


def step_error(step: Step, cause: Exception) -> GraphError:
    """The error for a step whose DataFrame could not be made, naming the line in the user's own file."""
    if isinstance(cause, PySparkException):
        return GraphError.step_failed(step.id, str(cause).strip().partition("\n")[0])
    if isinstance(cause, Py4JJavaError):  # what PySpark has no exception of its own for, such as an unknown format
        return GraphError.step_failed(step.id, str(cause.java_exception).partition("\n")[0])
    function = getattr(step, "function", None) or getattr(step, "load", None)
    where = f" (at {raised_at(cause, function)})" if function else ""
    return GraphError.step_failed(step.id, f"{type(cause).__name__}: {cause}{where}")


def _error_of_log(text: str, ledger: Ledger) -> MidstreamError | None:
    """What stopped Spark itself between two epochs: mostly that it could not write its log."""
    if any(mark in text for mark in _CONCURRENT):
        last = ledger.last()
        other = ledger.holder() if ledger.holder() != ledger.driver else last.driver
        return CheckpointError.taken_over(ledger.driver, other, last.epoch)
    if full := _FULL.search(text):
        return StoreError.disk_full(ledger.store.url, full[0])
    if forbidden := _FORBIDDEN.search(text):
        return StoreError.not_writable(ledger.store.url, forbidden[0])
    return None
