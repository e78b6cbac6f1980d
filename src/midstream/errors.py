"""Every error a user can meet: what was given, what was expected, what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches


class MidstreamError(Exception):
    """An error with a class in capitals, a message and a hint.

    >>> print(MidstreamError("UNKNOWN_STEP", "No step 'totls'.", hint="did you mean 'totals'?"))
    [UNKNOWN_STEP] No step 'totls'.
    <BLANKLINE>
    Hint: did you mean 'totals'?
    """

    def __init__(self, error_class: str, message: str, *, hint: str | None = None) -> None:
        self.error_class = error_class
        # Causes of other libraries come with blank lines, which set off the hint here.
        self.message = re.sub(r"\n\s*\n", "\n", message)
        self.hint = hint
        super().__init__(error_class, self.message)

    def __str__(self) -> str:
        text = f"[{self.error_class}] {self.message}"
        return f"{text}\n\nHint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling of exceptions, and errors cross processes.
        return _rebuild, (type(self), self.error_class, self.message, self.hint)


def _rebuild(kind: type[MidstreamError], error_class: str, message: str, hint: str | None) -> MidstreamError:
    return kind(error_class, message, hint=hint)


def did_you_mean(given: str, known: list[str]) -> str:
    """A hint that names the nearest known word, or all of them."""
    near = get_close_matches(given, known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known are: {', '.join(known)}."


class GraphError(MidstreamError):
    """The pipeline as written cannot run."""

    @classmethod
    def bad_id(cls, given: object) -> GraphError:
        return cls(
            "BAD_STEP_ID",
            f"{given!r} cannot name a step.",
            hint="use a letter, then letters, digits, '_', '-' or '.', at most 64 characters; state is kept under it.",
        )

    @classmethod
    def duplicate_id(cls, id: str) -> GraphError:
        return cls("DUPLICATE_STEP_ID", f"Two steps are named '{id}'.", hint="give every step an id of its own.")

    @classmethod
    def bad_keys(cls, given: object) -> GraphError:
        return cls(
            "BAD_KEY",
            f"key_by takes names of columns, but was given {given!r}.",
            hint="compute an expression in a transform step first, then name its column.",
        )

    @classmethod
    def unknown_key(cls, step: str, column: str, known: list[str]) -> GraphError:
        return cls(
            "UNKNOWN_KEY_COLUMN",
            f"Step '{step}' is keyed by '{column}', which its input does not have.",
            hint=did_you_mean(column, known),
        )

    @classmethod
    def key_type(cls, step: str, column: str, type_: str) -> GraphError:
        return cls(
            "BAD_KEY_TYPE",
            f"Step '{step}' is keyed by '{column}' of type {type_}; maps and variants cannot be keys.",
            hint="key by parts of it, or by to_json(…) of it, computed in a transform step.",
        )

    @classmethod
    def not_streaming(cls, id: str) -> GraphError:
        return cls(
            "NOT_A_STREAM",
            f"Source '{id}' did not give a streaming DataFrame.",
            hint="use spark.readStream; join static DataFrames inside a transform step.",
        )

    @classmethod
    def no_aggregates(cls, id: str) -> GraphError:
        return cls("NO_AGGREGATES", f"The aggregate '{id}' computes nothing.", hint='add one: n=F.count("*").')

    @classmethod
    def name_clash(cls, id: str, names: list[str]) -> GraphError:
        return cls(
            "DUPLICATE_COLUMN", f"Step '{id}' has {', '.join(names)} as key and as result.", hint="rename the result."
        )

    @classmethod
    def not_callable(cls, id: str, given: object) -> GraphError:
        return cls(
            "NOT_A_FUNCTION",
            f"Step '{id}' needs a function, but was given {given!r}.",
            hint="give the function itself, not its name and not what it returns.",
        )

    @classmethod
    def bad_parallelism(cls, id: str, given: object) -> GraphError:
        return cls("BAD_PARALLELISM", f"Step '{id}' cannot have {given!r} partitions.", hint="give 1 to 4096.")

    @classmethod
    def bad_schema(cls, id: str, what: str, given: object, cause: object) -> GraphError:
        return cls(
            "BAD_SCHEMA",
            f"The {what} schema {given!r} of step '{id}' is not understood: {cause}",
            hint='give DDL such as "n bigint, last timestamp", a StructType or a pyarrow schema.',
        )

    @classmethod
    def step_failed(cls, id: str, cause: object) -> GraphError:
        return cls(
            "STEP_NOT_VALID",
            f"Step '{id}' cannot be planned: {cause}",
            hint="correct the step; nothing of this epoch, if one was under way, was committed.",
        )

    @classmethod
    def unknown_aggregate(cls, name: str, function: str, known: list[str]) -> GraphError:
        near = get_close_matches(function, known, n=1, cutoff=0.7)
        return cls(
            "UNKNOWN_AGGREGATE",
            f"The aggregate '{name}' calls {function}, which midstream cannot keep up to date.",
            hint=(f"did you mean '{near[0]}'? " if near else "")
            + f"There are {', '.join(known)}; write others with midstream.fold(…).",
        )

    @classmethod
    def bad_aggregate(cls, name: str, problem: str, hint: str) -> GraphError:
        return cls("BAD_AGGREGATE", f"The aggregate '{name}' {problem}.", hint=hint)

    @classmethod
    def not_one_aggregate(cls, name: str, given: str) -> GraphError:
        return cls(
            "NOT_ONE_AGGREGATE",
            f"The aggregate '{name}' is {given}, which is not a call of one aggregate function.",
            hint="name the aggregates it is made of, and compute it from them in a transform after this step.",
        )

    @classmethod
    def expression_not_sql(cls, name: str, given: str) -> GraphError:
        return cls(
            "EXPRESSION_NOT_SQL",
            f"The aggregate '{name}' uses the expression {given}, which has no faithful SQL text.",
            hint="compute it in a transform step first, then name its column; or write the aggregate as SQL text.",
        )

    @classmethod
    def aggregate_not_analysed(cls, name: str, sql: str, cause: object) -> GraphError:
        return cls(
            "AGGREGATE_NOT_VALID",
            f"The aggregate '{name}', {sql}, does not fit its input: {cause}",
            hint="compute what it needs in a transform step before this one.",
        )

    @classmethod
    def bad_fold(cls, problem: str, hint: str) -> GraphError:
        return cls("BAD_FOLD", f"A fold {problem}.", hint=hint)


class StoreError(MidstreamError):
    """The store of a checkpoint could not be read or written."""

    @classmethod
    def missing(cls, path: str, url: str) -> StoreError:
        return cls(
            "MISSING_OBJECT",
            f"There is no object {path} in {url}.",
            hint="check that this is the right store; if the object was deleted, restore it from a copy.",
        )

    @classmethod
    def unreadable(cls, path: str, url: str, cause: object) -> StoreError:
        return cls(
            "STORE_NOT_READABLE",
            f"The object {path} in {url} could not be read: {cause}.",
            hint="check the permissions and the health of the file system; nothing was changed.",
        )

    @classmethod
    def not_writable(cls, url: str, cause: object) -> StoreError:
        return cls(
            "STORE_NOT_WRITABLE",
            f"The store {url} cannot be written: {cause}. Nothing was committed.",
            hint="give the user of the driver and executors write access there, or use another location.",
        )

    @classmethod
    def disk_full(cls, url: str, cause: object) -> StoreError:
        return cls(
            "DISK_FULL",
            f"The store {url} has no space left: {cause}. Nothing was committed.",
            hint="free or add space, then start again: the epoch that failed will be run once more.",
        )

    @classmethod
    def no_atomic_create(cls, url: str, cause: object) -> StoreError:
        return cls(
            "NO_ATOMIC_CREATE",
            f"The store {url} cannot create an object only if it is absent: {cause}. Commits rest on that.",
            hint="use a file system with hard links, or an S3 store with conditional writes (If-None-Match).",
        )

    @classmethod
    def unreachable(cls, url: str, endpoint: str, cause: object) -> StoreError:
        return cls(
            "STORE_UNREACHABLE",
            f"No answer from {endpoint} for the store {url}: {cause}.",
            hint="check the option 'endpoint' (or AWS_ENDPOINT_URL), the network and that the server runs.",
        )

    @classmethod
    def access_denied(cls, url: str, cause: object) -> StoreError:
        return cls(
            "STORE_ACCESS_DENIED",
            f"The store {url} refused the request: {cause}. Nothing was committed.",
            hint="check the options 'access_key_id' and 'secret_access_key' (or AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY), and that they may read, write, list and delete there.",
        )

    @classmethod
    def missing_bucket(cls, url: str, bucket: str) -> StoreError:
        return cls(
            "MISSING_BUCKET",
            f"There is no bucket '{bucket}' for the store {url}.",
            hint="create the bucket, or check its name and the option 'endpoint'.",
        )

    @classmethod
    def failed(cls, url: str, cause: object) -> StoreError:
        return cls(
            "STORE_FAILED",
            f"The store {url} failed: {cause}.",
            hint="check the health of the store, then start again: an epoch not committed is run once more.",
        )

    @classmethod
    def forked(cls, url: str) -> StoreError:
        return cls(
            "STORE_USED_AFTER_FORK",
            f"The S3 client used for {url} belongs to the parent process and does not survive a fork.",
            hint="start the process with multiprocessing's 'spawn' or 'forkserver' method.",
        )

    @classmethod
    def unknown_scheme(cls, url: str, scheme: str) -> StoreError:
        return cls(
            "UNKNOWN_STORE",
            f"No store for '{scheme}:' in {url}.",
            hint="use a directory (dir/ or file:///dir) or s3://bucket/prefix.",
        )

    @classmethod
    def bad_url(cls, url: str, reason: str) -> StoreError:
        return cls("BAD_STORE_URL", f"The store URL {url} {reason}.", hint="use file:///dir or s3://bucket/prefix.")

    @classmethod
    def unknown_option(cls, url: str, option: str, known: Iterable[str]) -> StoreError:
        names = sorted(known)
        near = get_close_matches(option, names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known options: {', '.join(names)}."
        return cls("UNKNOWN_STORE_OPTION", f"The store {url} has no option '{option}'.", hint=hint)

    @classmethod
    def bad_option(cls, url: str, option: str, expected: str) -> StoreError:
        # The value is left out: options carry secrets.
        return cls(
            "BAD_STORE_OPTION",
            f"The option '{option}' of the store {url} has a value that cannot be used.",
            hint=f"expected {expected}.",
        )

    @classmethod
    def bad_path(cls, path: str) -> StoreError:
        return cls(
            "BAD_OBJECT_PATH",
            f"'{path}' cannot name an object.",
            hint="paths are relative, have single '/', no part '.' or '..', and do not begin with '.tmp'.",
        )

    @classmethod
    def bad_cache(cls, directory: object, reason: object) -> StoreError:
        return cls(
            "CACHE_NOT_USABLE",
            f"The cache directory {directory} cannot be used: {reason}.",
            hint="set MIDSTREAM_CACHE_DIR to a directory of your own.",
        )

    @classmethod
    def bad_cache_size(cls, given: str) -> StoreError:
        return cls(
            "BAD_CACHE_SIZE",
            f"MIDSTREAM_CACHE_BYTES is '{given}', not a number of bytes.",
            hint="give a whole number greater than 0, such as 8589934592 for 8 GiB.",
        )


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


class UserFunctionError(MidstreamError):
    """A function given by the user raised or returned the wrong thing."""

    @classmethod
    def raised(cls, step: str, function: str, where: str, cause: BaseException) -> UserFunctionError:
        return cls(
            "USER_FUNCTION_FAILED",
            f"The function {function} of step '{step}' raised {type(cause).__name__} at {where}: {cause}",
            hint="the epoch was not committed; fix the function and start again, it will be run once more.",
        )

    @classmethod
    def wrong_result(cls, step: str, function: str, expected: str, given: str) -> UserFunctionError:
        return cls(
            "WRONG_RESULT",
            f"The function {function} of step '{step}' must return {expected}, but returned {given}.",
            hint="the epoch was not committed; fix the function and start again, it will be run once more.",
        )

    @classmethod
    def not_deterministic(cls, step: str, partition: int) -> UserFunctionError:
        return cls(
            "NOT_DETERMINISTIC",
            f"Partition {partition} of step '{step}' was run more than once and gave different results each time.",
            hint="let it and the steps before it depend on nothing but their rows: no clock, no random numbers, no"
            " order of arrival. The epoch was not committed.",
        )

    @classmethod
    def fold_raised(cls, name: str, function: str, where: str, given: str, cause: Exception) -> UserFunctionError:
        return cls(
            "FOLD_FAILED",
            f"{function} ({where}) of the fold '{name}' raised {type(cause).__name__} on {given}: {cause}",
            hint="the epoch was not committed; fix the function and start again, it will be run once more.",
        )

    @classmethod
    def fold_wrong_type(
        cls, name: str, function: str, where: str, given: str, on: str, expected: str
    ) -> UserFunctionError:
        return cls(
            "FOLD_WRONG_TYPE",
            f"{function} ({where}) of the fold '{name}' gave {given} for {on}, which is not of type {expected}.",
            hint="return values of the declared type, or declare another one. The epoch was not committed.",
        )

    @classmethod
    def sum_overflow(cls, name: str, type_: str, key: object) -> UserFunctionError:
        return cls(
            "ARITHMETIC_OVERFLOW",
            f"{name} of key {key} no longer fits {type_}.",
            hint="sum a wider type: CAST(… AS DECIMAL(38, 0)) or CAST(… AS DOUBLE). The epoch was not committed.",
        )


class EpochError(MidstreamError):
    """An epoch could not be run."""

    @classmethod
    def failed(cls, cause: str) -> EpochError:
        return cls(
            "EPOCH_FAILED", cause, hint="remove the cause and start again: an epoch not committed is run once more."
        )

    @classmethod
    def not_started(cls, cause: str) -> EpochError:
        return cls(
            "QUERY_NOT_STARTED",
            f"Spark did not start the query: {cause}",
            hint="check the trigger and the name given to start(…).",
        )

    @classmethod
    def step_left_out(cls, step: str, found: int, wanted: int) -> EpochError:
        return cls(
            "STEP_LEFT_OUT",
            f"Spark ran {found} of the {wanted} partitions of step '{step}', so part of its state would be missing.",
            hint="this is a defect of midstream; please report it with the pipeline. The epoch was not committed.",
        )


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
            f"Columns that cannot be told apart: {_quoted(names)}.",
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
            f"The sink '{sink_id}' is to upsert by {_quoted(unknown)}, but the stream has {_quoted(columns)}.",
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
            f"{table} has no unique index on {_quoted(keys)} that an upsert can use.",
            hint=f"create it: {wanted}",
        )

    @classmethod
    def nulls_distinct(cls, table: str, keys: Iterable[str], wanted: str) -> SinkError:
        return cls(
            "UNIQUE_INDEX_TELLS_NULLS_APART",
            f"The unique index of {table} on {_quoted(keys)} lets null keys in more than once, so the group of null"
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
            f"The sink {target} cannot be reached: {_sentence(cause)}",
            hint="check that it exists, that it is up, and the rights of the user.",
        )

    @classmethod
    def write_failed(cls, target: str, epoch: int, cause: object) -> SinkError:
        return cls(
            "SINK_WRITE_FAILED",
            f"Epoch {epoch} could not be written to {target}: {_sentence(cause)}",
            hint="remove the cause and start again: the epoch is committed and will be written, not computed anew.",
        )

    @classmethod
    def function_failed(cls, sink_id: str, function: str, epoch: int, cause: Exception) -> SinkError:
        return cls(
            "EPOCH_FUNCTION_FAILED",
            f"{function} of the sink '{sink_id}' raised {type(cause).__name__} in epoch {epoch}: {_sentence(cause)}",
            hint="correct it and start again: it will be called with the same epoch and the same rows.",
        )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _sentence(cause: object) -> str:
    return str(cause).strip().rstrip(".") + "."
