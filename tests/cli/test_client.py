"""What servers answer, and the exit codes it stands for."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from midstream.cli.exits import Exit
from tests.cli import answers
from tests.cli.conftest import Command, write_run_file
from tests.cli.fakeserver import TOKEN, Answer, FakeServer, problem, serving

RESCALE = ("apply", "orders", "rescale", "totals", "8")


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        (
            problem(422, "UNKNOWN_STEP", "No step 'totals'.", hint="did you mean 'total'?"),
            Exit.REJECTED,
            "did you mean",
        ),
        (problem(409, "NOT_CHANGEABLE", "It cannot be changed."), Exit.REJECTED, "[NOT_CHANGEABLE]"),
        (problem(401, "BAD_TOKEN", "The token is wrong."), Exit.NOT_ALLOWED, "--token-file"),
        (problem(403, "NOT_ALLOWED", "Not for readers."), Exit.NOT_ALLOWED, "operator's token"),
        (problem(404, "UNKNOWN_PIPELINE", "No pipeline 'orders'."), Exit.UNREACHABLE, "[UNKNOWN_PIPELINE]"),
        (problem(409, "RUN_ENDED", "It has stopped."), Exit.UNREACHABLE, "[RUN_ENDED]"),
        (problem(413, "BODY_TOO_LARGE", "At most 1 MB."), Exit.ERROR, "[BODY_TOO_LARGE]"),
        (problem(500, "INTERNAL", "Oh."), Exit.ERROR, "[INTERNAL]"),
        (Answer(b"<html>", 502, kind="text/html"), Exit.UNREACHABLE, "[STRANGE_ANSWER]"),
        (Answer(b"<html>", 202, kind="text/html"), Exit.ERROR, "[STRANGE_ANSWER]"),
        (Answer({"id": 1}, 202), Exit.ERROR, "[STRANGE_ANSWER]"),
    ],
)
def test_refusals_have_exit_codes(
    answer: Answer, code: Exit, told: str, midstream: Command, server: FakeServer
) -> None:
    server.lay("POST", "/changes", answer)

    done = midstream(*RESCALE)

    assert done.code == code
    assert told in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("phase", "code"),
    [
        ("applied", Exit.OK),
        ("rejected", Exit.REJECTED),
        ("cancelled", Exit.REJECTED),
        ("rolled_back", Exit.ROLLED_BACK),
        ("undone", Exit.ROLLED_BACK),
    ],
)
def test_what_becomes_of_a_change_has_exit_codes(
    phase: str, code: Exit, midstream: Command, server: FakeServer
) -> None:
    server.lay("POST", "/changes", Answer(answers.change("proposed"), 202))
    ended = Answer(answers.change(phase, reason=None if phase == "applied" else "it was bad", sources=[]))
    server.lay("GET", "/changes/3", Answer(answers.change("waiting", sources=[])), ended)

    done = midstream(*RESCALE)

    assert done.code == code
    if phase == "applied":
        told = "change 3 applied in epoch 42 (plan 2): submit 250 ms, wait 500 ms, perform 1.5 s, total 2.2 s"
        assert done.out.strip() == told
    else:
        assert "it was bad" in done.err


def test_a_change_that_takes_longer_is_left_alone(midstream: Command, server: FakeServer) -> None:
    server.lay("POST", "/changes", Answer(answers.change("proposed"), 202))
    server.lay("GET", "/changes/3", Answer(answers.change("waiting", sources=[])))

    done = midstream(*RESCALE, "--timeout", "0.3")

    assert done.code == Exit.UNDER_WAY
    assert "Change 3 is still waiting after 0.3 s" in done.err
    assert "midstream cancel orders 3" in done.err


def test_detached_it_is_only_handed_in(midstream: Command, server: FakeServer) -> None:
    server.lay("POST", "/changes", Answer(answers.change("proposed"), 202))

    done = midstream(*RESCALE, "--detach")

    assert done.code == 0
    assert done.out.strip() == "change 3 is proposed"
    assert len(server.asked) == 1


def test_json_is_what_the_server_said_last_and_nothing_else(midstream: Command, server: FakeServer) -> None:
    ended = answers.change(sources=[])
    server.lay("POST", "/changes", Answer(answers.change("proposed"), 202))
    server.lay("GET", "/changes/3", Answer(ended))

    done = midstream(*RESCALE, "-o", "json")

    assert done.json == ended


def test_a_server_that_is_gone_is_named(midstream: Command, server: FakeServer, home: Path) -> None:
    done = midstream("status", "orders", "--server", "http://127.0.0.1:9", "--token", "t")

    assert done.code == Exit.UNREACHABLE
    assert "No connection to http://127.0.0.1:9" in done.err
    assert "midstream ls" in done.err


def test_a_certificate_is_checked(midstream: Command, home: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with serving(context) as server:
        server.lay("GET", "", Answer(answers.pipeline()))
        said = ("--server", server.url, "--token", TOKEN)
        unknown = midstream("status", "orders", *said)
        known = midstream("status", "orders", *said, "--cafile", str(tmp_path / "ca.pem"))
        write_run_file(home, "orders", server.url, cafile=str(tmp_path / "ca.pem"))
        by_name = midstream("status", "orders")

    assert unknown.code == Exit.UNREACHABLE
    assert "--cafile" in unknown.err
    assert (known.code, by_name.code) == (Exit.OK, Exit.OK)
    assert midstream("status", "orders", *said, "--cafile", str(tmp_path / "none.pem")).code == Exit.USAGE


def test_too_many_requests_are_sent_again(midstream: Command, server: FakeServer) -> None:
    busy = problem(429, "TOO_MANY_REQUESTS", "Too many.")
    server.lay("GET", "", Answer(busy.body, 429, {"Retry-After": "0.1"}), Answer(answers.pipeline()))

    assert midstream("status", "orders").code == 0
    assert len(server.asked) == 2


def test_who_asks_is_said(midstream: Command, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    server.lay("GET", "", Answer(answers.pipeline()))

    midstream("status", "orders")

    assert server.asked[0].headers["x-midstream-user"] == "ann"


def test_status(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "", Answer(answers.pipeline(modification=answers.change("waiting"))))

    done = midstream("status", "orders")

    for told in ("running", "12,346", "210 ms, 480 ms", "1,000 rows, 52.0 kB", "3 rescale totals to 8: waiting"):
        assert told in done.out


def test_status_can_tell_the_page(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "", Answer(answers.pipeline()))

    assert midstream("status", "orders", "--page").out.strip() == f"{server.url}/#token=the-operators-token"


def test_history(midstream: Command, server: FakeServer) -> None:
    text = {"function": "clean", "file": "fixes.py", "line": 1, "sha256": "ab12", "text": "def clean(): ..."}
    changes = [
        answers.change(id=1, sources=[text]),
        answers.change("rejected", id=2, reason="it was [bad]", sources=[]),
    ]
    server.lay("GET", "/history", Answer(changes))

    plain = midstream("history", "orders")
    with_code = midstream("history", "orders", "--code")

    assert "it was [bad]" in plain.out
    assert "def clean" not in plain.out
    assert "sha256 ab12" in with_code.out
    assert "def clean(): ..." in with_code.out
    assert midstream("history", "orders", "-o", "json").json == changes


def test_undo_names_a_change_or_the_last(midstream: Command, server: FakeServer) -> None:
    server.lay("POST", "/undo", Answer(answers.change(), 202))

    assert midstream("undo", "orders").code == 0
    assert midstream("undo", "orders", "3", "--allow-state-loss", "--id", "u1").code == 0

    assert server.sent("POST") == [{}, {"modification": 3, "allow_state_loss": True, "id": "u1"}]


def test_cancel(midstream: Command, server: FakeServer) -> None:
    server.lay("DELETE", "/changes/3", Answer(answers.change("cancelled")), Answer(answers.change("applied")))

    assert midstream("cancel", "orders", "3").code == Exit.OK
    late = midstream("cancel", "orders", "3")

    assert late.code == Exit.ERROR
    assert "midstream undo orders 3" in late.err


def test_a_shadow_is_followed_for_some_epochs(midstream: Command, server: FakeServer) -> None:
    server.lay("POST", "/shadows", Answer(answers.shadow(), 201))
    server.lay("GET", "/shadows/s1", Answer(answers.shadow(1)), Answer(answers.shadow(2)))

    done = midstream("shadow", "orders", "--epochs", "2", "remove", "eu")

    assert done.code == 0, done.err
    assert "2 epochs compared" in done.out
    assert "a  →  b" in done.out
    assert "midstream promote orders" in done.err


def test_a_shadow_that_fails_is_told(midstream: Command, server: FakeServer) -> None:
    server.lay("POST", "/shadows", Answer(answers.shadow(), 201))
    server.lay("GET", "/shadows/s1", Answer(answers.shadow(1, "division by zero")))

    done = midstream("shadow", "orders", "remove", "eu", "--epochs", "2")

    assert done.code == Exit.ERROR
    assert "division by zero" in done.err


def test_the_shadow_is_shown_promoted_and_discarded(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "/shadows", Answer([answers.shadow(4)]))
    server.lay("POST", "/shadows/s1/promote", Answer(answers.change(), 202))
    server.lay("DELETE", "/shadows/s1", Answer(None, 204))

    assert "4 epochs compared" in midstream("shadow", "orders").out
    assert midstream("shadow", "orders", "--status", "-o", "json").json == [answers.shadow(4)]
    assert midstream("promote", "orders").code == 0
    assert midstream("shadow", "orders", "--discard").code == 0
    assert [asked.method for asked in server.asked] == ["GET", "GET", "GET", "POST", "GET", "DELETE"]


def test_without_a_shadow_there_is_none_to_promote(midstream: Command, server: FakeServer) -> None:
    server.lay("GET", "/shadows", Answer([]))

    assert "no shadow" in midstream("shadow", "orders").out
    assert midstream("promote", "orders").code == Exit.ERROR


def test_stop_waits_until_it_is_over(midstream: Command, server: FakeServer, home: Path) -> None:
    def over(_: object) -> Answer:
        (home / "runs" / "orders.json").unlink()
        return Answer(answers.pipeline(status="stopped"))

    server.lay("POST", "/stop", Answer(None, 202))
    server.lay("GET", "", Answer(answers.pipeline()), over)

    done = midstream("stop", "orders")

    assert done.code == 0
    assert "has stopped" in done.out


def test_a_stop_that_takes_longer_goes_on(midstream: Command, server: FakeServer) -> None:
    server.lay("POST", "/stop", Answer(None, 202))
    server.lay("GET", "", Answer(answers.pipeline()))

    assert midstream("stop", "orders", "--timeout", "0.3").code == Exit.UNDER_WAY
    assert midstream("stop", "orders", "--detach").code == Exit.OK


def test_state(midstream: Command, server: FakeServer, tmp_path: Path) -> None:
    tables = {
        "epochs": [3, 9],
        "tables": [{"step": "totals", "table": "t", "keys": ["c"], "columns": ["c", "n"], "rows": 5, "bytes": 1234}],
    }
    rows = {
        "step": "totals",
        "table": "t",
        "epoch": 9,
        "columns": ["c", "n"],
        "keys": ["c"],
        "rows": [["ann", 2], [None, 3]],
        "matched": 5,
        "offset": 0,
        "complete": False,
    }
    server.lay("GET", "/state", Answer(tables))
    server.lay("GET", "/state/totals", Answer(rows))
    server.lay("GET", "/state/totals/export", Answer(b"PAR1 and so on", kind="application/vnd.apache.parquet"))

    assert "epochs 3 to 9 can be read" in midstream("state", "orders").out
    shown = midstream("state", "orders", "totals", "--where", "c=ann", "--where", "n=2", "--epoch", "4").out
    assert "null" in shown
    assert "2 of 5 rows of totals, table t, epoch 9" in shown
    assert midstream("state", "orders", "totals", "--count").out.strip() == "5"
    assert midstream("state", "orders", "totals", "-o", "json").json == rows
    file = tmp_path / "totals.parquet"
    assert midstream("state", "orders", "totals", "--export", str(file)).code == 0

    assert file.read_bytes() == b"PAR1 and so on"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["totals.parquet"]
    queries = [asked.query for asked in server.asked]
    assert queries[1] == {"where": ["c=ann", "n=2"], "epoch": ["4"], "limit": ["100"], "offset": ["0"]}
    assert queries[2] == {"limit": ["0"], "offset": ["0"]}
