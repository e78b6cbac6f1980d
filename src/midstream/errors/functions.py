"""Errors of functions the user gave."""

from __future__ import annotations

from midstream.errors.base import MidstreamError


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
