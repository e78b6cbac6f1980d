"""Servers of a benchmark end with it, also when it is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, time
from pathlib import Path
from midstream.bench.servers import running
from midstream.signals import ended_in_order
with ended_in_order(), running(["sleep", "60"], Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""


def test_a_bench_that_is_told_to_end_leaves_no_server(tmp_path: Path) -> None:
    bench = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True)
    assert bench.stdout is not None
    server = int(bench.stdout.readline())
    bench.send_signal(signal.SIGTERM)
    assert bench.wait(30) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
