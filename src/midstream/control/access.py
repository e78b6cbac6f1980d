"""Who is asking, by the token shown, and which pipeline is meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, HTTPException, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from midstream.control.security import Role, Tokens
from midstream.control.served import Served
from midstream.errors import ControlError

PipelineName = Annotated[str, Path(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$", description="The pipeline's name.")]

_bearer = HTTPBearer(auto_error=False, description="The operator's or the reader's token of the run.")


class RefusedError(HTTPException):
    """No token, a wrong one, or one that may not do this."""


@dataclass(frozen=True)
class Access:
    role: Role
    user: str | None = None

    @property
    def by(self) -> str:
        return f"{self.role}: {self.user}" if self.user else str(self.role)


def reader(
    request: Request,
    shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    x_midstream_user: Annotated[str | None, Header(max_length=100, description="Who you are, for the record.")] = None,
) -> Access:
    """Whoever shows one of the tokens."""
    tokens: Tokens = request.app.state.tokens
    role = tokens.role(shown.credentials) if shown is not None else None
    if role is None:
        raise RefusedError(401, "A token is needed" if shown is None else "The token is wrong")
    return Access(role, x_midstream_user)


def operator(access: Annotated[Access, Depends(reader)]) -> Access:
    """Whoever shows the operator's token."""
    if access.role is not Role.OPERATOR:
        raise RefusedError(403, "The reader's token may not change anything")
    return access


def pipeline(request: Request, name: PipelineName) -> Served:
    known: Mapping[str, Served] = request.app.state.pipelines
    if name not in known:
        raise ControlError.unknown_pipeline(name, list(known))
    return known[name]


Here = Annotated[Served, Depends(pipeline)]
"""The pipeline a path names."""
