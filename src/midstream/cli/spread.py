"""Options that belong together as one parameter: typer sees each of them, the function gets the dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar, get_type_hints

R = TypeVar("R")


@dataclass(frozen=True)
class Spread(Generic[R]):
    """A function whose dataclass parameters are spread out. `left_out` are given by the caller, not by options."""

    function: Callable[..., R]
    left_out: tuple[str, ...] = ()

    @property
    def parameters(self) -> list[inspect.Parameter]:
        found = []
        for name, hint in self._hints().items():
            if is_dataclass(hint):
                found += _options(hint)
            else:
                default = inspect.signature(self.function).parameters[name].default
                found.append(_parameter(name, hint, default))
        return found

    def __call__(self, given: Mapping[str, Any], **others: Any) -> R:
        """Call the function with the values of its own parameters, of all that are given."""
        arguments = {}
        for name, hint in self._hints().items():
            arguments[name] = _put_together(hint, given) if is_dataclass(hint) else given[name]
        return self.function(**arguments, **others)

    def _hints(self) -> dict[str, Any]:
        hints = get_type_hints(self.function, include_extras=True)
        return {name: hint for name, hint in hints.items() if name not in ("return", *self.left_out)}


def spread(function: Callable[..., R]) -> Callable[..., R]:
    """The function as typer takes it."""
    whole = Spread(function)

    def call(**given: Any) -> R:
        return whole(given)

    return with_parameters(call, whole.parameters, name=function.__name__, doc=function.__doc__)


def with_parameters(
    function: Callable[..., R], parameters: list[inspect.Parameter], *, name: str, doc: str | None
) -> Callable[..., R]:
    """A function of `**given` dressed up as one that has these parameters."""
    function.__name__ = name
    function.__doc__ = doc
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(function)["__signature__"] = inspect.Signature(parameters)
    return function


def _put_together(kind: Any, given: Mapping[str, Any]) -> Any:
    return kind(**{field.name: given[field.name] for field in fields(kind)})


def _options(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        _parameter(
            field.name, hints[field.name], inspect.Parameter.empty if field.default is MISSING else field.default
        )
        for field in fields(kind)
    ]


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    # By keyword, because then one with a default may come before one without.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)
