from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from pyspark.sql import SparkSession

from midstream.control.gate import Limits
from midstream.control.server import ControlServer, ServeOptions
from tests.control.orders import Orders


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    """A pipeline that runs by itself, a few epochs a second."""
    directory = tmp_path_factory.mktemp("orders")
    running = Orders(spark, directory)
    yield running
    running.run.stop()


@pytest.fixture(scope="module")
def server(orders: Orders, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIDSTREAM_HOME", str(tmp_path_factory.mktemp("home")))
        served = ControlServer(orders.run, "orders", ServeOptions(limits=Limits(burst=100_000, per_second=100_000)))
        yield served
        served.stop()


@pytest.fixture(scope="module")
def operator(server: ControlServer) -> Iterator[httpx.Client]:
    with client(server, server.tokens.operator) as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(server: ControlServer) -> Iterator[httpx.Client]:
    with client(server, server.tokens.reader) as opened:
        yield opened


def client(server: ControlServer, token: str | None) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return httpx.Client(base_url=server.url, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    cert, key, ca = directory / "cert.pem", directory / "key.pem", trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    ca.cert_pem.write_to_path(directory / "ca.pem")
    return cert, key
