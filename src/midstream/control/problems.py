"""Every error as `{error_code, message, details}`, with the status that fits it."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from midstream.control.models import Problem
from midstream.errors import CheckpointError, ControlError, MidstreamError, StoreError

_logger = logging.getLogger(__name__)

_UNKNOWN = ("UNKNOWN_PIPELINE", "UNKNOWN_MODIFICATION", "UNKNOWN_SHADOW", "NO_SUCH_STATE")
_CONFLICTS = ("NOT_CHANGEABLE", "SHADOW_RUNS", "SHADOW_ENDED", "NOTHING_TO_UNDO", "RUN_ENDED")

RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "What was asked makes no sense"},
    401: {"model": Problem, "description": "No token, or a wrong one"},
    403: {"model": Problem, "description": "The token may not do that, or the request comes from another site"},
    404: {"model": Problem, "description": "No such thing"},
    409: {"model": Problem, "description": "Not now, or not with this pipeline"},
    413: {"model": Problem, "description": "The body is too large"},
    422: {"model": Problem, "description": "The request does not fit its description, or the change not the pipeline"},
    429: {"model": Problem, "description": "Too many requests"},
    503: {"model": Problem, "description": "The checkpoint's store cannot be reached"},
}


def problem(status: int, code: str, message: str, details: dict[str, Any] | None = None) -> JSONResponse:
    body = Problem(error_code=code, message=message, details=jsonable_encoder(details or {}))
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "1"} if status == 429 else None
    return JSONResponse(body.model_dump(), status, headers)


def status_of(error: MidstreamError) -> int:
    if error.error_class in _UNKNOWN:
        return 404
    if error.error_class in _CONFLICTS:
        return 409
    if isinstance(error, StoreError):
        return 503
    if isinstance(error, CheckpointError | ControlError):
        return 400
    return 422


def add_handlers(app: FastAPI) -> None:
    @app.exception_handler(MidstreamError)
    def ours(request: Request, error: MidstreamError) -> JSONResponse:
        details = {"hint": error.hint} if error.hint else {}
        return problem(status_of(error), error.error_class, error.message, details)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        found = [{"where": ".".join(map(str, e["loc"])), "what": e["msg"]} for e in error.errors()]
        told = "; ".join(f"{e['where']}: {e['what']}" for e in found[:3])
        return problem(422, "BAD_REQUEST", f"The request is not as it should be: {told}.", {"problems": found})

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> JSONResponse:
        codes = {404: "NO_SUCH_PATH", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_LARGE"}
        return problem(error.status_code, codes.get(error.status_code, "HTTP_ERROR"), f"{error.detail}.")

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> JSONResponse:
        _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(500, "INTERNAL", f"{type(error).__name__}: {error}", {"hint": "the driver's log tells more."})
