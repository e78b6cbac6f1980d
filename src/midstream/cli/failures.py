"""Errors of the command itself, each with the exit code it ends with."""

from __future__ import annotations

from collections.abc import Sequence

from midstream.cli.exits import Exit
from midstream.errors import MidstreamError, did_you_mean


class CommandError(MidstreamError):
    """What a command could not do, and its exit code."""

    def __init__(
        self, error_class: str, message: str, *, hint: str | None = None, exit_code: Exit = Exit.ERROR
    ) -> None:
        super().__init__(error_class, message, hint=hint)
        self.exit_code = exit_code

    @classmethod
    def unknown_pipeline(cls, name: str, known: Sequence[str]) -> CommandError:
        hint = did_you_mean(name, list(known)) if known else "none runs here; start one with `midstream run`,"
        return cls(
            "UNKNOWN_PIPELINE",
            f"No pipeline '{name}' runs on this machine.",
            hint=hint if known else f"{hint} or name another machine's with --server.",
            exit_code=Exit.UNREACHABLE,
        )

    @classmethod
    def process_gone(cls, name: str, pid: int) -> CommandError:
        return cls(
            "PIPELINE_GONE",
            f"The process {pid} of pipeline '{name}' is gone; its run file was left behind, and is removed now.",
            hint="start it again on its checkpoint: it goes on where it was.",
            exit_code=Exit.UNREACHABLE,
        )

    @classmethod
    def no_token(cls, url: str) -> CommandError:
        return cls(
            "NO_TOKEN",
            f"There is no token for {url}.",
            hint="give --token-file or set MIDSTREAM_TOKEN; `midstream run` prints the token when it starts.",
            exit_code=Exit.NOT_ALLOWED,
        )

    @classmethod
    def bad_address(cls, url: str, why: object) -> CommandError:
        return cls(
            "BAD_ADDRESS",
            f"'{url}' is no address of a server: {why}.",
            hint="give http://host:port or https://host:port.",
            exit_code=Exit.USAGE,
        )

    @classmethod
    def unreadable(cls, path: object, cause: object) -> CommandError:
        return cls("FILE_NOT_READABLE", f"{path} cannot be read: {cause}.", exit_code=Exit.USAGE)

    @classmethod
    def not_writable(cls, path: object, cause: object) -> CommandError:
        return cls("FILE_NOT_WRITABLE", f"{path} cannot be written: {cause}.")

    @classmethod
    def unreachable(cls, url: str, cause: object) -> CommandError:
        told = str(cause) or type(cause).__name__
        hint = "check that the pipeline runs (`midstream ls`) and that --server is its address."
        if "CERTIFICATE_VERIFY_FAILED" in told:
            hint = "give the certificate, or that of its issuer, with --cafile."
        return cls("SERVER_UNREACHABLE", f"No connection to {url}: {told}.", hint=hint, exit_code=Exit.UNREACHABLE)

    @classmethod
    def no_answer(cls, url: str, seconds: float | None) -> CommandError:
        within = f" within {seconds:g} s" if seconds is not None else ""
        return cls(
            "NO_ANSWER",
            f"{url} did not answer{within}.",
            hint="the driver may be busy or suspended; look at its log and try again.",
            exit_code=Exit.UNREACHABLE,
        )

    @classmethod
    def strange_answer(cls, url: str, status: int, text: str) -> CommandError:
        return cls(
            "STRANGE_ANSWER",
            f"{url} answered {status} with something that is not midstream's: {text[:200]!r}",
            hint="check the address, and that both ends have the same version of midstream.",
        )

    @classmethod
    def refused(cls, code: str, message: str, hint: str | None, exit_code: Exit) -> CommandError:
        return cls(code, message, hint=hint, exit_code=exit_code)

    @classmethod
    def not_applied(cls, id: int, phase: str, reason: str | None, exit_code: Exit) -> CommandError:
        told = {"undone": "was applied and then undone", "rolled_back": "was rolled back"}.get(phase, f"was {phase}")
        return cls(
            f"CHANGE_{phase.upper()}",
            f"Change {id} {told}: {reason or 'no reason was given'}",
            # What was wrong with it often comes with a hint of its own.
            hint=None if reason and "Hint: " in reason else "the pipeline runs on as it was before.",
            exit_code=exit_code,
        )

    @classmethod
    def still_under_way(cls, what: str, seconds: float, hint: str) -> CommandError:
        return cls("TIMED_OUT", f"{what} after {seconds:g} s.", hint=hint, exit_code=Exit.UNDER_WAY)

    @classmethod
    def bad_change_file(cls, path: object, what: str, hint: str | None = None) -> CommandError:
        return cls("BAD_CHANGE_FILE", f"{path}: {what}", hint=hint, exit_code=Exit.USAGE)

    @classmethod
    def no_shadow(cls, name: str) -> CommandError:
        return cls(
            "NO_SHADOW",
            f"No shadow runs beside '{name}'.",
            hint=f"start one: midstream shadow {name} replace STEP --with FILE.py:NAME.",
        )

    @classmethod
    def shadow_failed(cls, error: str) -> CommandError:
        return cls("SHADOW_ENDED", f"The shadow has ended: {error}", hint="the pipeline itself was not touched.")
