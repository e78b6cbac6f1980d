"""The live view, from events of a real stream."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from midstream.cli.events import Event
from midstream.cli.exits import Exit
from midstream.cli.live import View
from midstream.control.models import Graph
from tests.cli import answers
from tests.cli.conftest import Command
from tests.cli.fakeserver import Answer, FakeServer, problem


def stream(*events: tuple[str, Any]) -> Answer:
    text = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in events)
    return Answer(f": hello\n\n{text}".encode(), kind="text/event-stream")


def test_without_a_terminal_there_is_a_line_an_epoch(midstream: Command, server: FakeServer) -> None:
    server.lay(
        "GET",
        "/events",
        stream(
            ("hello", answers.pipeline()),
            ("epoch", answers.epoch(1)),
            ("change", answers.change("waiting")),
            ("news", {"of": "a later version"}),
            ("epoch", answers.epoch(2)),
            ("epoch", answers.epoch(3)),
        ),
    )

    done = midstream("watch", "orders", "--epochs", "2")

    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "epoch 1: 100 rows in 201 ms, – rows/s, state 1,000 rows, 52.0 kB, plan 2",
        "epoch 2: 100 rows in 202 ms, 100 rows/s, state 1,000 rows, 52.0 kB, plan 2, change 3 waiting",
    ]


def test_a_lost_connection_is_made_again_and_no_epoch_told_twice(midstream: Command, server: FakeServer) -> None:
    hello = ("hello", answers.pipeline())
    first = stream(hello, ("epoch", answers.epoch(1)), ("epoch", answers.epoch(2)))
    second = stream(hello, ("epoch", answers.epoch(2)), ("epoch", answers.epoch(3)))
    server.lay("GET", "/events", first, Answer(b"", 503), second)

    done = midstream("watch", "orders", "--epochs", "3", "-o", "json")

    assert [json.loads(line)["epoch"] for line in done.out.splitlines()] == [1, 2, 3]


def test_it_ends_with_the_pipeline(midstream: Command, server: FakeServer) -> None:
    hello = ("hello", answers.pipeline())
    server.lay("GET", "/events", stream(hello, ("status", {"status": "stopped", "failure": None})))
    stopped = midstream("watch", "orders")
    server.lay("GET", "/events", stream(hello, ("status", {"status": "failed", "failure": "[DISK_FULL] no room"})))
    failed = midstream("watch", "orders")

    assert stopped.code == Exit.OK
    assert "'orders' has stopped" in stopped.err
    assert failed.code == Exit.ERROR
    assert "[DISK_FULL] no room" in failed.err


def test_what_is_refused_is_not_tried_again(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "/events", problem(403, "NOT_ALLOWED", "No."))

    assert midstream("watch", "orders").code == Exit.NOT_ALLOWED
    assert len(server.asked) == 1


def shown(view: View) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(view)
    return console.export_text()


def test_the_view_shows_epochs_steps_and_the_change() -> None:
    view = View("orders")
    assert "connecting" in shown(view)
    view.take(Event("hello", json.dumps(answers.pipeline())))
    view.graph = Graph.model_validate(
        answers.graph(answers.step("clean", []), answers.step("totals", ["clean"], kind="aggregate"))
    )
    for number in range(1, 12):
        assert view.take(Event("epoch", json.dumps(answers.epoch(number))))
    times = {"proposed": 10.0, "validated": 10.5, "preparing": 11.0, "waiting": 12.0}
    view.take(Event("change", json.dumps(answers.change("waiting", times=times))))
    text = shown(view)

    assert "█" in text
    assert "clean" in text
    assert "aggregate" in text
    assert "change 3: rescale totals to 8" in text
    assert "proposed 500 ms → validated 500 ms → preparing 1.0 s → waiting" in text
    view.take(Event("change", json.dumps(answers.change("rolled_back", reason="too slow", times=times))))
    assert "rolled back" in shown(view)
    assert "too slow" in shown(view)
    view.lost = True
    assert "connection lost" in shown(view)
