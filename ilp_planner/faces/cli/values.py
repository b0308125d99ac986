"""From the text of an option to a value. An impossible value is bad usage."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ilp_planner.base.errors import UsageError
from ilp_planner.base.limits import MEMORY, as_whole, beyond
from ilp_planner.base.resident import resident
from ilp_planner.base.units import format_bytes, parse_count, parse_duration, parse_size
from ilp_planner.inputs.request import Reference
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.registry import HEURISTICS, ONE_THREAD, SEEDLESS, is_heuristic

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import typer

    from ilp_planner.inputs.problem import Problem

Solver = Literal["auto", "dp", "cp-sat", "milp", "pulp", "gradient", "anneal"]


def option_size(option: str, text: str) -> int:
    """Return the bytes of an option.

    Raises
    ------
    UsageError: not a positive size with a unit.
    """
    try:
        size = parse_size(text, what=option)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if size > MEMORY:
        raise UsageError(f"{option}: found {text}, expected at most {format_bytes(MEMORY)}")
    return size


def option_seconds(option: str, text: str) -> float:
    """Return the seconds of an option.

    Raises
    ------
    UsageError: it is no time.
    """
    try:
        return parse_duration(text)
    except ValueError:
        raise UsageError(
            f"{option}: found {text!r}, expected a time with its unit, as 2h or 90 min"
        ) from None


def memory_to_hold(text: str | None) -> float:
    """Return the bytes of `--max-memory`; inf if it says nothing.

    Raises
    ------
    UsageError: no size, this system does not tell, or less than Python and its packages take.
    """
    if text is None:
        return math.inf
    size = option_size("--max-memory", text)
    held = resident()
    if not held:
        raise UsageError("--max-memory: found a system that tells nothing of it, expected Linux")
    if size <= held:
        raise UsageError(
            f"--max-memory: found {text}, expected more than {format_bytes(held)}, which the "
            "command holds before it begins"
        )
    return float(size)


def number_of_tokens(said: str | float | None) -> float | None:
    """Return the number of `--tokens`; None if nothing is said.

    Raises
    ------
    UsageError: it is no number of tokens.
    """
    try:
        found = None if said is None else parse_count(said)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if found is not None and (expected := beyond("tokens", found)):
        raise UsageError(f"tokens: found {said}, expected {expected}")
    return found


def whole_numbers(option: str, values: Sequence[str] | None) -> tuple[int, ...]:
    """Return the numbers in `--micro-batch-size 1 2,4`, each once.

    Raises
    ------
    UsageError: not a whole number of at least 1, or beyond its limit.
    """
    numbers = []
    for text in ",".join(values).split(",") if values else ():
        whole = re.fullmatch(r"[1-9][0-9]*", text.strip())
        expected = beyond(option, as_whole(text)) if whole else "a whole number of at least 1"
        if expected:
            raise UsageError(f"{option}: found {text.strip()!r:.60}, expected {expected}")
        numbers.append(int(text))
    return tuple(dict.fromkeys(numbers))


def references(**named: str | None) -> dict[str, Reference]:
    """Return the inputs that options name."""
    return {kind: Reference(name=name) for kind, name in named.items() if name is not None}


def input_files(named: Iterable[str | None]) -> list[Path]:
    """Return the files that options name: `FORMAT:PATH`, or several joined with commas."""
    texts = [text.split(":", 1)[-1] for text in named if text]
    return [Path(part) for text in texts for part in (text, *text.split(","))]


def names_in(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the names in `--solvers dp,cp-sat`, each once.

    Raises
    ------
    UsageError: an unknown name.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"{option}: found {name!r}, expected some of {', '.join(known)}")
    return tuple(dict.fromkeys(names))


def finite_seconds(time_limit: float) -> float:
    """Return the seconds of `--time-limit`; refuse all but numbers."""
    if not math.isfinite(time_limit):
        raise UsageError(f"--time-limit: found {time_limit}, expected a number of seconds")
    return time_limit


def with_bound(solvers: Sequence[str], bound: float) -> list[str]:
    """Return the solvers, and `auto` for a bound if only heuristics would run and plans prove none,
    so that `bound` is 0 seconds."""
    alone = bool(solvers) and all(map(is_heuristic, solvers)) and bound <= 0
    return [*solvers, "auto"] if alone else list(solvers)


def solve_limits(
    time_limit: float,
    gap: float,
    require_gap: float | None,
    workers: int | None,
    seed: int | None,
    *,
    starts: int | None = None,
    solvers: Sequence[str] = (),
) -> Limits:
    """Return the limits that the options ask for, which may not contradict each other.

    workers, seed, starts: None: as usual. solvers: that will run.
    """
    seconds = finite_seconds(time_limit)
    for name, value in (("--gap", gap), ("--require-gap", require_gap)):
        if value is not None and not 0 <= value < 1:
            raise UsageError(f"{name}: found {value}, expected a fraction from 0 to below 1")
    if require_gap is not None and gap > require_gap:
        raise UsageError(
            f"--gap {gap} stops the search before --require-gap {require_gap} is reached: "
            "expected --gap to be the smaller"
        )
    if starts is not None and not any(map(is_heuristic, solvers)):
        raise UsageError(
            f"--starts: found {starts} with {', '.join(solvers) or 'no solver'}, expected a "
            f"heuristic that begins from so many points: {', '.join(HEURISTICS)}"
        )
    if seed is not None and solvers and all(name in SEEDLESS for name in solvers):
        raise UsageError(
            f"--seed: found {seed} with {', '.join(solvers)}, which draws nothing, expected none"
        )
    asked = {"workers": workers, "seed": seed, "starts": starts}
    said = {name: value for name, value in asked.items() if value is not None}
    return replace(Limits(seconds=seconds, gap=gap), **said)


def idle_workers(
    problem: Problem[Any], workers: int | None, solvers: Sequence[str]
) -> Problem[Any]:
    """Refuse threads if neither a solver nor the search of the space has more than one; if the
    default solver has none, return the problem with a note.

    Raises
    ------
    UsageError: names the solvers.
    """
    alone = bool(solvers) and all(name in (*ONE_THREAD, "auto") for name in solvers)
    if workers is None or not alone or problem.space.threaded:
        return problem
    if "auto" in solvers:
        said = f"workers {workers}: without effect, space {problem.space.name} has one thread"
        return replace(problem, notes=(*problem.notes, said))
    raise UsageError(
        f"--workers: found {workers} with {', '.join(solvers)}, which plans of space "
        f"{problem.space.name} in one thread, expected none"
    )


def was_typed(ctx: typer.Context, name: str) -> bool:
    """Return whether a parameter is not just its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def settings_given(rows: Sequence[str] | None) -> dict[str, str]:
    """Return the values of `--set NAME=VALUE` by name; a name may be a command with = in it.

    Raises
    ------
    UsageError: no =, or no name before it.
    """
    found = {}
    for row in rows or ():
        at = row.rfind(")=") + 1 if row.startswith("$(") else row.find("=")
        name = row[:at].removeprefix("$") if at > 0 and row[1:2] != "(" else row[: max(at, 0)]
        if not name:
            raise UsageError(f"--set: found {row!r}, expected NAME=VALUE, as --set NNODES=4")
        found[name] = row[at + 1 :]
    return found
