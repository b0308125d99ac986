"""Everything a user can have caused, each with the exit code that the command line gives it.

A message names the file, the key, the found and the expected value, on one line.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ilp_planner.base.interrupts import interrupted

MISSING = object()  # in place of a value that a file does not have


class PlannerError(Exception):
    """Root of all errors that are reported as one line, without a traceback.

    excerpt: lines to show below it, as the typed text with a mark under the place; mostly none.
    """

    exit_code = 1

    def __init__(self, *args: object, excerpt: str = "") -> None:
        super().__init__(*args)
        self.excerpt = excerpt


class SpecError(PlannerError, ValueError):
    """A model, cluster or training specification that cannot be used."""


class LackingError(SpecError):
    """Devices that cannot compute the request. devices: their types, by name."""

    def __init__(self, *args: object, devices: tuple[str, ...]) -> None:
        super().__init__(*args)
        self.devices = devices


class ProfileError(PlannerError, ValueError):
    """A profile that is missing, malformed or holds nothing that can be planned with."""


class MeasureError(PlannerError, RuntimeError):
    """Measuring that cannot begin or go on: no PyTorch, no GPU, one that disappeared."""


class PlanError(PlannerError, ValueError):
    """A saved or imported plan that cannot be read or belongs to another problem."""


class SchedulerError(PlannerError, ConnectionError):
    """A scheduler of many solves that cannot be reached, or is not installed."""


class OutputError(PlannerError, OSError):
    """A file that cannot be written."""


class UsageError(PlannerError, ValueError):
    """Options that contradict each other or ask for the impossible."""

    exit_code = 2


class InfeasibleError(PlannerError):
    """Proved: no plan fits. Names the stage or operator, and the missing bytes."""

    exit_code = 3


class SolverError(PlannerError, RuntimeError):
    """A solver failed, or claimed something that the evaluator refutes."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a Ctrl-C that comes while compiled code runs be a KeyboardInterrupt.

    Numba hands the result over with the exception set, and Python makes it a SystemError with that
    cause; if it was about to be compiled or loaded, with other errors in between. NumPy makes a
    TypeError of it if it compares rows of an array, with or without that cause.
    """
    try:
        yield
    except Exception as error:
        seen: list[BaseException] = []
        cause: BaseException | None = error
        while cause is not None and cause not in seen:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            seen.append(cause)
            cause = cause.__cause__ or cause.__context__
        if interrupted() and isinstance(error, (SystemError, TypeError)):
            raise KeyboardInterrupt from error
        raise


def described(value: object) -> str:
    """Return a value in a few words: a text or a number itself, the kind of others."""
    if isinstance(value, str | int | float):
        return f"{value!r:.60}"
    return with_article(type(value).__name__)


def shown(value: object) -> str:
    """Return a value of a JSON file, or `MISSING`, as a short text on one line."""
    if value is MISSING:
        return "nothing"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def with_article(kind: str) -> str:
    """Return the name of a type with its article."""
    return f"{'an' if kind[0] in 'AEIOaeiou' else 'a'} {kind}"
