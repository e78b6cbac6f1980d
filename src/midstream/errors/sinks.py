"""Errors of sinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from midstream.errors.base import MidstreamError, quoted, sentence


class SinkError(MidstreamError):
    """A sink could not be prepared or written."""

    @classmethod
    def missing_extra(cls, sink: str, package: str) -> SinkError:
        return cls(
            "MISSING_PACKAGE",
            f"The {sink} sink needs the package '{package}', which is not installed.",
            hint=f"pip install 'midstream[{sink}]'",
        )

    @classmethod
    def unknown_mode(cls, sink: str, given: str, known: Iterable[str]) -> SinkError:
        return cls(
            "UNKNOWN_SINK_MODE", f"The {sink} sink has no mode '{given}'.", hint=f"use one of: {', '.join(known)}."
        )

    @classmethod
    def remote_parquet(cls, path: str) -> SinkError:
        return cls(
            "PARQUET_NEEDS_DIRECTORY",
            f"The parquet sink cannot write to {path}: an epoch appears by renaming a directory, which object"
            " stores cannot do.",
            hint="use ms.sinks.delta(...) there, or a local or shared directory.",
        )

    @classmethod
    def bad_epoch_column(cls, name: str) -> SinkError:
        return cls(
            "BAD_EPOCH_COLUMN",
            f"'{name}' cannot name the folders of epochs: readers would skip or misread them.",
            hint="begin with a letter or digit and leave out '/', '\\', '=', '%' and spaces.",
        )

    @classmethod
    def epoch_column_taken(cls, column: str, epoch_column: str) -> SinkError:
        return cls(
            "EPOCH_COLUMN_TAKEN",
            f"The stream has a column '{column}', and '{epoch_column}' is to name the epoch of each row.",
            hint="rename the column in a step before the sink, or give parquet(..., epoch_column=...).",
        )

    @classmethod
    def duplicate_columns(cls, names: Iterable[str]) -> SinkError:
        return cls(
            "DUPLICATE_COLUMNS",
            f"Columns that cannot be told apart: {quoted(names)}.",
            hint="rename them in a step before the sink; Spark and Delta do not distinguish upper and lower case.",
        )

    @classmethod
    def unsupported_type(cls, target: str, column: str, kind: object) -> SinkError:
        return cls(
            "UNSUPPORTED_COLUMN_TYPE",
            f"{target} has no type for the column '{column}' of type {kind}.",
            hint="cast the column in a step before the sink, for instance to string.",
        )

    @classmethod
    def owned_by_other(cls, target: str, owner: Mapping[str, str], ours: Mapping[str, str]) -> SinkError:
        differences = ", ".join(f"{name} {owner.get(name)!r} and not {ours[name]!r}" for name in ours)
        return cls(
            "SINK_OWNED_BY_ANOTHER",
            f"{target} is written by another pipeline: {differences}. Their epochs would be taken for each other's.",
            hint="give each pipeline a directory of its own; to start over, remove this one and the checkpoint.",
        )

    @classmethod
    def unknown_epochs(cls, target: str, marker: str) -> SinkError:
        return cls(
            "SINK_WITH_UNKNOWN_EPOCHS",
            f"{target} holds epochs, but {marker}, which says whose they are, is missing.",
            hint="write to a new directory; if you have moved this one, move the other along.",
        )

    @classmethod
    def ahead(cls, target: str, epoch: int, last_epoch: int) -> SinkError:
        return cls(
            "SINK_AHEAD_OF_CHECKPOINT",
            f"{target} holds epoch {epoch}, the checkpoint has come to {last_epoch}: it is an older copy, and its next"
            " epochs would be taken for those already written.",
            hint="use the newest checkpoint, or write to a new target.",
        )

    @classmethod
    def staging_on_other_device(cls, target: str, staging: str) -> SinkError:
        return cls(
            "PARQUET_NEEDS_ONE_FILE_SYSTEM",
            f"{target} and {staging} lie on different file systems, so an epoch cannot move between them at once.",
            hint="write to a folder inside the mounted one.",
        )

    @classmethod
    def staged_file_lost(cls, path: str, epoch: int) -> SinkError:
        return cls(
            "STAGED_FILE_LOST",
            f"The manifest of epoch {epoch} names the staged file {path}, which does not exist any more.",
            hint="restore it from a copy; midstream removes such files only after the epoch is in the sink.",
        )

    @classmethod
    def schema_mismatch(cls, target: str, problems: Iterable[str], hint: str) -> SinkError:
        return cls("SINK_SCHEMA_MISMATCH", f"The stream does not fit {target}: {'; '.join(problems)}.", hint=hint)

    @classmethod
    def no_keys(cls, sink_id: str) -> SinkError:
        return cls(
            "NO_UPSERT_KEYS",
            f"The sink '{sink_id}' is to upsert, but no key columns are known.",
            hint="give keys=[...], or put the sink after a keyed step.",
        )

    @classmethod
    def unknown_keys(cls, sink_id: str, unknown: Iterable[str], columns: Iterable[str]) -> SinkError:
        return cls(
            "UNKNOWN_UPSERT_KEYS",
            f"The sink '{sink_id}' is to upsert by {quoted(unknown)}, but the stream has {quoted(columns)}.",
            hint="give the names as the stream has them, or keep the key columns in the steps before the sink.",
        )

    @classmethod
    def complete_append(cls, sink_id: str) -> SinkError:
        return cls(
            "APPEND_OF_COMPLETE_RESULT",
            f"The sink '{sink_id}' is to append, but every epoch holds the whole result: all rows would be there again"
            " after each epoch.",
            hint="use mode='overwrite', or the output mode of changed keys with mode='upsert'.",
        )

    @classmethod
    def append_only(cls, target: str, mode: str) -> SinkError:
        return cls(
            "TABLE_IS_APPEND_ONLY",
            f"{target} is append-only (delta.appendOnly), and the mode '{mode}' changes rows.",
            hint="use mode='append', or lift the table property.",
        )

    @classmethod
    def no_unique_index(cls, table: str, keys: Iterable[str], wanted: str) -> SinkError:
        return cls(
            "NO_UNIQUE_INDEX",
            f"{table} has no unique index on {quoted(keys)} that an upsert can use.",
            hint=f"create it: {wanted}",
        )

    @classmethod
    def nulls_distinct(cls, table: str, keys: Iterable[str], wanted: str) -> SinkError:
        return cls(
            "UNIQUE_INDEX_TELLS_NULLS_APART",
            f"The unique index of {table} on {quoted(keys)} lets null keys in more than once, so the group of null"
            " keys would pile up.",
            hint=f"make the columns NOT NULL, or replace the index: {wanted}",
        )

    @classmethod
    def old_postgres(cls, version: int) -> SinkError:
        return cls(
            "POSTGRES_TOO_OLD",
            f"PostgreSQL {version} has no unique index with NULLS NOT DISTINCT, which upserts with null keys need.",
            hint="use PostgreSQL 15 or newer, or create the table yourself with a primary key (no null keys then).",
        )

    @classmethod
    def bad_target(cls, sink: str, given: str, expected: str) -> SinkError:
        return cls("BAD_SINK_TARGET", f"The {sink} sink cannot use '{given}'.", hint=f"expected {expected}.")

    @classmethod
    def bad_dsn(cls) -> SinkError:
        # Neither the DSN nor the parser's complaint is shown: both may hold the password.
        return cls(
            "BAD_POSTGRES_DSN",
            "The connection string of the postgres sink cannot be parsed (not shown, it may hold a password).",
            hint="expected postgresql://user@host:5432/database or 'host=... dbname=...'.",
        )

    @classmethod
    def unreachable(cls, target: str, cause: object) -> SinkError:
        return cls(
            "SINK_UNREACHABLE",
            f"The sink {target} cannot be reached: {sentence(cause)}",
            hint="check that it exists, that it is up, and the rights of the user.",
        )

    @classmethod
    def write_failed(cls, target: str, epoch: int, cause: object) -> SinkError:
        return cls(
            "SINK_WRITE_FAILED",
            f"Epoch {epoch} could not be written to {target}: {sentence(cause)}",
            hint="remove the cause and start again: the epoch is committed and will be written, not computed anew.",
        )

    @classmethod
    def function_failed(cls, sink_id: str, function: str, epoch: int, cause: Exception) -> SinkError:
        return cls(
            "EPOCH_FUNCTION_FAILED",
            f"{function} of the sink '{sink_id}' raised {type(cause).__name__} in epoch {epoch}: {sentence(cause)}",
            hint="correct it and start again: it will be called with the same epoch and the same rows.",
        )
