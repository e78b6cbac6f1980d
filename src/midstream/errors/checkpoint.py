"""Errors of checkpoints: what lies in them."""

from __future__ import annotations

from midstream.errors.base import MidstreamError


class CheckpointError(MidstreamError):
    """The checkpoint does not fit: damaged, newer, of another pipeline, or taken over by another driver."""

    @classmethod
    def damaged_segment(cls, path: str, url: str, reason: str) -> CheckpointError:
        return cls(
            "DAMAGED_SEGMENT",
            f"The state segment {path} in {url} cannot be used: {reason}. Nothing was committed.",
            hint="restore this file from a copy, or start from an earlier retained epoch that does not need it.",
        )

    @classmethod
    def missing_segment(cls, path: str, url: str) -> CheckpointError:
        return cls(
            "MISSING_SEGMENT",
            f"The manifest names the state segment {path}, but {url} does not have it. Nothing was committed.",
            hint="restore this file from a copy, or start from an earlier retained epoch that does not need it.",
        )

    @classmethod
    def damaged_manifest(cls, path: str, cause: Exception) -> CheckpointError:
        return cls(
            "DAMAGED_MANIFEST",
            f"The manifest {path} cannot be read: {type(cause).__name__}: {cause}.",
            hint="restore this file from a copy; nothing was changed.",
        )

    @classmethod
    def damaged_file(cls, path: str, cause: Exception) -> CheckpointError:
        return cls(
            "DAMAGED_CHECKPOINT",
            f"{path} of the checkpoint cannot be read: {type(cause).__name__}: {cause}.",
            hint="restore this file from a copy; nothing was changed.",
        )

    @classmethod
    def bad_conversion(cls, what: str) -> CheckpointError:
        return cls(
            "BAD_STATE_CONVERSION",
            f"State of an earlier schema cannot be converted: {what}.",
            hint="the function given as convert= takes a pyarrow table of old rows and gives one of as many new rows.",
        )

    @classmethod
    def newer_format(cls, path: str, found: int, known: int) -> CheckpointError:
        return cls(
            "NEWER_FORMAT",
            f"{path} has format {found}; this midstream reads formats up to {known}.",
            hint="upgrade midstream; the checkpoint was left untouched.",
        )

    @classmethod
    def taken_over(cls, loser: object, winner: object, epoch: int) -> CheckpointError:
        return cls(
            "CHECKPOINT_TAKEN_OVER",
            f"Another driver runs this checkpoint: {winner}. It holds epoch {epoch}; this driver ({loser}) has"
            " stopped and committed nothing there.",
            hint="stop one of the two, or give them different checkpoints.",
        )

    @classmethod
    def epoch_gap(cls, given: int, last: int) -> CheckpointError:
        return cls(
            "EPOCH_GAP",
            f"Spark asks for epoch {given}, but the last committed epoch is {last}.",
            hint="Spark's offset log (the spark/ folder) and the manifests belong together: restore both or neither.",
        )

    @classmethod
    def other_spark_log(cls, directory: object, found: str, last: int) -> CheckpointError:
        return cls(
            "EPOCH_GAP",
            f"The last committed epoch is {last}, but Spark's log in {directory} {found}.",
            hint="Spark's log (the spark/ folder) and the manifests belong together: restore both or neither.",
        )

    @classmethod
    def other_pipeline(cls, url: str, given: object, found: object) -> CheckpointError:
        return cls(
            "CHECKPOINT_OF_ANOTHER_PIPELINE",
            f"The checkpoint {url} belongs to a pipeline with {found}; this one has {given}.",
            hint="give this pipeline a checkpoint of its own.",
        )

    @classmethod
    def source_changed(cls, source: str, differences: str) -> CheckpointError:
        return cls(
            "SOURCE_SCHEMA_CHANGED",
            f"The schema of source '{source}' is not what this checkpoint was made with: {differences}.",
            hint="restore the schema, or start with a new checkpoint. Nothing was read or changed.",
        )

    @classmethod
    def state_changed(cls, step: str, differences: str) -> CheckpointError:
        return cls(
            "STATE_SCHEMA_CHANGED",
            f"The state of step '{step}' does not fit what this checkpoint holds: {differences}.",
            hint="restore the step, give it a new id, or start with a new checkpoint. Nothing was changed.",
        )

    @classmethod
    def no_such_state(cls, what: str, known: object) -> CheckpointError:
        return cls("NO_SUCH_STATE", f"There is no {what} in this checkpoint.", hint=f"there is: {known}.")

    @classmethod
    def bad_filter(cls, column: str, given: str, kind: str) -> CheckpointError:
        return cls(
            "BAD_FILTER",
            f"'{given}' is no value of column '{column}', which is of type {kind}.",
            hint="write it as that type, or null for rows without a value.",
        )

    @classmethod
    def bad_where(cls, given: str) -> CheckpointError:
        return cls("BAD_FILTER", f"The filter '{given}' names no value.", hint="write column=value.")
