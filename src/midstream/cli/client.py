"""The REST interface from the client's side: a pipeline asked and told over HTTP, its refusals as errors."""

from __future__ import annotations

import getpass
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from midstream.cli.exits import Exit
from midstream.cli.failures import CommandError
from midstream.cli.where import Address
from midstream.control.models import Problem

T = TypeVar("T")

QUICK = 30.0
LONG = 300.0
"""Seconds for an answer. What is handed in is tried first, on rows of the last epoch, and that may take a while."""

_PATIENCE = 5
"""How often a request that was too much at the moment is sent again."""


class Client:
    """A server and the requests to it."""

    def __init__(self, address: Address) -> None:
        self.address = address
        # Without TLS there is nothing to verify, and the certificates of all the world take a while to load.
        verify: ssl.SSLContext | bool = address.url.startswith("https:")
        if address.cafile is not None:
            try:
                verify = ssl.create_default_context(cafile=str(address.cafile.expanduser()))
            except OSError as cause:
                raise CommandError.unreadable(address.cafile, cause) from cause
        try:
            self._http = httpx.Client(
                base_url=address.url,
                headers={"Authorization": f"Bearer {address.token}", "X-Midstream-User": _user()},
                verify=verify,
                timeout=httpx.Timeout(QUICK, connect=5.0),
                # A proxy of the environment is for what lies beyond this machine.
                trust_env=not address.is_loopback,
            )
        except (httpx.InvalidURL, ValueError) as cause:
            raise CommandError.bad_address(address.url, cause) from cause

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: BaseModel | None = None,
        refusal: Exit = Exit.ERROR,
        seconds: float = QUICK,
    ) -> httpx.Response:
        """Send a request and give the answer, or raise. `refusal` is the exit code for what is refused as such."""
        # Only what was said: what was not is for the server to decide.
        content = body.model_dump_json(exclude_unset=True) if body is not None else None
        headers = {"Content-Type": "application/json"} if content is not None else None
        timeout = httpx.Timeout(seconds, connect=5.0)
        for left in range(_PATIENCE, -1, -1):
            with _told_as_ours(self.address.url, seconds):
                answer = self._http.request(
                    method, path, params=params, content=content, headers=headers, timeout=timeout
                )
            if answer.status_code != 429 or not left:
                break
            time.sleep(_pause(answer))
        if answer.is_error:
            raise refused(answer, refusal)
        return answer

    @contextmanager
    def stream(
        self, path: str, *, params: Mapping[str, Any] | None = None, seconds: float = QUICK
    ) -> Iterator[httpx.Response]:
        """An answer that is read as it comes; `seconds` may pass between two pieces of it."""
        timeout = httpx.Timeout(seconds, connect=5.0)
        with (
            _told_as_ours(self.address.url, seconds),
            self._http.stream("GET", path, params=params, timeout=timeout) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise refused(answer)
            yield answer


class Remote:
    """A pipeline behind a server."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client

    def __enter__(self) -> Remote:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.__exit__(kind, error, trace)

    def get(self, *path: str | int, **params: Any) -> httpx.Response:
        return self.client.ask("GET", self.path(*path), params=params)

    def post(
        self, *path: str | int, body: BaseModel | None = None, refusal: Exit = Exit.ERROR, seconds: float = LONG
    ) -> httpx.Response:
        return self.client.ask("POST", self.path(*path), body=body, refusal=refusal, seconds=seconds)

    def delete(self, *path: str | int) -> httpx.Response:
        return self.client.ask("DELETE", self.path(*path))

    def path(self, *parts: str | int) -> str:
        return "/".join(["/v1/pipelines", *(quote(str(part), safe="") for part in (self.name, *parts))])


def read(kind: type[T], answer: httpx.Response) -> T:
    """An answer as one of the models, or as a list of them."""
    try:
        return TypeAdapter(kind).validate_json(answer.content)
    except ValidationError as cause:
        raise CommandError.strange_answer(str(answer.url), answer.status_code, answer.text) from cause


def refused(answer: httpx.Response, refusal: Exit = Exit.ERROR) -> CommandError:
    """The error that an answer tells of, with the exit code it stands for."""
    status = answer.status_code
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        error = CommandError.strange_answer(str(answer.url), status, answer.text)
        error.exit_code = _EXITS.get(status, Exit.ERROR)
        return error
    code, hint = problem.error_code, problem.details.get("hint")
    return CommandError.refused(
        code, problem.message, _HINTS.get(code, str(hint) if hint else None), _exit_code(status, code, refusal)
    )


_HINTS = {
    "BAD_TOKEN": "give the token of this run with --token-file, or set MIDSTREAM_TOKEN.",
    "NOT_ALLOWED": "this needs the operator's token, given with --token-file or as MIDSTREAM_TOKEN.",
}
"""What to do about it here, where the server can only speak of headers."""

_EXITS = {401: Exit.NOT_ALLOWED, 403: Exit.NOT_ALLOWED, **dict.fromkeys((502, 503, 504), Exit.UNREACHABLE)}
"""What answers stand for that do not come from midstream, but from something in between."""


def _exit_code(status: int, code: str, refusal: Exit) -> Exit:
    if status in (401, 403):
        return Exit.NOT_ALLOWED
    if code in ("UNKNOWN_PIPELINE", "RUN_ENDED"):
        return Exit.UNREACHABLE
    return Exit.ERROR if status in (413, 429) or status >= 500 else refusal


@contextmanager
def _told_as_ours(url: str, seconds: float) -> Iterator[None]:
    try:
        yield
    except httpx.ConnectTimeout as cause:
        raise CommandError.unreachable(url, "it takes no connection") from cause
    except httpx.TimeoutException as cause:
        raise CommandError.no_answer(url, seconds) from cause
    except (httpx.TransportError, httpx.InvalidURL) as cause:
        raise CommandError.unreachable(url, cause) from cause


def _pause(answer: httpx.Response) -> float:
    try:
        return min(max(float(answer.headers.get("Retry-After", 1)), 0.1), 10.0)
    except ValueError:
        return 1.0


def _user() -> str:
    """Who makes a change, for its history. Headers are ASCII, names of users need not be."""
    try:
        return getpass.getuser().encode("ascii", "replace").decode()[:100]
    except (OSError, KeyError, ImportError):
        return "unknown"
