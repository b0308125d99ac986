"""Trials of the checker, by seeds: its bounds against enumeration, and edits of its files.

A trial takes a space and a range of seeds, and returns counts that can be added up. A false claim
that is accepted is listed with its seed, and never dropped.
"""

import copy
import math
import random
import resource
import signal
import time
from collections import Counter
from functools import cache
from typing import Any

import pytest

from ilp_planner.checker import checker
from ilp_planner.formats.plan_json import encode_plan
from ilp_planner.optimize.solve import solve
from tests.checker.instances import Instance, Record
from tests.checker.test_checker import ANY, edited, mixed_prices, places, read

TRUE_TO = 1e-6  # relative
CLAIMS = (1.0, 1.0001, 1.5, 4.0)  # times the optimum
BASES = 8  # files of a space that are edited
SEEDS = 100  # of which one at least has a plan
PATIENCE = 20  # CPU seconds of one edit: more is a fault
MEMORY = 1 << 31  # bytes that edits may take beside what is imported
LESS: dict[str, tuple[Any, ...]] = {  # how soon a search may end, by its name in the checker
    "EFFORTS": ((0,), (0, 1), (0, 1_000)),
    "ROUNDS": (0, 3, 10**6),
    "MOST_PAIRS": (0, 100, 300_000),
    "LOOKS": (0, 10, 30_000),
    "STAGES": (1, 50, 500_000),
    "FEW": (0, 10_000),
    "SPLITS": (1, 100),
    "LEVELS": (0, 1, 12),
    "LOOKS_OF_CUTS": (0, 5, 3_000),
    "SIMULATED": (0, 50, 200_000),
}


def bounds(space: str, first: int, count: int) -> Record:
    """Return how many bounds are above the optimum, equal to it within 1e-6, and below.

    Of every instance with a plan three bounds are proved: of a claim as it is written, of one that
    is too high, and of that with other prices and a search that ends early.
    """
    found: Counter[str] = Counter()
    above, lowest = [], 1.0
    for seed in range(first, first + count):
        instance = Instance(space, seed)
        if instance.optimum == math.inf:
            found["without a plan"] += 1
            continue
        drawn = random.Random(seed)
        proof = instance.proof(instance.optimum * drawn.choice(CLAIMS[1:]))
        own = instance.proved(instance.optimum), _proved(proof)
        lowest = min(lowest, own[1] / instance.optimum)
        if space == "operators":
            mixed_prices(proof, drawn)
        for case in filter(lambda one: isinstance(one, dict), proof["cases"]):
            case["prices"] = [_other(row, drawn) for row in case.get("prices", ())]
        with pytest.MonkeyPatch.context() as patch:
            for name, values in LESS.items():
                patch.setattr(checker, name, drawn.choice(values))
            weak = _proved(proof)
        found["instances"] += 1
        found["equal"] += own[1] >= instance.optimum * (1 - TRUE_TO)
        if max(*own, weak) > instance.optimum:
            above.append(seed)
    return {**found, "above": above, "lowest": lowest}


def _proved(proof: Record) -> float:
    return min(checker.prove(*checker.opened(read(proof))).values()) / checker.PS


def _other(row: list[int], drawn: random.Random) -> list[int]:
    """Return prices of a group of devices that are any others, of operators as they are."""
    if len(row) == 4 and row[2] in (0, 1):
        return row
    return [row[0], *(int(x * drawn.choice((0, 0.5, 1, 2, 100))) for x in row[1:])]


# ---- edits ---------------------------------------------------------------------------------------


