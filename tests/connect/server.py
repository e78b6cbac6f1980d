"""A server of Spark Connect in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.standalone import SPARK_HOME
from tests.conftest import QUICK_JAVA
from tests.recovery.processes import run_command, wait_until
from tests.servers import free_ports


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Its address, while it runs on this machine."""
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.host": "127.0.0.1",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    variables = {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOG_DIR": str(directory),
        "SPARK_PID_DIR": str(directory),
        "SPARK_SUBMIT_OPTS": QUICK_JAVA,
    }
    command = [str(SPARK_HOME / "sbin" / "start-connect-server.sh"), "--wait", "--master", "local[2]", *options]
    process = run_command(["bash", *command], directory / "server.log", **variables)

    def is_up() -> bool:
        assert process.alive, process.tail()
        return "Spark Connect server started" in process.log.read_text()

    try:
        wait_until(is_up, 120, "the server of Spark Connect is up")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill_all()
