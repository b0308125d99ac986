"""A mutant in a module that is imported already: the code of one function is exchanged."""

import ast
import inspect
from types import CodeType, FunctionType, ModuleType
from typing import Any


def patched(module: ModuleType, tree: ast.Module, function: str) -> bool:
    """Give a function of a module the code that it has in a mutated tree.

    function: dotted; of one inside another, the outer one's code is exchanged. False where the
    mutation is not in the code of a function: in a default, or in what a module or a class does
    when it is imported.
    """
    found = _outermost(module, function)
    if found is None:
        return False
    code = _codes(compile(tree, str(module.__file__), "exec")).get(found.__qualname__)
    if code is None or code == found.__code__ or code.co_freevars != found.__code__.co_freevars:
        return False
    found.__code__ = code
    return True


def _outermost(module: ModuleType, function: str) -> FunctionType | None:
    """Return the first function on a dotted path, without what decorates it."""
    at: Any = module
    for name in function.split("."):
        at = _undecorated(inspect.getattr_static(at, name, None))
        if isinstance(at, FunctionType):
            return at if at.__module__ == module.__name__ else None
    return None


def _undecorated(value: Any) -> Any:
    """Return what a decorator was given; what it has kept of earlier calls is forgotten."""
    while not isinstance(value, FunctionType | type):
        if hasattr(value, "cache_clear"):
            value.cache_clear()
        for name in ("__func__", "fget", "func", "__wrapped__"):
            inner = getattr(value, name, None)
            if inner is not None:
                value = inner
                break
        else:
            return value
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value


def _codes(code: CodeType) -> dict[str, CodeType]:
    """Return the code of all functions of a module by their qualified names."""
    found = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found[inner.co_qualname] = inner
            found |= _codes(inner)
    return found
