"""`midstream run`: a pipeline of a Python file, run and served until it ends or is told to."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pyspark.sql import SparkSession
from rich.console import Console

from midstream.cli.options import pairs
from midstream.control.runfiles import check_name
from midstream.control.security import Tls, Tokens, read_token
from midstream.control.server import DEFAULT_HOST, ControlServer, ServeOptions
from midstream.errors import MidstreamError, did_you_mean
from midstream.graph.pipeline import Pipeline
from midstream.signals import asked_to_end

_CONTROL = "Control"
_SPARK = "Spark"


def run(
    app: Annotated[str, typer.Argument(metavar="FILE:NAME", help="A pipeline, or a function that makes one.")],
    checkpoint: Annotated[str, typer.Option(help="A directory or s3://bucket/prefix. State and progress go there.")],
    name: Annotated[str | None, typer.Option(help="What commands call it. Default: NAME of FILE:NAME.")] = None,
    trigger_seconds: Annotated[float | None, typer.Option(min=0, help="Seconds between epochs.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there now is processed.")] = False,
    retain_epochs: Annotated[int, typer.Option(min=1, help="Past epochs whose state stays readable.")] = 100,
    standby: Annotated[int, typer.Option(min=0, help="Executors that keep each instance's state at hand.")] = 0,
    store_option: Annotated[list[str], typer.Option(metavar="K=V", help="For the checkpoint's store.")] = [],  # noqa: B006
    live_changes: Annotated[
        str, typer.Option(metavar="keep|drop", help="Changes made while it ran before: keep or drop them.")
    ] = "keep",
    conf: Annotated[list[str], typer.Option(metavar="K=V", help="A setting of Spark.", rich_help_panel=_SPARK)] = [],  # noqa: B006
    master: Annotated[str | None, typer.Option(help="Default: local[*].", rich_help_panel=_SPARK)] = None,
    remote: Annotated[
        str | None, typer.Option(help="Instead: a server of Spark Connect, sc://host:port.", rich_help_panel=_SPARK)
    ] = None,
    control: Annotated[bool, typer.Option(help="Serve REST and the page.", rich_help_panel=_CONTROL)] = True,
    host: Annotated[str, typer.Option(help="Where to listen.", rich_help_panel=_CONTROL)] = DEFAULT_HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.", rich_help_panel=_CONTROL)] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(help="The operator's token, mode 0600. Default: one is made.", rich_help_panel=_CONTROL),
    ] = None,
    reader_token_file: Annotated[
        Path | None, typer.Option(help="The reader's token. Default: one is made.", rich_help_panel=_CONTROL)
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM).", rich_help_panel=_CONTROL)] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).", rich_help_panel=_CONTROL)] = None,
    cafile: Annotated[
        Path | None, typer.Option(help="What commands here check the certificate with.", rich_help_panel=_CONTROL)
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen publicly without TLS.", rich_help_panel=_CONTROL)
    ] = False,
    allow_host: Annotated[
        list[str], typer.Option(help="A further name it may be called by.", rich_help_panel=_CONTROL)
    ] = [],  # noqa: B006
) -> None:
    """Run a pipeline until it ends, fails, or is stopped (Ctrl-C, `midstream stop`): the epoch under way is committed.

    Example: midstream run orders.py:flow --checkpoint /data/orders --port 8642
    """
    console = Console(stderr=True)
    check_app(app)
    chosen = check_name(name or app.rpartition(":")[2])
    options = ServeOptions(
        host,
        port,
        _tokens(token_file, reader_token_file),
        _tls(tls_cert, tls_key),
        insecure,
        allow_host,
        cafile=cafile,
    )
    if live_changes not in ("keep", "drop"):
        raise typer.BadParameter(f"'{live_changes}' is neither keep nor drop", param_hint="--live-changes")
    kept: Literal["keep", "drop"] = "keep" if live_changes == "keep" else "drop"
    trigger: dict[str, Any] = {"availableNow": True} if once else {}
    if trigger_seconds is not None and not once:
        trigger = {"processingTime": f"{round(trigger_seconds * 1000)} milliseconds"}
    if master is not None and remote is not None:
        raise typer.BadParameter("give --master or --remote, not both", param_hint="--remote")
    settings = pairs(conf, "--conf")
    spark = _session(chosen, master, settings) if remote is None else _remote_session(remote, settings)
    with asked_to_end() as asked:
        try:
            # Columns such as F.sum("x") can be made only where there is a session.
            started = load_pipeline(app).start(
                spark,
                checkpoint,
                trigger=trigger or None,
                name=chosen,
                retain_epochs=retain_epochs,
                store_options=pairs(store_option, "--store-option") or None,
                live_changes=kept,
                standby=standby,
            )
            server = None
            try:
                if control:
                    server = ControlServer(started, chosen, options)
                    _tell(console, chosen, server)
                while not started.await_termination(0.2):
                    if asked.is_set():
                        console.print("stopping: the epoch under way is committed first")
                        started.stop()
            finally:
                started.stop()
                if server is not None:
                    server.stop()
        finally:
            spark.stop()
    console.print(f"'{chosen}' has ended; the last epoch is {started.last_epoch}", highlight=False)


def _tell(console: Console, name: str, server: ControlServer) -> None:
    console.print(f"'{name}' is served at {server.url}", highlight=False, soft_wrap=True)
    if console.is_terminal:
        # With the token: only for the eyes of whoever started it, not for logs.
        console.print(f"page: {server.page_with_token()}", highlight=False, soft_wrap=True)
    else:
        console.print(f"page: {server.page_url} (its token: midstream status {name} --page)", soft_wrap=True)


def _session(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    # Workers must be the same Python with the same packages, whatever `python3` is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false")
    for key, value in conf.items():
        builder = builder.config(key, value)
    if master is not None or ("spark.master" not in conf and "MASTER" not in os.environ):
        builder = builder.master(master or "local[*]")
    return builder.getOrCreate()


def _remote_session(remote: str, conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.remote(remote)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _tokens(operator: Path | None, reader: Path | None) -> Tokens:
    made = Tokens()
    return Tokens(
        read_token(operator) if operator is not None else made.operator,
        read_token(reader) if reader is not None else made.reader,
    )


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    if (certificate is None) != (key is None):
        raise typer.BadParameter("give both --tls-cert and --tls-key, or neither")
    return Tls(certificate, key) if certificate is not None and key is not None else None


def check_app(app: str) -> tuple[Path, str]:
    """The file and the name in it that a `file.py:name` means."""
    path, colon, name = app.rpartition(":")
    file = Path(path)
    if not colon or not name or file.suffix != ".py":
        raise MidstreamError("BAD_APP", f"'{app}' names no pipeline.", hint="write file.py:name.")
    if not file.is_file():
        raise MidstreamError("NO_SUCH_FILE", f"There is no file {file}.", hint="give the path of a Python file.")
    return file, name


def load_pipeline(app: str) -> Pipeline:
    """The pipeline it is. The file is run for that."""
    file, name = check_app(app)
    module = _module(file.resolve())
    if not hasattr(module, name):
        known = [n for n, value in vars(module).items() if isinstance(value, Pipeline)]
        raise MidstreamError("NOT_IN_FILE", f"{file} has no '{name}'.", hint=did_you_mean(name, known))
    found = getattr(module, name)
    made = found() if callable(found) else found
    if not isinstance(made, Pipeline):
        raise MidstreamError(
            "NO_PIPELINE",
            f"'{name}' of {file} is {made!r}.",
            hint="it must be a pipeline, or a function that makes one.",
        )
    return made


def _module(file: Path) -> Any:
    """The file as a module under its own name, so that it can import its neighbours."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
