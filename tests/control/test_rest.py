"""Watching and changing a pipeline over REST."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from midstream.control.server import ControlServer
from tests.control.orders import KEYS, Orders

ORDERS = "/v1/pipelines/orders"
DOUBLE = "def clean(rows):\n    return rows.selectExpr('value % 10 AS key', '2 AS v')\n"


def ended(operator: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """The modification a request has handed in, once it has ended."""
    assert answer.status_code == 202, answer.text
    deadline = time.monotonic() + 60
    while True:
        found: dict[str, Any] = operator.get(answer.headers["location"]).json()
        if not found["under_way"]:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def change(*changes: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"changes": list(changes), **options}


def undo(operator: httpx.Client) -> dict[str, Any]:
    return ended(operator, operator.post(f"{ORDERS}/undo", json={}))


def test_a_pipeline_is_told_of(reader: httpx.Client, orders: Orders) -> None:
    (summary,) = reader.get("/v1/pipelines").json()
    told = reader.get(ORDERS).json()

    assert summary["name"] == "orders"
    assert told["status"] == "running"
    assert told["role"] == "reader"
    assert told["epoch"] >= 2
    assert told["rows_per_second"] > 0
    assert told["checkpoint"] == orders.run.store.url


def test_the_graph_has_texts_and_figures(reader: httpx.Client) -> None:
    steps = {step["id"]: step for step in reader.get(f"{ORDERS}/graph").json()["steps"]}

    assert list(steps) == ["numbers", "clean", "totals", "out"]
    assert "SELECT value" in steps["clean"]["sql"]
    assert steps["totals"]["keys"] == ["key"]
    assert steps["totals"]["aggregates"]["total"] == "sum(v)"
    assert steps["totals"]["state_rows"] == KEYS
    assert steps["totals"]["rows_per_second"] > 0
    assert steps["clean"]["rows_per_second"] == steps["totals"]["rows_per_second"]
    assert steps["totals"]["epoch_ms"] > 0
    assert reader.get(f"{ORDERS}/steps/clean").json()["id"] == "clean"
    assert reader.get(f"{ORDERS}/steps/claen").json()["error_code"] == "UNKNOWN_STEP"


def test_epochs_come_oldest_first(reader: httpx.Client) -> None:
    epochs = reader.get(f"{ORDERS}/epochs", params={"last": 3}).json()

    assert len(epochs) == 3
    assert [e["epoch"] for e in epochs] == sorted(e["epoch"] for e in epochs)
    assert epochs[-1]["steps"]["totals"]["rows"] == epochs[-1]["rows"] > 0


def test_a_plan_touches_nothing(operator: httpx.Client) -> None:
    before = operator.get(f"{ORDERS}/graph").json()["plan"]
    verdict = operator.post(f"{ORDERS}/plan", json=change({"kind": "rescale", "step": "totals", "to": 4})).json()

    assert {s["id"]: s["edit"] for s in verdict["steps"]}["totals"] == "rescaled"
    assert verdict["losses"] == []
    assert operator.get(f"{ORDERS}/graph").json()["plan"] == before


def test_sql_is_replaced_and_taken_back(operator: httpx.Client, orders: Orders) -> None:
    sql = "SELECT value % 10 AS key, 1 AS v FROM input WHERE value % 10 < 5"
    done = ended(
        operator, operator.post(f"{ORDERS}/changes", json=change({"kind": "replace", "step": "clean", "sql": sql}))
    )

    assert done["phase"] == "applied"
    assert done["by"] == "operator"
    orders.until(lambda: orders.run.last_epoch > done["epoch"])
    assert {row["key"] for row in orders.latest()} == set(range(5))
    assert operator.get(f"{ORDERS}/steps/clean").json()["sql"] == sql

    undone = undo(operator)
    assert undone["undoes"] == done["id"]
    orders.until(lambda: orders.run.last_epoch > undone["epoch"])
    assert {row["key"] for row in orders.latest()} == set(range(10))


def test_code_is_sent_run_and_recorded(operator: httpx.Client, orders: Orders) -> None:
    code = {"file": "../../fixes.py", "text": DOUBLE, "name": "clean"}
    sent = change({"kind": "replace", "step": "clean", "code": code})
    answer = operator.post(f"{ORDERS}/changes", json=sent, headers={"X-Midstream-User": "ada"})
    done = ended(operator, answer)

    assert done["phase"] == "applied", done
    assert done["by"] == "operator: ada"
    (source,) = done["sources"]
    assert source["file"] == "fixes.py"
    assert source["text"] == DOUBLE
    assert len(source["sha256"]) == 64
    kept = [json.loads(orders.run.store.read(item.path).to_pybytes()) for item in orders.run.store.list("code/")]
    assert any(k["sha256"] == source["sha256"] and k["by"] == "operator: ada" for k in kept)
    undo(operator)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ({"text": "def clean(:", "name": "clean"}, "CODE_NOT_LOADED"),
        ({"text": "raise SystemExit(3)", "name": "clean"}, "CODE_NOT_LOADED"),
        ({"text": "def claen(rows): return rows", "name": "clean"}, "NOT_IN_FILE"),
        ({"text": "clean = 3", "name": "clean"}, "WRONG_CODE"),
    ],
)
def test_bad_code_is_refused_with_the_reason(operator: httpx.Client, code: dict[str, str], expected: str) -> None:
    body = change({"kind": "replace", "step": "clean", "code": {"file": "fixes.py", **code}})
    answer = operator.post(f"{ORDERS}/plan", json=body)

    assert answer.status_code == 400, answer.text
    assert answer.json()["error_code"] == expected


def test_a_change_that_does_not_fit_is_rejected(operator: httpx.Client) -> None:
    body = change({"kind": "replace", "step": "clean", "sql": "SELECT nothing FROM input"})

    assert operator.post(f"{ORDERS}/plan", json=body).status_code == 422
    done = ended(operator, operator.post(f"{ORDERS}/changes", json=body))
    assert done["phase"] == "rejected"
    assert "nothing" in done["reason"]


def test_an_id_of_the_client_makes_handing_in_again_harmless(operator: httpx.Client) -> None:
    body = change({"kind": "tune", "arrow_batch_rows": 5000}, id="once-1")
    first = operator.post(f"{ORDERS}/changes", json=body).json()
    again = operator.post(f"{ORDERS}/changes", json=body).json()

    assert first["id"] == again["id"]
    assert first["client_id"] == "once-1"
    taken_back = [operator.post(f"{ORDERS}/undo", json={"modification": first["id"], "id": "back-1"}) for _ in range(2)]
    assert len({answer.json()["id"] for answer in taken_back}) == 1
    ended(operator, taken_back[0])


def test_a_set_of_changes_is_one(operator: httpx.Client) -> None:
    body = change(
        {"kind": "insert", "step": "few", "sql": "SELECT * FROM input", "between": ["clean", "totals"]},
        {"kind": "rescale", "step": "totals", "to": 3},
    )
    done = ended(operator, operator.post(f"{ORDERS}/changes", json=body))

    assert done["phase"] == "applied", done
    graph = {s["id"]: s for s in operator.get(f"{ORDERS}/graph").json()["steps"]}
    assert graph["totals"]["inputs"] == ["few"]
    assert graph["totals"]["partitions"] == 3
    undo(operator)


def test_a_shadow_is_compared_and_promoted(operator: httpx.Client, orders: Orders) -> None:
    body = change({"kind": "replace", "step": "clean", "sql": "SELECT value % 10 AS key, 3 AS v FROM input"})
    shadow = operator.post(f"{ORDERS}/shadows", json=body)
    assert shadow.status_code == 201, shadow.text
    name = shadow.json()["name"]

    def compared() -> dict[str, Any]:
        found: dict[str, Any] = operator.get(f"{ORDERS}/shadows/{name}").json()
        return found if found["epochs"] >= 1 else {}

    orders.until(compared)
    assert compared()["outputs"]["out"]["changed"] > 0
    assert operator.post(f"{ORDERS}/shadows", json=body).json()["error_code"] == "SHADOW_RUNS"
    promoted = operator.post(f"{ORDERS}/shadows/{name}/promote")
    assert promoted.status_code == 202
    orders.until(lambda: not operator.get(f"{ORDERS}/changes/{promoted.json()['id']}").json()["under_way"])
    assert operator.get(f"{ORDERS}/changes/{promoted.json()['id']}").json()["phase"] == "applied"
    assert operator.get(f"{ORDERS}/shadows").json() == []
    undo(operator)


def test_a_shadow_is_discarded(operator: httpx.Client) -> None:
    body = change({"kind": "rescale", "step": "totals", "to": 5})
    name = operator.post(f"{ORDERS}/shadows", json=body).json()["name"]

    assert operator.delete(f"{ORDERS}/shadows/{name}").status_code == 204
    assert operator.delete(f"{ORDERS}/shadows/{name}").status_code == 404


def test_state_is_browsed_filtered_and_exported(reader: httpx.Client, orders: Orders) -> None:
    tables = reader.get(f"{ORDERS}/state").json()
    epoch = tables["epochs"][-1]
    rows = reader.get(f"{ORDERS}/state/totals", params={"epoch": epoch}).json()

    assert [t["step"] for t in tables["tables"]] == ["totals"]
    assert rows["matched"] == KEYS
    assert len(rows["rows"]) == KEYS
    one = reader.get(f"{ORDERS}/state/totals", params={"epoch": epoch, "where": "key=7"}).json()
    assert one["matched"] == 1
    assert one["rows"] == [row for row in rows["rows"] if row[rows["columns"].index("key")] == 7]
    pages = [
        reader.get(f"{ORDERS}/state/totals", params={"epoch": epoch, "limit": 4, "offset": o}).json() for o in (0, 4, 8)
    ]
    assert [len(page["rows"]) for page in pages] == [4, 4, 2]
    assert sorted(row for page in pages for row in page["rows"]) == sorted(rows["rows"])
    exported = reader.get(f"{ORDERS}/state/totals/export", params={"epoch": epoch})
    assert pq.read_table(io.BytesIO(exported.content)).num_rows == KEYS


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("state/nothing", 404, "NO_SUCH_STATE"),
        ("state/totals?epoch=99999999", 404, "NO_SUCH_STATE"),
        ("state/totals?where=key", 400, "BAD_FILTER"),
        ("state/totals?where=key=x", 400, "BAD_FILTER"),
        ("state/totals?where=kye=1", 404, "NO_SUCH_STATE"),
        ("changes/9999", 404, "UNKNOWN_MODIFICATION"),
        ("shadows/none", 404, "UNKNOWN_SHADOW"),
        ("epochs?last=0", 422, "BAD_REQUEST"),
        ("nowhere", 404, "NO_SUCH_PATH"),
    ],
)
def test_what_is_not_there_is_told(reader: httpx.Client, path: str, status: int, code: str) -> None:
    answer = reader.get(f"{ORDERS}/{path}")

    assert (answer.status_code, answer.json()["error_code"]) == (status, code)


def test_an_unknown_pipeline_is_told(reader: httpx.Client) -> None:
    answer = reader.get("/v1/pipelines/ordres")

    assert answer.status_code == 404
    assert answer.json()["details"]["hint"] == "did you mean 'orders'?"


def events(stream: httpx.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in stream.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_events_tell_of_epochs_and_changes(operator: httpx.Client) -> None:
    with operator.stream("GET", f"{ORDERS}/events") as stream:
        told = events(stream)
        assert next(told)[0] == "hello"
        body = change({"kind": "rescale", "step": "totals", "to": 6})
        answer = operator.post(f"{ORDERS}/changes", json=body)
        phases: list[str] = []
        seen: set[str] = set()
        for name, data in told:
            seen.add(name)
            if name == "change":
                phases.append(data["phase"])
            if {"epoch", "graph"} <= seen and "applied" in phases:
                break
    assert phases == ["proposed", "validated", "preparing", "waiting", "applying", "applied"] or phases[-1] == "applied"
    ended(operator, answer)
    undo(operator)


def test_metrics_have_units_and_labels(reader: httpx.Client) -> None:
    text = reader.get("/metrics").text

    assert 'midstream_epochs_total{pipeline="orders"}' in text
    assert 'midstream_epoch_duration_seconds_bucket{le="0.5",pipeline="orders"}' in text
    assert 'midstream_step_state_rows{pipeline="orders",step="totals"} 10.0' in text
    assert 'midstream_status{pipeline="orders",status="running"} 1.0' in text


def test_the_page_is_served_without_a_token_and_nothing_beside_it(server: ControlServer) -> None:
    page = httpx.get(f"{server.url}/")

    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static//etc/passwd"):
        assert httpx.get(f"{server.url}{path}").status_code == 404
