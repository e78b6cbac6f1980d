"""Errors of pipelines as they are written."""

from __future__ import annotations

from difflib import get_close_matches

from midstream.errors.base import MidstreamError, did_you_mean


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
            f"Step '{step}' is keyed by '{column}' of type {type_}. Maps, variants, strings with a collation, intervals"
            " of months and the type of a bare NULL cannot be keys.",
            hint="key by parts of it, or by a text or number made of it (to_json, lower, CAST) in a transform step.",
        )

    @classmethod
    def bad_duration(cls, what: str, given: object, least: int) -> GraphError:
        bound = "greater than 0" if least else "0 or more"
        return cls(
            "BAD_DURATION",
            f"{what[0].upper()}{what[1:]} is {given!r}, which is no length of time {bound}.",
            hint="write '10 seconds', '1 hour 30 minutes', or give a timedelta; months and years have no fixed length.",
        )

    @classmethod
    def bad_slide(cls, size: object, slide: object) -> GraphError:
        return cls(
            "BAD_SLIDE",
            f"Windows of {size} of which one begins every {slide} leave rows between them out.",
            hint="make the slide no longer than the size.",
        )

    @classmethod
    def no_watermark(cls, step: str) -> GraphError:
        return cls(
            "NO_WATERMARK",
            f"Step '{step}' has windows, but no source above it has a watermark, so that no window would ever close.",
            hint='give it one: source("bids", load, event_time="at", delay="10 seconds").',
        )

    @classmethod
    def bad_session(cls, step: str) -> GraphError:
        return cls(
            "BAD_SESSION",
            f"The sessions of step '{step}' have no key, or are to give results before they are over.",
            hint="write key_by(…).window(session(…)), and leave emit as it is.",
        )

    @classmethod
    def bad_count(cls, given: object) -> GraphError:
        return cls("BAD_TRIGGER", f"A result after {given!r} rows is none.", hint="give a whole number from 1 on.")

    @classmethod
    def bad_trigger(cls, step: str, why: str) -> GraphError:
        return cls(
            "BAD_TRIGGER",
            f"The global window of '{step}' has a trigger that {why}.",
            hint="use every_epoch() for retractions, and after_rows(n) for a function of rows.",
        )

    @classmethod
    def bad_clock(cls) -> GraphError:
        return cls(
            "BAD_CLOCK",
            "Windows by the clock take no column of time and no lateness, and have a start and an end of their own.",
            hint="use tumbling, sliding or session windows with clock='processing' alone.",
        )

    @classmethod
    def bad_timer(cls, step: str, timer: str, why: str) -> GraphError:
        return cls(
            "BAD_TIMER",
            f"Step '{step}' cannot have the timer '{timer}': {why}.",
            hint="name a timestamp column of its one table of state.",
        )

    @classmethod
    def bad_top(cls, step: str, n: object, by: object) -> GraphError:
        return cls(
            "BAD_TOP",
            f"'{step}' is to give the first {n} rows by {by!r}.",
            hint="give a number from 1 on, and names of columns.",
        )

    @classmethod
    def bad_join(cls, step: str) -> GraphError:
        return cls(
            "BAD_JOIN",
            f"It is not clear which rows '{step}' joins, or for how long they are kept for it.",
            hint="give it one of window=tumbling(…) or sliding(…), within=(before, after), and for an inner join that"
            " keeps both streams for good keep_all=True.",
        )

    @classmethod
    def same_names(cls, step: str, names: list[str]) -> GraphError:
        return cls(
            "SAME_COLUMN_NAMES",
            f"Both sides of the join '{step}' have {', '.join(names)}.",
            hint="rename them on one side in a transform step.",
        )

    @classmethod
    def other_key_type(cls, step: str, key: str, left: str, right: str) -> GraphError:
        return cls(
            "OTHER_KEY_TYPE",
            f"The join '{step}' is by '{key}', which is {left} on its left side and {right} on its right.",
            hint="cast it on one side in a transform step.",
        )

    @classmethod
    def open_loop(cls, begun: list[str], closed: list[str]) -> GraphError:
        return cls(
            "OPEN_LOOP",
            f"The loops {', '.join(begun) or 'none'} begin, and {', '.join(closed) or 'none'} are fed back into.",
            hint="end one stream with .feedback('id', to=…) for every loop, and join the parts with pipeline(…).",
        )

    @classmethod
    def no_loop(cls, id: str, step: str) -> GraphError:
        return cls(
            "NOT_A_LOOP",
            f"'{id}' feeds back into '{step}', which is no loop.",
            hint="begin one with midstream.loop('id', schema), and union it with the stream its rows are to join.",
        )

    @classmethod
    def bad_feedback(cls, id: str, loop: str, told: str) -> GraphError:
        return cls(
            "OTHER_COLUMNS_FED_BACK",
            f"'{id}' feeds back other rows than the loop '{loop}' has: {told}.",
            hint="select the columns of the loop, in their types, in a step before it.",
        )

    @classmethod
    def nothing_is_late(cls, id: str, step: str) -> GraphError:
        return cls(
            "NOTHING_IS_LATE",
            f"'{id}' asks for the rows that came too late for '{step}', which has no windows of fixed length.",
            hint="call late(…) on what key_by(…).window(tumbling(…)).aggregate(…) gave.",
        )

    @classmethod
    def which_time(cls, step: str, found: list[str]) -> GraphError:
        return cls(
            "WHICH_EVENT_TIME",
            f"The sources above step '{step}' have the event times {found}.",
            hint='name the column that is meant: window(…, time="at").',
        )

    @classmethod
    def bad_event_time(cls, where: str, column: str, found: str) -> GraphError:
        return cls(
            "BAD_EVENT_TIME",
            f"{where} takes '{column}' for its event time, which is {found}.",
            hint="name a column of type timestamp or timestamp_ntz; make one with to_timestamp or timestamp_micros.",
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
