"""Who may do what: a token for operators and one for readers, compared in constant time; where a server may listen."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from midstream.errors import ControlError


class Role(StrEnum):
    """A reader looks; an operator also changes, and with that runs code."""

    READER = "reader"
    OPERATOR = "operator"


def _new_token() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Tokens:
    operator: str = field(default_factory=_new_token, repr=False)
    reader: str = field(default_factory=_new_token, repr=False)

    def role(self, shown: str) -> Role | None:
        """What a token may do. Both are always compared, whichever is right: time tells nothing."""
        given = shown.encode()
        is_operator = secrets.compare_digest(given, self.operator.encode())
        is_reader = secrets.compare_digest(given, self.reader.encode())
        if is_operator:
            return Role.OPERATOR
        return Role.READER if is_reader else None


@dataclass(frozen=True)
class Tls:
    """Files of a certificate, in PEM, and of its key."""

    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        for what, path in (("certificate", self.certificate), ("key", self.key)):
            if not path.is_file():
                raise ControlError.no_file(f"TLS {what}", path)


def read_token(path: Path) -> str:
    """A token from a file nobody else may read."""
    if not path.is_file():
        raise ControlError.no_file("token file", path)
    if path.stat().st_mode & 0o077:
        raise ControlError.open_token_file(path)
    token = path.read_text().strip()
    if len(token) < 16:
        raise ControlError.short_token(path)
    return token


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_address(host: str, tls: Tls | None, insecure: bool) -> None:
    """A server runs code for whoever holds the token: where others can listen in, it must be encrypted."""
    if not is_loopback(host) and tls is None and not insecure:
        raise ControlError.public_address(host)
