"""From what Spark raises to what midstream tells: the error of a task or of the epoch, found in Spark's wrapping."""

from __future__ import annotations

import re

from midstream import errors
from midstream.errors import MidstreamError

_TOLD = re.compile(
    r"midstream\.errors\.(?P<kind>\w+): \[(?P<name>[A-Z_]+)\] (?P<message>.*?)(?:\n\nHint: (?P<hint>[^\n]*))?(?=\n\s*$|\n\tat |\n\n|\Z)",
    re.DOTALL,
)


def as_midstream_error(error: BaseException) -> MidstreamError:
    """The midstream error behind an exception, or one that carries Spark's message."""
    if isinstance(error, MidstreamError):
        return error
    text = str(error)
    told = _TOLD.search(text)
    if told:
        kind = getattr(errors, told["kind"], MidstreamError)
        found: MidstreamError = kind(told["name"], told["message"].strip(), hint=told["hint"])
        return found
    if "CONCURRENT_STREAM_LOG_UPDATE" in text or "Multiple streaming jobs detected" in text:
        return errors.CheckpointError(
            "CHECKPOINT_TAKEN_OVER",
            "Another driver runs this checkpoint: Spark's offset log was written by it.",
            hint="stop one of the two, or give them different checkpoints.",
        )
    return MidstreamError("EPOCH_FAILED", text, hint="nothing of this epoch was committed; start again to retry it.")
