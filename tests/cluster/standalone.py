"""A small Spark cluster with two hosts: the loopback network has more than one address.

`local-cluster` is not enough: its executors share a host, and Spark never runs two attempts of a task on one host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.recovery.processes import Process, run_command, wait_until
from tests.servers import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2")


@contextmanager
def spark_cluster(directory: Path) -> Iterator[str]:
    """A master and a worker of one core on each host, which caches in `<directory>/cache-<host>`; the master's URL."""
    port, *interfaces = free_ports(4)
    url = f"spark://{HOSTS[0]}:{port}"
    with ExitStack() as stack:

        def start(name: str, role: str, *arguments: str) -> Process:
            command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
            own = {"SPARK_HOME": str(SPARK_HOME), "MIDSTREAM_CACHE_DIR": str(cache_of(directory, name))}
            process = run_command(command, directory / f"{name}.log", **own, **_SMALL)
            stack.callback(process.kill_all)
            return process

        start("master", "master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", str(interfaces[0]))
        for host, interface in zip(HOSTS, interfaces[1:], strict=True):
            place = ["--work-dir", str(directory / host), "--webui-port", str(interface)]
            start(host, "worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", *place, url)
        logs = [directory / f"{host}.log" for host in HOSTS]
        wait_until(lambda: all("registered with master" in log.read_text() for log in logs), 300, "the cluster is up")
        yield url


def cache_of(directory: Path, host: str) -> Path:
    """Where executors on a host keep copies of state."""
    return directory / f"cache-{host}"


_SMALL = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "SPARK_NO_DAEMONIZE": "1",
}
