"""The application: routes, errors, the page, and what every request passes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles

from midstream.control import changing, models, watching
from midstream.control.access import RefusedError, reader
from midstream.control.gate import Gate, Limits
from midstream.control.metrics import exposition
from midstream.control.problems import RESPONSES, add_handlers, problem
from midstream.control.security import Tokens
from midstream.control.served import Served

WEB = Path(__file__).parent / "web"


def create_app(
    pipelines: Mapping[str, Served], tokens: Tokens, hosts: Iterable[str] = (), limits: Limits | None = None
) -> FastAPI:
    # The pages FastAPI has for its documentation load scripts from elsewhere; the document itself is here.
    app = FastAPI(title="midstream", version=version("midstream"), docs_url=None, redoc_url=None, openapi_url=None)
    app.state.tokens = tokens
    app.state.pipelines = pipelines
    add_handlers(app)

    @app.exception_handler(RefusedError)
    def refused(request: Request, error: RefusedError) -> JSONResponse:
        code = "NOT_ALLOWED" if error.status_code == 403 else "BAD_TOKEN"
        return problem(error.status_code, code, f"{error.detail}.", {"hint": "send Authorization: Bearer <token>."})

    @app.get("/v1/pipelines", responses=RESPONSES, dependencies=[Depends(reader)], summary="The pipelines served here")
    def all_pipelines() -> list[models.PipelineSummary]:
        return [served.summary() for served in pipelines.values()]

    app.include_router(watching.router)
    app.include_router(changing.router)

    @app.get(
        "/metrics",
        responses=RESPONSES,
        dependencies=[Depends(reader)],
        response_class=PlainTextResponse,
        summary="For Prometheus",
    )
    def metrics() -> PlainTextResponse:
        text, kind = exposition(pipelines)
        return PlainTextResponse(text, media_type=kind)

    @app.get("/openapi.json", include_in_schema=False, dependencies=[Depends(reader)])
    def document() -> dict[str, Any]:
        return app.openapi()

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(WEB / "index.html", headers={"Cache-Control": "no-cache"})

    app.mount("/static", StaticFiles(directory=WEB, follow_symlink=False), name="static")

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = get_openapi(
                title=app.title, version=app.version, summary="Watch and change a running pipeline.", routes=app.routes
            )
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
    app.add_middleware(Gate, hosts=tuple(hosts), limits=limits)
    return app