def edits(space: str, first: int, count: int, bases: int = BASES) -> Record:
    """Return how many edits of files were refused, judged, and accepted with a claim that is false;
    tracebacks, and the CPU seconds of the slowest edit.

    An edit is of the whole file; of three in four it is of the proof but for the rows that are
    believed, and of these no bound may be above the optimum, unless the checker says another set
    of plans.
    """
    found: Counter[str] = Counter()
    accepted, broken, slowest = [], [], 0.0
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(first, first + count):
        drawn = random.Random(f"{space} {seed}")
        record, optimum = _base(space, drawn.randrange(bases))
        believed = drawn.random() < 0.25
        changed = edited(record, drawn) if believed else _edited_proof(record, drawn)
        begin = time.process_time()
        try:
            lines, bound = _said(changed)
        except Exception as error:
            broken.append([seed, repr(error)[:200]])
            continue
        slowest = max(slowest, time.process_time() - begin)
        found["edits"] += 1
        found["refused" if bound is None else "judged"] += 1
        if any("\n" in line or len(line) > MOST_SAID for line in lines):
            broken.append([seed, "more than a line"])
        if bound is not None and bound > optimum and not believed:
            if _set_said(lines) == _set_said(_said(record)[0]):
                accepted.append(seed)
            else:
                found["other sets"] += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    return {**found, "accepted": accepted, "broken": broken, "slowest_s": round(slowest, 2),
            "grown_mib": grown // 1024}  # fmt: skip


MOST_SAID = 4_000  # characters of a line


@cache
def _base(space: str, number: int) -> tuple[Record, float]:
    """Return the file of an instance with a plan, and its optimum."""
    instance = with_plan(space, SEEDS * number)
    return file_of(instance, 1.0), instance.optimum


def with_plan(space: str, first: int) -> Instance:
    """Return the first instance with a plan, from a seed on."""
    every = (Instance(space, seed) for seed in range(first, first + SEEDS))
    return next(one for one in every if one.optimum < math.inf)


def file_of(instance: Instance, claim: float) -> Record:
    """Return the file of the best plan, with a claim of so many times the optimum."""
    result = solve(instance.problem)
    assert result.plan is not None
    return {
        "plan": encode_plan(result.plan),
        "inputs": {},
        "result": {"objective_s": result.objective},
        "certificate": {"independent": instance.proof(instance.optimum * claim)},
    }


def _edited_proof(record: Record, drawn: random.Random) -> Record:
    """Return the file with a claim that may be too high, and one to three values of its set or its
    cases otherwise."""
    found = copy.deepcopy(record)
    proof = found["certificate"]["independent"]
    proof["bound_s"] *= drawn.choice(CLAIMS)
    for _ in range(drawn.randint(1, 3)):
        part = drawn.choice(("set", "cases"))
        every = [p for p in places(proof[part]) if p]
        if every:
            _edit(proof[part], drawn.choice(every), drawn)
    return found


def _edit(inner: Any, path: tuple[Any, ...], drawn: random.Random) -> None:
    """Change, drop or repeat what is at a place."""
    for key in path[:-1]:
        inner = inner[key]
    key, old = path[-1], inner[path[-1]]
    how = drawn.choice((0, 1, 3, *[2] * 12))
    if how == 0:
        del inner[key]
    elif how == 1 and isinstance(inner, list):
        inner.append(copy.deepcopy(old))
    elif how == 2 and isinstance(old, bool):
        inner[key] = not old
    elif how == 2 and isinstance(old, int | float):
        factor = drawn.choice((0, 0.5, 0.999, 1.001, 2, 100, 10**6, -1))
        inner[key] = (
            type(old)(old * factor) if drawn.random() < 0.5 else old + drawn.choice((-1, 1))
        )
    else:
        inner[key] = copy.deepcopy(drawn.choice(ANY))


def _said(record: Record) -> tuple[list[str], float | None]:
    """Return the lines of a verdict with its bound, or of a refusal.

    Raises
    ------
    TimeoutError: it takes more than `PATIENCE` CPU seconds.
    """

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {PATIENCE} CPU seconds")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        root = read(record)
        verdict = checker.check(root)
        return list(checker.told(verdict)), float(verdict["bound"])
    except (checker.RefusedError, ValueError) as error:
        if isinstance(error, ValueError) and "found" not in str(error):
            raise
        return [str(error)], None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _set_said(lines: list[str]) -> list[str]:
    """Return what a verdict says of the set and of what it leaves out."""
    return [line for line in lines if line.startswith(("set", "left out", "believed"))]
