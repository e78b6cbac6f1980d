"""What executors need: midstream where their Python finds it, or as a wheel sent along, as the page is run here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cluster.standalone import HOSTS, Host, spark_cluster
from tests.recovery.processes import REPOSITORY, run_module
from tests.servers import S3Server, s3_server

BARE = """#!/bin/sh
# All packages that are installed, but not those that only a .pth file names, such as midstream as `make setup` has it.
PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@"
"""


@dataclass(frozen=True)
class Site:
    """A cluster whose Python knows nothing of midstream, and a store."""

    master: str
    python: Path
    server: S3Server

    def run_page(self, directory: Path, *submit: str) -> dict[str, Any]:
        """What came of the page's example, submitted with these options."""
        checkpoint = self.server.url(directory.name)
        arguments = [str(directory), self.master, checkpoint, json.dumps(self.server.options)]
        process = run_module(
            "tests.cluster.page",
            *arguments,
            log=directory / "driver.log",
            PYSPARK_PYTHON=str(self.python),
            PYSPARK_SUBMIT_ARGS=" ".join([*submit, "pyspark-shell"]),
        )
        assert process.wait(240) == 0, process.tail()
        result: dict[str, Any] = json.loads((directory / "result.json").read_text())
        return result


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("site")
    python = root / "python"
    python.write_text(BARE.format(packages=Path(pa.__file__).parents[1], python=sys.executable))
    python.chmod(0o755)
    hosts = [Host(address, {"PYTHONPATH": ""}) for address in HOSTS]
    with s3_server() as server, spark_cluster(root, hosts) as cluster:
        yield Site(cluster.url, python, server)


def test_the_page_on_clusters_runs_with_a_wheel_sent_along(tmp_path: Path, site: Site) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    result = site.run_page(tmp_path, "--py-files", str(wheel.rename(tmp_path / "midstream.zip")))
    assert "error" not in result, result
    home, away = result["executors"]
    assert result["phases"] == ["applied", "applied", "applied", "undone", "applied"]
    assert set(result["drained"]["totals"]) == {home}
    assert set(result["placement"]["totals"]) == {home, away}
    assert result["totals"] == result["orders"]
    assert list((tmp_path / "cache").rglob("*.seg/*")), "copies lie where the page says"


@pytest.mark.long
def test_executors_without_midstream_are_told_of(tmp_path: Path, site: Site) -> None:
    error, message = site.run_page(tmp_path)["error"]
    assert error == "NOT_ON_EXECUTORS"
    assert "no module 'midstream'" in message
    assert "spark.submit.pyFiles" in message
