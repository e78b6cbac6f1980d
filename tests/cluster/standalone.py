"""A small Spark cluster with two hosts: the loopback network has more than one address.

`local-cluster` is not enough: its executors share a host, and Spark never runs two attempts of a task on one host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.recovery.processes import Process, run_command, wait_until
from tests.servers import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2")


@dataclass(frozen=True)
class Host:
    """A machine, as far as Spark can tell: an address, variables of its processes, and the command that enters it."""

    address: str
    variables: Mapping[str, str] = field(default_factory=dict)
    enter: tuple[str, ...] = ()


@dataclass(frozen=True)
class SparkCluster:
    """The master's URL, and the worker of each host."""

    url: str
    workers: Mapping[str, Process]

    def executors_of(self, host: str) -> list[int]:
        """The processes of executors that a host's worker has started."""
        return [pid for pid, command in self.workers[host].members().items() if "\0--executor-id\0" in command]


@contextmanager
def spark_cluster(directory: Path, hosts: Sequence[Host] | None = None) -> Iterator[SparkCluster]:
    """A master and a worker of one core on each host, which caches in `<directory>/cache-<host>` unless told."""
    hosts = hosts or [Host(address, _cache(cache_of(directory, address))) for address in HOSTS]
    master = hosts[0].address
    port, *interfaces = free_ports(2 + len(hosts))
    url = f"spark://{master}:{port}"
    with ExitStack() as stack:

        def start(name: str, host: Host, role: str, *arguments: str) -> Process:
            command = [*host.enter, str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
            own = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": host.address, **host.variables}
            process = run_command([*command, *arguments], directory / f"{name}.log", **{**_SMALL, **own})
            stack.callback(process.kill_all)
            return process

        where = ["--host", master, "--port", str(port), "--webui-port", str(interfaces[0])]
        start("master", hosts[0], "master.Master", *where)
        workers = {}
        for host, interface in zip(hosts, interfaces[1:], strict=True):
            place = ["--work-dir", str(directory / host.address), "--webui-port", str(interface)]
            size = ["--host", host.address, "--cores", "1", "--memory", "1g"]
            workers[host.address] = start(host.address, host, "worker.Worker", *size, *place, url)
        wait_until(lambda: all(_is_up(worker) for worker in workers.values()), 300, "the cluster is up")
        yield SparkCluster(url, workers)


def _is_up(worker: Process) -> bool:
    assert worker.alive, worker.tail()
    return "registered with master" in worker.log.read_text()


def cache_of(directory: Path, host: str) -> Path:
    """Where executors on a host keep copies of state."""
    return directory / f"cache-{host}"


def _cache(directory: Path) -> dict[str, str]:
    return {"MIDSTREAM_CACHE_DIR": str(directory)}


_SMALL = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "SPARK_NO_DAEMONIZE": "1",
}
