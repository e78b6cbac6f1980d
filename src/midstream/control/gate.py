"""What every request passes before any route: the host it names, where it comes from, its size, how often it comes.

Plain ASGI, so that streams of events pass through untouched.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from midstream.control.problems import problem
from midstream.control.security import is_loopback

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Limits:
    """Bytes of a body, and requests a second of one address: in a burst, and over time."""

    body_bytes: int = 1_000_000
    burst: int = 400
    per_second: float = 100.0


@dataclass
class _Bucket:
    left: float
    at: float


@dataclass
class RateLimit:
    """Requests by address. Each may save up a burst; addresses that have are forgotten."""

    limits: Limits
    _buckets: dict[str, _Bucket] = field(default_factory=dict)

    def allows(self, address: str, now: float) -> bool:
        if len(self._buckets) > 10_000:
            self._buckets.clear()
        bucket = self._buckets.setdefault(address, _Bucket(self.limits.burst, now))
        bucket.left = min(self.limits.burst, bucket.left + (now - bucket.at) * self.limits.per_second)
        bucket.at = now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True


class Gate:
    """Middleware around all routes. `hosts` are names the server may be called by besides those of the loopback
    interface: a page elsewhere whose name is made to lead here is told apart by it."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), limits: Limits | None = None) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._limits = limits or Limits()
        self._rate = RateLimit(self._limits)
        self._too_large = f"A body has at most {self._limits.body_bytes:,} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    out.setdefault(name, value)
                # What the page is made of may be kept, and is asked for whether it still is the same.
                out.setdefault("Cache-Control", "no-cache" if scope["path"].startswith("/static/") else "no-store")
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, self._limited(receive), send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        client = scope.get("client")
        if not self._rate.allows(client[0] if client else "?", time.monotonic()):
            return problem(429, "TOO_MANY_REQUESTS", "Too many requests.", {"hint": "wait a second."})
        host = _name_of(headers.get("host", ""))
        if not (is_loopback(host) or host in self._hosts):
            return problem(403, "WRONG_HOST", f"This server is not '{host}'.", {"hint": "--allow-host adds a name."})
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
        if foreign or headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return problem(403, "CROSS_SITE", "Requests of other sites are not taken.")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > self._limits.body_bytes:
            return problem(413, "BODY_TOO_LARGE", f"{self._too_large}.")
        if scope["method"] not in _SAFE and length != "0":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return problem(422, "BAD_REQUEST", "The body must be application/json.")
        return None

    def _limited(self, receive: Receive) -> Receive:
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limits.body_bytes:
                # What reads the body lets this one through, and it is answered like any other.
                raise HTTPException(413, self._too_large)
            return message

        return limited


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
