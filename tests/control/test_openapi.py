"""Whatever fits the OpenAPI document is answered, and never with a failure of the server."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from midstream.control.app import create_app
from midstream.control.security import Tokens
from midstream.control.server import ControlServer

DOCUMENT = create_app({}, Tokens()).openapi()
# Events have no end, and stopping the pipeline would end this test; both have tests of their own.
OPERATIONS = [
    found.ok()
    for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()
    if not found.ok().path.endswith(("/events", "/stop"))
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_nothing_makes_the_server_fail(operation: Any, server: ControlServer) -> None:
    headers = {"Authorization": f"Bearer {server.tokens.operator}"}

    @settings(max_examples=12, suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy())
    def fuzz(case: schemathesis.Case) -> None:
        if "name" in case.path_parameters and len(str(case.path_parameters["name"])) % 2:
            case.path_parameters["name"] = "orders"  # mostly nobody's name would be drawn
        answer = case.call(base_url=server.url, headers=headers)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)

    fuzz()


def test_every_error_is_described() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            assert "401" in operation["responses"], (method, path)
            for status, answer in operation["responses"].items():
                if status.startswith("4"):
                    (body,) = answer["content"].values()
                    assert body["schema"]["$ref"].endswith("/Problem"), (method, path, status)
