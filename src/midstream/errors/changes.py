"""Errors of changes to a running pipeline. None of them touches the pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from midstream.errors.base import MidstreamError, did_you_mean, quoted


class ChangeError(MidstreamError):
    """A change that cannot be made."""

    @classmethod
    def unknown_step(cls, what: str, id: str, known: list[str]) -> ChangeError:
        return cls(
            "UNKNOWN_STEP", f"Cannot {what}: there is no step '{id}' in the pipeline.", hint=did_you_mean(id, known)
        )

    @classmethod
    def id_taken(cls, id: str, kind: str) -> ChangeError:
        return cls(
            "STEP_EXISTS",
            f"Cannot insert '{id}': the pipeline has a {kind} step of that name.",
            hint=f"choose another id, or Replace('{id}', …).",
        )

    @classmethod
    def no_place(cls, id: str, given: Sequence[str]) -> ChangeError:
        told = f"{quoted(given)} together" if given else "nothing"
        return cls(
            "NO_PLACE",
            f"Cannot insert '{id}': a step needs one place, and {told} was given.",
            hint="give one of after='step', before='step', between=('step', 'step'); into='union' for a source.",
        )

    @classmethod
    def bad_build(cls, id: str, why: str) -> ChangeError:
        return cls(
            "BAD_STEP",
            f"What is to be made '{id}' is no single step: {why}.",
            hint=f"give build=lambda input: input.key_by(…).dedup('{id}'), with reads=[…] for other streams it takes.",
        )

    @classmethod
    def drain_with_hand_over(cls, change: str) -> ChangeError:
        return cls(
            "CANNOT_DRAIN",
            f"'{change}' reads other sources, so that no epoch of the pipeline as it is comes before it.",
            hint="drain the windows with a change of its own first, or leave on_open_windows out.",
        )

    @classmethod
    def indivisible(cls, id: str, why: str) -> ChangeError:
        return cls(
            "CANNOT_SPLIT_KEYS",
            f"Keys of '{id}' are, or would be, in parts on several instances, which cannot be: {why}.",
            hint=f"put them together first, with Rebalance('{id}', split=False) as a change of its own; count, sum,"
            " avg, min, max, stddev, variance and count_distinct of one expression can be in parts.",
        )

    @classmethod
    def no_body(cls, id: str, given: Sequence[str], expected: str) -> ChangeError:
        told = f"{quoted(given)} together" if given else "nothing"
        return cls("NO_BODY", f"What '{id}' is to do is not clear: {told} was given.", hint=f"give {expected}.")

    @classmethod
    def no_edge(cls, id: str, upper: str, lower: str, inputs: Sequence[str]) -> ChangeError:
        return cls(
            "NOT_CONNECTED",
            f"Cannot insert '{id}' between '{upper}' and '{lower}': '{lower}' reads {quoted(inputs) or 'nothing'}.",
            hint="name two steps of which the second reads the first.",
        )

    @classmethod
    def several_inputs(cls, what: str, id: str, inputs: Sequence[str]) -> ChangeError:
        return cls(
            "SEVERAL_INPUTS",
            f"Cannot {what}: '{id}' reads {quoted(inputs)}.",
            hint="say which input is meant: Insert(…, between=(input, step)), or replace the step instead.",
        )

    @classmethod
    def wrong_kind(cls, what: str, id: str, kind: str, expected: str) -> ChangeError:
        return cls("WRONG_KIND_OF_STEP", f"Cannot {what}: '{id}' is a {kind} step.", hint=f"it must be {expected}.")

    @classmethod
    def cycle(cls, ids: Sequence[str]) -> ChangeError:
        return cls(
            "CYCLE",
            f"The change would make a circle: {' → '.join(ids)}.",
            hint="rows flow from sources to sinks; a step cannot read what comes of it.",
        )

    @classmethod
    def leads_nowhere(cls, id: str) -> ChangeError:
        return cls(
            "LEADS_NOWHERE",
            f"Nothing would read the new step '{id}'.",
            hint="add what reads it to the same ChangeSet, or insert it without branch=True.",
        )

    @classmethod
    def bad_setting(cls, name: str, value: object, low: float, high: float) -> ChangeError:
        if not high:
            return cls("NOTHING_TUNED", "Tune was given no setting.", hint="name one: Tune(rows_per_epoch=100_000).")
        return cls("BAD_SETTING", f"{name} is {value}.", hint=f"give a number between {low:g} and {high:g}.")

    @classmethod
    def no_cap(cls, source: str, reason: str, formats: Sequence[str]) -> ChangeError:
        return cls(
            "ROWS_CANNOT_BE_CAPPED",
            f"The rows source '{source}' reads in an epoch cannot be capped: {reason}.",
            hint=f"known are {', '.join(formats)}, read through the session the source's function is given; for"
            " others, Replace the source with one that has the option it needs.",
        )

    @classmethod
    def ends_by_itself(cls) -> ChangeError:
        return cls(
            "TRIGGER_ENDS_BY_ITSELF",
            "The run was started to end when all data is read, and has no interval to tune.",
            hint="start it with a processingTime trigger, or with none.",
        )

    @classmethod
    def bad_guard(cls, what: str) -> ChangeError:
        return cls(
            "BAD_GUARD",
            f"The guard cannot watch: {what}.",
            hint="give errors= (SQL, true for bad rows), check= (a function) or max_epoch_ms=, for at least 1 epoch.",
        )

    @classmethod
    def shadow_ended(cls, why: str) -> ChangeError:
        return cls("SHADOW_ENDED", f"The shadow cannot be promoted: {why}.", hint="start it again with run.shadow(…).")

    @classmethod
    def shadow_runs(cls, text: str) -> ChangeError:
        return cls("SHADOW_RUNS", f"There is a shadow already: {text}.", hint="promote() or discard() that one first.")

    @classmethod
    def no_shadow(cls, text: str) -> ChangeError:
        return cls(
            "CANNOT_BE_SHADOWED",
            f"Cannot shadow '{text}': it reads other sources than the pipeline does.",
            hint="apply it; the first epoch that fails is rolled back.",
        )

    @classmethod
    def bad_ranges(cls, id: str, cause: object) -> ChangeError:
        return cls(
            "BAD_RANGES",
            f"Cannot rescale '{id}': {cause}.",
            hint="give a number of partitions between 1 and 4096, or ascending hashes that begin with -2**63.",
        )

    @classmethod
    def state_lost(cls, losses: Sequence[str]) -> ChangeError:
        return cls(
            "STATE_WOULD_BE_LOST",
            f"The change would lose state: {'; '.join(losses)}.",
            hint="pass rename= or convert= with the change, or allow_state_loss=True if it may go.",
        )

    @classmethod
    def not_portable(cls, function: str, place: str | None, cause: Exception) -> ChangeError:
        where = f" (at {place})" if place else ""
        return cls(
            "FUNCTION_NOT_PORTABLE",
            f"{function}{where} cannot be sent to executors: {type(cause).__name__}: {cause}.",
            hint="it must not hold sessions, DataFrames, locks, files or connections; make them inside the function.",
        )

    @classmethod
    def dry_run_failed(cls, cause: MidstreamError) -> ChangeError:
        return cls(
            "DRY_RUN_FAILED",
            f"The changed pipeline failed on rows of the last epoch: [{cause.error_class}] {cause.message}",
            hint=cause.hint,
        )

    @classmethod
    def too_slow(cls, what: str, seconds: float, steps: Sequence[str]) -> ChangeError:
        return cls(
            "TIME_LIMIT",
            f"{what} did not end within {seconds:g} s. Changed steps: {quoted(steps)}.",
            hint="a function may hang; or raise time_limit= if it is just slow.",
        )

    @classmethod
    def sink_schema(cls, sink: str, told: str) -> ChangeError:
        return cls(
            "SINK_SCHEMA_CHANGED",
            f"The sink '{sink}' would get other columns: {told}.",
            hint="replace the sink in the same ChangeSet, or keep its columns with a step before it.",
        )

    @classmethod
    def unknown_modification(cls, id: int, known: Sequence[int]) -> ChangeError:
        told = ", ".join(map(str, known)) or "none"
        return cls("UNKNOWN_MODIFICATION", f"There is no modification {id}.", hint=f"there are: {told}.")

    @classmethod
    def nothing_to_undo(cls) -> ChangeError:
        return cls("NOTHING_TO_UNDO", "The pipeline has no change that could be undone.", hint="see run.history().")

    @classmethod
    def not_applied(cls, id: int, phase: str, reason: str | None) -> ChangeError:
        return cls(
            f"CHANGE_{phase.upper()}",
            f"Modification {id} was {phase.replace('_', ' ')}: {reason or 'no reason was given'}",
            hint="the pipeline runs on as it was before.",
        )

    @classmethod
    def live_change_does_not_fit(cls, id: int, text: str, cause: MidstreamError) -> ChangeError:
        return cls(
            "LIVE_CHANGE_DOES_NOT_FIT",
            f"Modification {id} ({text}) was applied to this checkpoint's pipeline while it ran, and does not fit the"
            f" pipeline given now: {cause.message}",
            hint="start the pipeline it was applied to, or pass live_changes='drop' when the program has it by now.",
        )

    @classmethod
    def not_changeable(cls) -> ChangeError:
        return cls(
            "NOT_CHANGEABLE",
            "The run was started with changeable=False.",
            hint="start it without that, and it can be changed while it runs.",
        )

    @classmethod
    def no_executors(cls, what: str, why: str) -> ChangeError:
        return cls("NO_PLACEMENT", f"Cannot {what}: {why}.", hint="placement needs a cluster with executors.")

    @classmethod
    def unknown_executor(cls, what: str, id: str, known: Sequence[str]) -> ChangeError:
        return cls(
            "UNKNOWN_EXECUTOR",
            f"Cannot {what}: there is no executor or host '{id}'.",
            hint=f"there are {', '.join(known) or 'none'}; run.executors() tells them.",
        )

    @classmethod
    def unknown_instance(cls, what: str, instance: int, count: int) -> ChangeError:
        return cls(
            "UNKNOWN_INSTANCE",
            f"Cannot {what}: there is no instance {instance}.",
            hint=f"the step has the instances 0 to {count - 1}.",
        )

    @classmethod
    def bad_policy(cls, name: str, known: Sequence[str]) -> ChangeError:
        return cls(
            "UNKNOWN_POLICY", f"There is no way to fetch state called '{name}'.", hint=did_you_mean(name, list(known))
        )

    @classmethod
    def bad_drain(cls) -> ChangeError:
        return cls(
            "BAD_DRAIN", "Drain takes an executor or a host.", hint="write Drain('1') or Drain(host='10.0.0.7')."
        )

    @classmethod
    def nowhere_left(cls, what: str) -> ChangeError:
        return cls(
            "NOWHERE_LEFT",
            f"Cannot {what}: no executor would be left to run anything.",
            hint="add executors first, or undo another drain.",
        )
