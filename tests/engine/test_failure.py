"""Whose fault it was: a JVM that is gone is told as that, whoever happened to be calling it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JNetworkError
from pyspark.serializers import read_int
from pyspark.util import local_connect_and_auth

from midstream.engine.failure import as_midstream_error, lost_spark
from midstream.errors import SinkError
from midstream.state.ledger import Ledger
from midstream.state.store import open_store


def blamed(cause: Exception) -> SinkError:
    error = SinkError.function_failed("calls", "write (orders.py:1)", 3, cause)
    error.__cause__ = cause
    return error


def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def connects_anew() -> None:
    JavaGateway(gateway_parameters=GatewayParameters(port=unused_port())).jvm.System.nanoTime()


def connects_anew_as_pyspark_does() -> None:
    client = ClientServer(
        JavaParameters(port=unused_port(), daemonize_memory_management=True),
        PythonParameters(port=0, daemonize=True, daemonize_connections=True),
    )
    try:
        client.jvm.System.nanoTime()
    finally:
        client.shutdown_callback_server()


def fetches_a_result() -> None:
    local_connect_and_auth(unused_port(), "secret")


def reads_a_result_that_ends() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, ours.makefile("rb") as stream:
        read_int(stream)


@pytest.mark.parametrize(
    "call", [connects_anew, connects_anew_as_pyspark_does, fetches_a_result, reads_a_result_that_ends]
)
def test_whatever_it_was_calling_it_for(call: Callable[[], None], tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r".*") as raised:
        call()
    error = as_midstream_error(blamed(raised.value), Ledger.open(open_store(str(tmp_path))))
    assert error.error_class == "SPARK_GONE"


def test_a_function_that_was_calling_a_dead_jvm_is_not_to_blame(tmp_path: Path) -> None:
    ledger = Ledger.open(open_store(str(tmp_path)))
    error = as_midstream_error(blamed(Py4JNetworkError("Answer from Java side is empty")), ledger)
    assert error.error_class == "SPARK_GONE"
    assert "Answer from Java side is empty" in error.message


def test_a_function_that_cannot_reach_a_service_of_its_own_is(tmp_path: Path) -> None:
    ledger = Ledger.open(open_store(str(tmp_path)))
    with pytest.raises(ConnectionRefusedError) as raised:
        socket.create_connection(("127.0.0.1", unused_port()))
    for cause in (raised.value, ConnectionError("the service is down")):
        error = blamed(cause)
        assert as_midstream_error(error, ledger) is error
        assert lost_spark(error) is None
