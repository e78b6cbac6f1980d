"""A real HTTP server on the loopback interface whose answers are laid down beforehand; it notes what it is asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "the-operators-token"


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "application/json"

    @property
    def content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else json.dumps(self.body).encode()


Given = Answer | Callable[[Asked], Answer]


@dataclass
class FakeServer:
    """`answers` are used up one after the other for a method and path; the last one stays."""

    url: str = ""
    answers: dict[tuple[str, str], list[Given]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def lay(self, method: str, path: str, *answers: Given) -> None:
        self.answers[method, f"/v1/pipelines/orders{path}" if not path.startswith("/v1") else path] = list(answers)

    def sent(self, method: str, end: str = "") -> list[Any]:
        return [asked.body for asked in self.asked if asked.method == method and asked.path.endswith(end)]

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return problem(401, "BAD_TOKEN", "The token is wrong.")
        given = self.answers.get((asked.method, asked.path))
        if not given:
            return problem(404, "NO_SUCH_PATH", f"Nothing was laid down for {asked.method} {asked.path}.")
        found = given[0] if len(given) == 1 else given.pop(0)
        return found(asked) if callable(found) else found


def problem(status: int, code: str, message: str, **details: Any) -> Answer:
    return Answer({"error_code": code, "message": message, "details": details}, status)


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[FakeServer]:
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = fake.answer(
                Asked(self.command, parts.path, parse_qs(parts.query), headers, json.loads(body) if body else None)
            )
            self.send_response(answer.status)
            for name, value in {"Content-Type": answer.kind, **answer.headers}.items():
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    fake.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
