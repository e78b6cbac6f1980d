"""Where pipelines are: by the files that runs leave on this machine, or by what is said with --server and --token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from midstream.cli.failures import CommandError
from midstream.control.runfiles import RunFile, all_runs, path_of, remove
from midstream.errors import ControlError


@dataclass(frozen=True)
class Address:
    """A server, the token to show it, and the certificate it is known by."""

    url: str
    token: str
    cafile: Path | None = None

    @classmethod
    def of(cls, run: RunFile) -> Address:
        return cls(
            run.url.rstrip("/"), run.operator_token or run.reader_token, Path(run.cafile) if run.cafile else None
        )

    @property
    def is_loopback(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")


def live_and_stale() -> tuple[list[RunFile], list[RunFile]]:
    """The runs of this machine, and those whose process is gone; the files of the latter are removed."""
    live, stale = [], []
    for path, run in all_runs():
        if run.is_alive:
            live.append(run)
        else:
            stale.append(run)
            _remove(path, run)
    return live, stale


def find(name: str) -> RunFile:
    """The run of a name, or an error that says which there are."""
    live, stale = live_and_stale()
    for run in live:
        if run.name == name:
            return run
    for run in stale:
        if run.name == name:
            raise CommandError.process_gone(name, run.pid)
    raise CommandError.unknown_pipeline(name, [run.name for run in live])


def address(
    name: str | None, server: str | None, token: str | None, token_file: Path | None, cafile: Path | None
) -> Address:
    """The server of a pipeline: the one given, else that of its run file. What is given beside it goes first."""
    if token is None and token_file is not None:
        try:
            token = token_file.expanduser().read_text().strip()
        except (OSError, UnicodeDecodeError) as cause:
            raise CommandError.unreadable(token_file, cause) from cause
    if server is None:
        assert name is not None
        found = Address.of(find(name))
        return Address(found.url, token or found.token, cafile or found.cafile)
    url = _whole(server)
    if token is None:
        found_here = [Address.of(run) for run in live_and_stale()[0] if run.url.rstrip("/") == url]
        if not found_here:
            raise CommandError.no_token(url)
        token, cafile = found_here[0].token, cafile or found_here[0].cafile
    return Address(url, token, cafile)


def _remove(path: Path, run: RunFile) -> None:
    """Under the name it has, whatever its file is called: only what a run has written is taken away."""
    try:
        if path_of(run.name) == path:
            remove(run)
    except (OSError, ControlError):
        return


def _whole(server: str) -> str:
    url = server.rstrip("/") if "://" in server else f"http://{server.rstrip('/')}"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as cause:
        raise CommandError.bad_address(server, cause) from cause
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError.bad_address(server, "it has no host, or is neither http nor https")
    return url
