"""Who gets in, and with what. Every refusal leaves the pipeline as it was."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from midstream.control import runfiles
from midstream.control.gate import Limits, RateLimit
from midstream.control.security import Role, Tls, Tokens, check_address, read_token
from midstream.control.server import ControlServer, ServeOptions
from midstream.errors import ControlError
from tests.control.conftest import client
from tests.control.orders import Orders

ORDERS = "/v1/pipelines/orders"
RESCALE = {"changes": [{"kind": "rescale", "step": "totals", "to": 9}]}

LOOKING = [
    "/v1/pipelines",
    "",
    "/graph",
    "/steps",
    "/epochs",
    "/state",
    "/state/totals",
    "/changes",
    "/history",
    "/events",
]
CHANGING = [
    ("POST", "/plan", RESCALE),
    ("POST", "/changes", RESCALE),
    ("POST", "/undo", {}),
    ("POST", "/shadows", RESCALE),
    ("POST", "/shadows/x/promote", None),
    ("DELETE", "/shadows/x", None),
    ("DELETE", "/changes/1", None),
    ("POST", "/stop", None),
]


@pytest.fixture(autouse=True)
def unchanged(orders: Orders) -> Iterator[None]:
    before = (orders.run.graph().plan, len(orders.run.history()))
    yield
    assert (orders.run.graph().plan, len(orders.run.history())) == before
    assert orders.run.status == "running"


@pytest.mark.parametrize("token", [None, "wrong", "x" * 43])
def test_without_the_token_nothing_is_told(server: ControlServer, token: str | None) -> None:
    with client(server, token) as stranger:
        paths = [path if path.startswith("/v1") else ORDERS + path for path in LOOKING]
        for path in [*paths, "/metrics", "/openapi.json"]:
            answer = stranger.get(path)
            assert answer.status_code == 401, path
            assert set(answer.json()) == {"error_code", "message", "details"}
        for method, path, body in CHANGING:
            assert stranger.request(method, ORDERS + path, json=body).status_code == 401, path


def test_other_ways_to_show_a_token_do_not_count(server: ControlServer) -> None:
    token = server.tokens.operator
    with client(server, None) as stranger:
        assert stranger.get(ORDERS, params={"token": token}).status_code == 401
        assert stranger.get(ORDERS, headers={"Cookie": f"token={token}"}).status_code == 401
        assert stranger.get(ORDERS, headers={"Authorization": f"Basic {token}"}).status_code == 401


def test_a_reader_changes_nothing(reader: httpx.Client) -> None:
    for method, path, body in CHANGING:
        answer = reader.request(method, ORDERS + path, json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (403, "NOT_ALLOWED"), path


def test_requests_of_other_sites_are_refused(server: ControlServer, operator: httpx.Client) -> None:
    for headers in (
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "elsewhere.example"},
    ):
        answer = operator.post(f"{ORDERS}/changes", json=RESCALE, headers=headers)
        assert answer.status_code == 403, headers
    answer = operator.options(
        f"{ORDERS}/changes", headers={"Origin": server.url, "Access-Control-Request-Method": "POST"}
    )
    assert "access-control-allow-origin" not in answer.headers
    assert operator.get(ORDERS, headers={"Origin": server.url}).status_code == 200


def test_a_form_of_another_page_is_no_request(operator: httpx.Client) -> None:
    text = json.dumps(RESCALE)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = operator.post(f"{ORDERS}/changes", content=text, headers={"Content-Type": kind})
        assert answer.status_code == 422, kind


def test_a_body_has_its_limit(operator: httpx.Client) -> None:
    large = json.dumps({**RESCALE, "id": "x" * 1_100_000})

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(large), 65_536):
            yield large[start : start + 65_536].encode()

    kind = {"Content-Type": "application/json"}
    assert operator.post(f"{ORDERS}/changes", content=large, headers=kind).status_code == 413
    assert operator.post(f"{ORDERS}/changes", content=pieces(), headers=kind).status_code == 413


@pytest.mark.parametrize("name", ["..", "../orders", "%2e%2e", "orders%2f..%2f..", "a" * 65, "orders%00", "*"])
def test_names_lead_nowhere(operator: httpx.Client, name: str) -> None:
    assert operator.get(f"/v1/pipelines/{name}/graph").status_code in (404, 422)
    assert operator.get(f"{ORDERS}/state/{name}").status_code in (404, 422, 200 if name == ".." else 404)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65])
def test_a_run_cannot_be_named_like_a_path(name: str) -> None:
    with pytest.raises(ControlError, match="BAD_NAME"):
        runfiles.path_of(name)


def test_too_many_requests_are_held_off() -> None:
    limit = RateLimit(Limits(burst=3, per_second=2))

    assert [limit.allows("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert limit.allows("b", 0.0)
    assert limit.allows("a", 0.6)
    assert not limit.allows("a", 0.7)


def test_a_server_holds_off_too_many(orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSTREAM_HOME", str(tmp_path))
    server = ControlServer(orders.run, "limited", ServeOptions(limits=Limits(burst=5, per_second=0.001)))
    try:
        with client(server, server.tokens.reader) as opened:
            codes = [opened.get("/v1/pipelines").status_code for _ in range(7)]
        assert codes == [200] * 5 + [429] * 2
    finally:
        server.stop()


def test_tokens_differ_and_are_kept_for_their_user_alone(server: ControlServer) -> None:
    tokens = Tokens()
    path = runfiles.path_of("orders")

    assert tokens.operator != tokens.reader != Tokens().reader
    assert tokens.operator not in repr(tokens)
    assert tokens.role(tokens.operator) is Role.OPERATOR
    assert tokens.role(tokens.reader) is Role.READER
    assert tokens.role("ä") is None
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert server.tokens.operator not in repr(runfiles.read(path))


def test_a_token_file_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-that-is-long-enough\n")
    file.chmod(0o644)
    with pytest.raises(ControlError, match="TOKEN_FILE_OPEN"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == "a-token-that-is-long-enough"


def test_a_public_address_needs_tls_or_a_word(certificate: tuple[Path, Path]) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):
        with pytest.raises(ControlError, match="PUBLIC_ADDRESS"):
            check_address(host, None, insecure=False)
    check_address("0.0.0.0", Tls(*certificate), insecure=False)
    check_address("0.0.0.0", None, insecure=True)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        check_address(host, None, insecure=False)


def test_tls_is_spoken(
    orders: Orders, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIDSTREAM_HOME", str(tmp_path))
    server = ControlServer(orders.run, "secure", ServeOptions(tls=Tls(*certificate)))
    try:
        assert server.url.startswith("https://")
        headers = {"Authorization": f"Bearer {server.tokens.reader}"}
        trusted = ssl.create_default_context(cafile=str(certificate[0].with_name("ca.pem")))
        assert httpx.get(f"{server.url}/v1/pipelines", headers=headers, verify=trusted).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/v1/pipelines", headers=headers)
    finally:
        server.stop()


def test_a_taken_port_is_told(orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSTREAM_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ControlError, match="ADDRESS_TAKEN"):
        ControlServer(orders.run, "other", ServeOptions(port=taken.getsockname()[1]))


def test_who_can_write_cannot_name_a_file_to_be_written(operator: httpx.Client, tmp_path: Path) -> None:
    target = tmp_path / "evil.py"
    code = {"file": str(target), "text": "clean = 1", "name": "clean"}
    body = {"changes": [{"kind": "replace", "step": "clean", "code": code}]}

    assert operator.post(f"{ORDERS}/plan", json=body).status_code == 400
    assert not target.exists()
