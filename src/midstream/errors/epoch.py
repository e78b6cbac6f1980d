"""Errors of epochs and of starting them."""

from __future__ import annotations

from midstream.errors.base import MidstreamError


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
    def not_on_executors(cls, module: str) -> EpochError:
        return cls(
            "NOT_ON_EXECUTORS",
            f"The Python of the executors has no module '{module}'.",
            hint="install midstream there, in the Python that spark.pyspark.python names, or what it needs and send its"
            " wheel along, named .zip, with spark.submit.pyFiles. Then start again: nothing was committed.",
        )

    @classmethod
    def no_session(cls, given: str) -> EpochError:
        return cls(
            "NO_SESSION",
            f"start(…) was given a {given}, and needs a SparkSession.",
            hint="build it with SparkSession.builder.master(…) or, for Spark Connect, .remote(…).",
        )

    @classmethod
    def not_shared(cls, folder: str) -> EpochError:
        return cls(
            "LOG_NOT_SHARED",
            f"The server of Spark Connect does not see {folder}, where its log of offsets is to be.",
            hint="run the server on this machine, or have the checkpoint in a directory that both see.",
        )

    @classmethod
    def driver_gone(cls, why: str) -> EpochError:
        return cls(
            "DRIVER_GONE",
            f"The process that runs the epochs of this query is gone: {why}.",
            hint="start it again: the run goes on where it was.",
        )

    @classmethod
    def no_pulse(cls) -> EpochError:
        return cls(
            "OLD_SPARK",
            "Loops, timers by the clock and idle sources need Spark 4.2 or later, which tells sources where it is.",
            hint="install pyspark 4.2 or later, or write the pipeline without them.",
        )

    @classmethod
    def spark_gone(cls, cause: str) -> EpochError:
        return cls(
            "SPARK_GONE",
            f"Spark, which ran the pipeline, does not answer any more: {cause}",
            hint="look for its end in its log (mostly memory), then start again: the run goes on where it was.",
        )

    @classmethod
    def step_left_out(cls, step: str, found: int, wanted: int) -> EpochError:
        return cls(
            "STEP_LEFT_OUT",
            f"Spark ran {found} of the {wanted} partitions of step '{step}', so part of its state would be missing.",
            hint="this is a defect of midstream; please report it with the pipeline. The epoch was not committed.",
        )
