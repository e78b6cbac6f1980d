"""Exit codes: what a script can go by without reading what is printed."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    UNREACHABLE = 3
    REJECTED = 4
    ROLLED_BACK = 5
    UNDER_WAY = 6
    NOT_ALLOWED = 7


MEANINGS = {
    Exit.OK: "done",
    Exit.ERROR: "an error not named below",
    Exit.USAGE: "wrong use of the command, or a wrong file of changes; nothing was sent",
    Exit.UNREACHABLE: "the pipeline is not known, or its server does not answer",
    Exit.REJECTED: "the change was rejected or cancelled; the pipeline runs on as it was",
    Exit.ROLLED_BACK: "the change was applied and taken back; the pipeline runs on as it was",
    Exit.UNDER_WAY: "not done within --timeout; it goes on by itself",
    Exit.NOT_ALLOWED: "the token is missing, wrong, or of a reader",
}
