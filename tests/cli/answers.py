"""What a server says, for tests to lay down."""

from __future__ import annotations

from typing import Any

STARTED = "2026-01-02T03:04:05Z"


def pipeline(**given: Any) -> dict[str, Any]:
    return {
        "name": "orders",
        "status": "running",
        "plan": 2,
        "epoch": 41,
        "checkpoint": "file:///data/orders",
        "started_at": STARTED,
        "failure": None,
        "changeable": True,
        "trigger": None,
        "spark": "4.1.0",
        "version": "0.1.0",
        "rows_per_second": 12345.6,
        "epoch_p50_ms": 210.4,
        "epoch_p99_ms": 480.0,
        "state_rows": 1000,
        "state_bytes": 52_000,
        "modification": None,
        "role": "operator",
        "page": None,
        **given,
    }


def change(phase: str = "applied", **given: Any) -> dict[str, Any]:
    return {
        "id": 3,
        "text": "rescale totals to 8",
        "phase": phase,
        "under_way": phase in ("proposed", "validated", "preparing", "waiting", "applying"),
        "undoes": None,
        "plan": 2,
        "epoch": 42 if phase == "applied" else None,
        "reason": None,
        "times": {"proposed": 1.0},
        "seconds": {"submit": 0.25, "wait": 0.5, "perform": 1.5, "total": 2.25} if phase == "applied" else {},
        "client_id": None,
        "by": "operator: ann",
        "submitted_at": STARTED,
        "moved": None,
        **given,
    }


def epoch(number: int, **given: Any) -> dict[str, Any]:
    figures = {
        "rows": 100,
        "keys": 10,
        "output_rows": 10,
        "slowest_ms": 12.5,
        "median_ms": 10.0,
        "state_rows": 1000,
        "state_bytes": 52_000,
        "fetched_bytes": 0,
        "late_rows": 0,
        "watermark": None,
    }
    return {
        "epoch": number,
        "started_at": f"2026-01-02T03:04:{number % 60:02d}Z",
        "duration_ms": 200.0 + number,
        "rows": 100,
        "state_rows": 1000,
        "state_bytes": 52_000,
        "written_bytes": 100,
        "plan": 2,
        "phases_ms": {},
        "steps": {"totals": figures},
        **given,
    }


def step(id: str, inputs: list[str], kind: str = "transform", **given: Any) -> dict[str, Any]:
    return {
        "id": id,
        "kind": kind,
        "inputs": inputs,
        "columns": [],
        "keys": [],
        "partitions": None,
        "state_rows": 0,
        "state_bytes": 0,
        **given,
    }


def graph(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"plan": 2, "epoch": 41, "steps": list(steps)}


def verdict() -> dict[str, Any]:
    text = "rescale totals to 8\n    orders [source]\n  ~ totals [aggregate] ← orders  rescaled\nmoves 1 kB"
    return {
        "change": "rescale totals to 8",
        "steps": [],
        "expected_pause_ms": 100.0,
        "moved_bytes": 1000,
        "hand_over": False,
        "losses": [],
        "dry_run": "tried on 5 rows",
        "text": text,
    }


def shadow(epochs: int = 0, error: str | None = None) -> dict[str, Any]:
    difference = {
        "rows_old": 10,
        "rows_new": 9,
        "changed": 2,
        "only_old": 1,
        "only_new": 0,
        "samples": [["a", "b"]],
        "text": "",
    }
    return {
        "name": "s1",
        "change": "replace clean",
        "epochs": epochs,
        "outputs": {"out": difference},
        "state": {},
        "epoch_ms": 200.0,
        "shadow_ms": 190.0,
        "written_bytes": 5000,
        "error": error,
    }
