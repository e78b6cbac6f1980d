"""The control server: in a thread of the driver, on its own socket, ended with the run or before it."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from midstream.control import runfiles
from midstream.control.app import create_app
from midstream.control.gate import Limits
from midstream.control.runfiles import RunFile, check_name
from midstream.control.security import Tls, Tokens, check_address, is_loopback
from midstream.control.served import Served
from midstream.control.traces import trace
from midstream.control.uploads import Uploads
from midstream.errors import ControlError, MidstreamError

if TYPE_CHECKING:
    from midstream.engine.run import Run

_logger = logging.getLogger(__name__)

DEFAULT_HOST = "127.0.0.1"
_UP_SECONDS = 20.0


@dataclass(frozen=True)
class ServeOptions:
    """Where a server listens and whom it lets in. Port 0 takes any that is free."""

    host: str = DEFAULT_HOST
    port: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    tls: Tls | None = None
    insecure: bool = False
    """Listen where others can reach it without TLS."""
    hosts: Sequence[str] = ()
    """Further names it may be called by."""
    limits: Limits = field(default_factory=Limits)
    cafile: Path | None = None
    """What clients on this machine check its certificate with."""


class ControlServer:
    """A server for one run. It never ends the run by failing."""

    def __init__(self, run: Run, name: str, options: ServeOptions | None = None) -> None:
        self.options = options or ServeOptions()
        check_address(self.options.host, self.options.tls, self.options.insecure)
        self._run = run
        self._uploads = Path(tempfile.mkdtemp(prefix="midstream-uploads-"))
        versions = (version("pyspark"), version("midstream"))
        self.served = Served(check_name(name), run, Uploads(self._uploads), versions)
        self._socket = _listen(self.options.host, self.options.port)
        self._address: tuple[str, int] = self._socket.getsockname()[:2]
        try:
            self.served.page = self.page_url
            self._file = runfiles.write(self._run_file())
            self._server = self._start()
        except BaseException:
            self._socket.close()
            raise
        trace(self.served.name, run)
        threading.Thread(target=self._until_end, name="midstream-control-end", daemon=True).start()

    @property
    def tokens(self) -> Tokens:
        return self.options.tokens

    @property
    def url(self) -> str:
        host, port = self._address
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.options.tls else 'http'}://{shown}:{port}"

    @property
    def page_url(self) -> str:
        """The page's address without a token."""
        return f"{self.url}/"

    def page_with_token(self, token: str | None = None) -> str:
        """The page's address with a token behind the #, which browsers keep to themselves."""
        return f"{self.url}/#token={token or self.tokens.operator}"

    def stop(self) -> None:
        """End the server; the run goes on."""
        self.served.hub.close()
        self._server.should_exit = True
        self._thread.join(10)
        runfiles.remove(self._run_file())
        shutil.rmtree(self._uploads, ignore_errors=True)

    def _start(self) -> uvicorn.Server:
        tls = self.options.tls
        hosts = (*self.options.hosts, self.options.host)
        app = create_app({self.served.name: self.served}, self.tokens, hosts, self.options.limits)
        config = uvicorn.Config(
            app,
            log_config=None,  # logging is the program's to set up
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=3,
            timeout_keep_alive=15,
            limit_concurrency=2000,
            ssl_certfile=str(tls.certificate) if tls else None,
            ssl_keyfile=str(tls.key) if tls else None,
        )
        server = uvicorn.Server(config)

        def serve() -> None:
            async def main() -> None:
                self.served.hub.open(asyncio.get_running_loop())
                await server.serve(sockets=[self._socket])

            try:
                asyncio.run(main())
            except BaseException:
                _logger.exception("the control server of '%s' has failed; the pipeline goes on", self.served.name)

        self._thread = threading.Thread(target=serve, name="midstream-control", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _UP_SECONDS
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ControlError.not_up(self.options.host, self.options.port)
            time.sleep(0.01)
        return server

    def _run_file(self) -> RunFile:
        return RunFile(
            name=self.served.name,
            url=self.url if is_loopback(self.options.host) or self.options.tls else self._local_url(),
            pid=os.getpid(),
            started_at=self.served.started_at.isoformat(timespec="seconds"),
            checkpoint=self._run.store.url,
            operator_token=self.tokens.operator,
            reader_token=self.tokens.reader,
            cafile=str(self.options.cafile) if self.options.cafile else None,
        )

    def _local_url(self) -> str:
        """How clients on this machine reach a server that listens everywhere."""
        host, port = self._address
        return f"http://127.0.0.1:{port}" if host in ("0.0.0.0", "::") else self.url

    def _until_end(self) -> None:
        """When the run ends its watchers are told, and it is no longer found; the server answers as long as the
        process lives."""
        with suppress(MidstreamError):
            self._run.await_termination()
        self.served.ended()


def serve(run: Run, name: str, options: ServeOptions | None = None) -> ControlServer:
    """Let a running pipeline be watched and changed from outside: by the command line, REST and a page."""
    return ControlServer(run, name, options)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(512)
        return listening
    except OSError as cause:
        listening.close()
        raise ControlError.address_taken(host, port, cause) from cause
