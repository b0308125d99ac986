"""From the text of an option to a value. What cannot be one is bad usage."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal, get_args

from ilp_planner.errors import UsageError
from ilp_planner.solvers.base import Limits
from ilp_planner.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

Solver = Literal["auto", "dp", "cp-sat", "milp", "pulp"]
# What follows the colon of `FORMAT:PATH`; empty: nothing does.
PROFILE_FORMATS = {"analytic": "", "aceso": "FOLDER", "metis": "FOLDER", "amp": "FILE"}


def memory_limit(text: str | None) -> float | None:
    """Return bytes from what `--memory-limit` says.

    Raises
    ------
    UsageError: not a positive size with a unit.
    """
    if text is None:
        return None
    try:
        return float(parse_size(text, what="--memory-limit"))
    except ValueError as error:
        raise UsageError(str(error)) from None


def micro_batch_sizes(values: Sequence[str]) -> tuple[int, ...]:
    """Return the sizes in `--micro-batch-size 1 2,4`.

    Raises
    ------
    UsageError: not a whole number of at least 1.
    """
    sizes = []
    for text in ",".join(values).split(",") if values else ():
        if not re.fullmatch(r"[1-9][0-9]{0,9}", text.strip()):
            raise UsageError(
                f"--micro-batch-size: found {text.strip()!r}, expected a whole number of at least 1"
            )
        sizes.append(int(text))
    return tuple(dict.fromkeys(sizes))


def split_profile(text: str) -> tuple[str, str]:
    """Return format and path of `FORMAT:PATH`.

    Raises
    ------
    UsageError: no such format, or a path is missing or too many.
    """
    kind, _, path = text.partition(":")
    forms = [f"{name}:{rest}" if rest else name for name, rest in PROFILE_FORMATS.items()]
    if kind not in PROFILE_FORMATS:
        raise UsageError(f"--profile: found {text!r}, expected one of {', '.join(forms)}")
    rest = PROFILE_FORMATS[kind]
    if rest and not path:
        place = rest.lower()
        raise UsageError(f"--profile: found {text!r} without a {place}, expected {kind}:{rest}")
    if path and not rest:
        raise UsageError(f"--profile: found {text!r}, but an analytic profile reads no file")
    return kind, path


def solver_names(text: str) -> list[str]:
    """Return the solvers in `--solvers dp,cp-sat`.

    Raises
    ------
    UsageError: there is no such solver.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in get_args(Solver):
            known = ", ".join(get_args(Solver))
            raise UsageError(f"--solvers: found {name!r}, expected some of {known}")
    return list(dict.fromkeys(names))


def solve_limits(
    time_limit: float, gap: float, require_gap: float | None, workers: int, seed: int
) -> Limits:
    """Return the limits that the options ask for.

    Raises
    ------
    UsageError: they contradict each other, or are no such numbers.
    """
    if not math.isfinite(time_limit):
        raise UsageError(f"--time-limit: found {time_limit}, expected a number of seconds")
    for name, value in (("--gap", gap), ("--require-gap", require_gap)):
        if value is not None and not 0 <= value < 1:
            raise UsageError(f"{name}: found {value}, expected a fraction from 0 to below 1")
    if require_gap is not None and gap > require_gap:
        raise UsageError(
            f"--gap {gap} stops the search before --require-gap {require_gap} is reached: "
            "expected --gap to be the smaller"
        )
    return Limits(seconds=time_limit, gap=gap, workers=workers, seed=seed)
