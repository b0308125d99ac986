"""Options of a command that are one value together."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def options(said: Mapping[str, tuple[Any, object]], make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with these options as its keywords.

    Parameters
    ----------
    said: name -> annotation and default. make: returns the value of the keywords.
    """

    def made(**values: Any) -> Any:
        return make(**values)

    made.__dict__["__signature__"] = inspect.Signature(
        [_keyword(name, *one) for name, one in said.items()]
    )
    return made


def taking(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take options in place of some of its parameters.

    makers: parameter -> a class or a function, whose keywords are the options, and whose result is
    the value of the parameter.
    """
    parts = {name: inspect.signature(make, eval_str=True) for name, make in makers.items()}

    def take(command: Callable[..., None]) -> Callable[..., None]:
        def run(**said: Any) -> None:
            for name, part in parts.items():
                own = {option: said.pop(option) for option in part.parameters}
                said[name] = makers[name](**own)
            command(**said)

        kept = list[inspect.Parameter]()
        for one in inspect.signature(command, eval_str=True).parameters.values():
            each = parts[one.name].parameters.values() if one.name in parts else (one,)
            kept += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in each]
        run.__dict__["__signature__"] = inspect.Signature(kept)
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return take


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
