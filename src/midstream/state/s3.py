"""A store in S3, or in anything that speaks its protocol with conditional writes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import S3Store as Client

from midstream.errors import StoreError
from midstream.state.store import ObjectInfo, check_path, cut

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import RetryConfig

FLAGS = (
    "allow_http",
    "allow_invalid_certificates",
    "virtual_hosted_style_request",
    "skip_signature",
    "disable_bulk_delete",
)
CLIENT_OPTIONS = frozenset(
    ["allow_http", "allow_invalid_certificates", "root_certificate", "timeout", "connect_timeout"]
)
RETRY_OPTIONS = frozenset(["max_retries", "retry_timeout_seconds"])
OPTIONS = (
    frozenset(["access_key_id", "secret_access_key", "session_token", "region", "endpoint"])
    | frozenset(FLAGS)
    | CLIENT_OPTIONS
    | RETRY_OPTIONS
)
"""What `open_store` takes for S3. All else that obstore can be told comes through the AWS_* environment."""

MAX_RETRIES = 6
RETRY_SECONDS = 60
"""A store that is gone shows within seconds, a hiccup is waited for. obstore would try for minutes."""

PART_BYTES = 8 * 2**20
"""What goes up at a time of an object that may take long."""

TOKEN = "midstream-create"
"""The name of the metadata that tells which call created an object."""

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REFUSED = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
_FULL = ("QuotaExceeded", "XMinioStorageFull")

# obstore's threads are those of the process that first used it; after a fork a request would wait for ever.
_process_of_runtime: int | None = None


@dataclass(frozen=True)
class S3Store:
    """Objects below a prefix of a bucket. Holds no connection: each process opens its own at first use."""

    bucket: str
    prefix: str
    # Not shown, because keys are among them; a tuple, because equal stores of a process share a connection.
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> S3Store:
        """A store from `s3://bucket/prefix`, with options named as obstore names them."""
        parts = urlsplit(url)
        if not parts.netloc or "@" in parts.netloc:
            raise StoreError.bad_url(url, "does not begin with s3:// and the name of a bucket")
        if parts.query or parts.fragment:
            raise StoreError.bad_url(url, "has a '?' or '#', which a prefix cannot have")
        prefix = parts.path.strip("/")
        if prefix:
            check_path(prefix)
        store = cls(parts.netloc, prefix, tuple(sorted(options.items())))
        _check_options(store)
        return store

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}" if self.prefix else f"s3://{self.bucket}"

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        # A request whose answer was lost is sent again, and then finds its own object there. The token tells
        # that from a rival's object.
        token = uuid4().hex
        with self._client(check_path(path)) as client:
            for _ in range(MAX_RETRIES):
                try:
                    self._put_new(client, path, data, token)
                    return True
                except AlreadyExistsError:
                    try:
                        found = obstore.get(client, path, options={"head": True})
                    except FileNotFoundError:
                        # S3 also refuses while somebody deletes the object; then it is free again.
                        continue
                    return found.attributes.get(TOKEN) == token
        raise StoreError.failed(self.url, f"{path} kept appearing and vanishing while it was created")

    def _put_new(self, client: Client, path: str, data: bytes | pa.Buffer, token: str) -> None:
        """Put an object if it is absent. obstore sends such a request once more after most failures, but not after a
        time-out, because it would not know its own object again."""
        tries, seconds = self._patience
        deadline = monotonic() + seconds
        while True:
            try:
                obstore.put(client, path, _content(data), mode="create", attributes={TOKEN: token})
                return
            except BaseError as error:
                tries -= 1
                if "kind: Timeout" not in str(error) or tries < 0 or monotonic() > deadline:
                    raise

    @property
    def _patience(self) -> tuple[int, int]:
        """How often, and for how many seconds, a request is sent again."""
        options = dict(self.options)
        return int(options.get("max_retries", MAX_RETRIES)), int(options.get("retry_timeout_seconds", RETRY_SECONDS))

    def put(self, path: str, data: bytes | pa.Buffer, pause: Callable[[], None] | None = None) -> None:
        with self._client(check_path(path)) as client:
            if pause is None:
                obstore.put(client, path, _content(data))
            else:
                content = _content(data)
                several, parts = len(content) > PART_BYTES, _parts(content, pause)
                obstore.put(client, path, parts, use_multipart=several, chunk_size=PART_BYTES, max_concurrency=1)

    def read(self, path: str, start: int = 0, length: int | None = None) -> pa.Buffer:
        with self._client(check_path(path)) as client:
            try:
                result = obstore.get(client, path, options=_range(start, length))
                return cut(pa.py_buffer(result.buffer()), 0, length)
            except BaseError as error:
                if _Answer.of(error).status == 416:
                    # The range begins behind the end of the object.
                    return pa.py_buffer(b"")
                raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        prefix = prefix.strip("/")
        with self._client(check_path(prefix) if prefix else prefix) as client:
            found = [
                ObjectInfo(each["path"], each["size"], each["last_modified"])
                for chunk in obstore.list(client, prefix or None, chunk_size=1000)
                for each in chunk
            ]
        # S3 promises the order of bytes; servers that keep directories, such as SeaweedFS, have another.
        found.sort(key=lambda info: info.path)
        yield from found

    def delete(self, paths: Iterable[str]) -> None:
        names = [check_path(path) for path in paths]
        if names:
            with self._client(names[0]) as client:
                obstore.delete(client, names)

    def sweep(self, older_than_seconds: float) -> int:
        return 0  # an upload that was broken off leaves no object

    def local_path(self, path: str) -> Path | None:
        return None

    @contextmanager
    def _client(self, path: str) -> Iterator[Client]:
        """The connection of this process, with obstore's errors told in our words.

        Theirs are not kept as causes: they carry the whole request and answer, keys of the account included.
        """
        try:
            yield _open(self)
        except FileNotFoundError as error:
            if _Answer.of(error).code == "NoSuchBucket":
                raise StoreError.missing_bucket(self.url, self.bucket) from None
            raise StoreError.missing(path, self.url) from None
        except BaseError as error:
            raise self._told(error) from None

    def _told(self, error: BaseError) -> StoreError:
        answer = _Answer.of(error)
        if "/latest/api/token" in answer.text or "/latest/meta-data" in answer.text:
            return StoreError.access_denied(self.url, "no keys were given and this machine has no role of its own")
        if answer.status is None and "HTTP error" in answer.text:
            return StoreError.unreachable(self.url, _endpoint(self) or "AWS", answer.reason)
        if answer.code == "NoSuchBucket":
            return StoreError.missing_bucket(self.url, self.bucket)
        if answer.status in (401, 403) or answer.code in _REFUSED:
            return StoreError.access_denied(self.url, answer.reason)
        if answer.status == 507 or answer.code in _FULL:
            return StoreError.disk_full(self.url, answer.reason)
        if answer.status == 501 or isinstance(error, NotSupportedError):
            return StoreError.no_atomic_create(self.url, answer.reason)
        return StoreError.failed(self.url, answer.reason)


@dataclass(frozen=True)
class _Answer:
    """What the text of an obstore error says about the answer of the server, if there was one."""

    text: str
    status: int | None
    code: str | None
    reason: str

    @classmethod
    def of(cls, error: Exception) -> _Answer:
        text = str(error)
        status = re.search(r"status code: (\d+)([^:\n]*)", text)
        if status is None:
            # Behind the summary comes a dump of the Rust error, whose innermost cause says most.
            causes = re.findall(r'message: "(.*?)"|kind: (\w+),', text)
            innermost = [message or kind for message, kind in causes if message or kind != "Request"]
            return cls(text, None, None, innermost[-1] if innermost else text.partition("\n")[0])
        code = re.search(r"<Code>(.*?)</Code>", text)
        message = re.search(r"<Message>(.*?)</Message>", text)
        reason = [f"HTTP {status[1]}{status[2]}", *(found[1] for found in (code, message) if found)]
        return cls(text, int(status[1]), code[1] if code else None, ", ".join(reason))


@lru_cache(maxsize=64)
def _connect(store: S3Store, process: int) -> Client:
    global _process_of_runtime
    _process_of_runtime = process
    tries, seconds = store._patience
    retry: RetryConfig = {"max_retries": tries, "retry_timeout": timedelta(seconds=seconds)}
    options = {name: value for name, value in store.options if name not in RETRY_OPTIONS}
    client: Any = {name: options.pop(name) for name in CLIENT_OPTIONS & options.keys()}
    if _endpoint(store).startswith("http://"):
        # Whoever writes http:// means it.
        client.setdefault("allow_http", "true")
    config: Any = options
    return Client(store.bucket, prefix=store.prefix or None, config=config, client_options=client, retry_config=retry)


def _open(store: S3Store) -> Client:
    process = os.getpid()
    if _process_of_runtime not in (None, process):
        raise StoreError.forked(store.url)
    return _connect(store, process)


def _endpoint(store: S3Store) -> str:
    given = dict(store.options).get("endpoint")
    return given or next((os.environ[name] for name in _ENDPOINT_VARIABLES if os.environ.get(name)), "")


def _check_options(store: S3Store) -> None:
    for name, value in store.options:
        if name not in OPTIONS:
            raise StoreError.unknown_option(store.url, name, OPTIONS)
        if name in FLAGS and value.lower() not in ("true", "false"):
            raise StoreError.bad_option(store.url, name, "'true' or 'false'")
        if name in RETRY_OPTIONS and not value.isdecimal():
            raise StoreError.bad_option(store.url, name, "a whole number")
    endpoint = urlsplit(_endpoint(store))
    if endpoint.geturl() and not (endpoint.scheme in ("http", "https") and endpoint.netloc):
        raise StoreError.bad_option(store.url, "endpoint", "a URL such as https://s3.example.com:9000")
    if endpoint.scheme == "http" and ("allow_http", "false") in store.options:
        raise StoreError.bad_option(store.url, "endpoint", "an https: URL, because allow_http is 'false'")


def _range(start: int, length: int | None) -> GetOptions:
    if start < 0:
        return {"range": {"suffix": -start}}
    if length:
        return {"range": (start, start + length)}
    return {"range": {"offset": start}} if start else {}


def _parts(content: memoryview, pause: Callable[[], None]) -> Iterator[memoryview]:
    for start in range(0, len(content), PART_BYTES):
        pause()
        yield content[start : start + PART_BYTES]


def _content(data: bytes | pa.Buffer) -> memoryview:
    # pyarrow's buffers are of signed bytes, which obstore does not take.
    return memoryview(data).cast("B")
