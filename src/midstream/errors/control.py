"""Errors of the control server and of what is sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from midstream.errors.base import MidstreamError, did_you_mean, sentence


class ControlError(MidstreamError):
    """A server that cannot be started, or a request it does not take."""

    @classmethod
    def public_address(cls, host: str) -> ControlError:
        return cls(
            "PUBLIC_ADDRESS",
            f"The server would listen on '{host}', which others can reach, without TLS. It runs code it is sent, and "
            "its token could be read on the way.",
            hint="give --tls-cert and --tls-key, listen on 127.0.0.1, or say --insecure if the network is protected.",
        )

    @classmethod
    def address_taken(cls, host: str, port: int, cause: object) -> ControlError:
        return cls(
            "ADDRESS_TAKEN",
            f"The server cannot listen on {host}:{port}: {sentence(cause)}",
            hint="choose another --port; 0 takes any that is free.",
        )

    @classmethod
    def not_up(cls, host: str, port: int) -> ControlError:
        return cls("SERVER_NOT_UP", f"The server on {host}:{port} did not come up.", hint="its log says why.")

    @classmethod
    def no_file(cls, what: str, path: Path) -> ControlError:
        return cls("NO_SUCH_FILE", f"The {what} {path} is not there.", hint="give the path of a file that is.")

    @classmethod
    def open_token_file(cls, path: Path) -> ControlError:
        return cls(
            "TOKEN_FILE_OPEN",
            f"Others on this machine may read the token file {path}.",
            hint=f"chmod 600 {path}",
        )

    @classmethod
    def short_token(cls, path: Path) -> ControlError:
        return cls(
            "SHORT_TOKEN",
            f"The token in {path} has fewer than 16 characters.",
            hint="put a longer random one there, or leave it out and one is made.",
        )

    @classmethod
    def name_taken(cls, name: str, pid: int) -> ControlError:
        return cls(
            "NAME_TAKEN",
            f"A pipeline '{name}' is already served on this machine, by process {pid}.",
            hint="stop it, or give this one another --name.",
        )

    @classmethod
    def bad_name(cls, name: str) -> ControlError:
        return cls(
            "BAD_NAME",
            f"'{name}' cannot be the name of a pipeline.",
            hint="a letter, then at most 63 letters, digits, '_', '-' and '.'.",
        )

    @classmethod
    def unknown_pipeline(cls, name: str, known: Sequence[str]) -> ControlError:
        return cls("UNKNOWN_PIPELINE", f"No pipeline '{name}' is served here.", hint=did_you_mean(name, list(known)))

    @classmethod
    def unknown_shadow(cls, name: str) -> ControlError:
        return cls("UNKNOWN_SHADOW", f"No shadow '{name}' runs.", hint="GET …/shadows lists the one that does.")

    @classmethod
    def bad_code(cls, file: str, cause: BaseException) -> ControlError:
        line = getattr(cause, "lineno", None)
        place = f"{file}:{line}" if line else file
        return cls(
            "CODE_NOT_LOADED",
            f"{place} cannot be loaded: {type(cause).__name__}: {sentence(cause)}",
            hint="the file is run by itself on the driver: it may import only what is installed there.",
        )

    @classmethod
    def no_such_name(cls, file: str, name: str, known: list[str]) -> ControlError:
        return cls("NOT_IN_FILE", f"{file} has no '{name}'.", hint=did_you_mean(name, known))

    @classmethod
    def wrong_object(cls, file: str, name: str, expected: str, given: object) -> ControlError:
        return cls("WRONG_CODE", f"'{name}' of {file} is {given!r}.", hint=f"it must be {expected}.")

    @classmethod
    def one_body(cls, step: str, given: Sequence[str]) -> ControlError:
        return cls(
            "NO_BODY",
            f"Step '{step}' is given {' and '.join(given) or 'nothing'} to do.",
            hint="give one of sql, aggregate and code.",
        )

    @classmethod
    def run_ended(cls, name: str, status: str) -> ControlError:
        return cls("RUN_ENDED", f"Pipeline '{name}' has {status}.", hint="start it again; it goes on where it was.")
