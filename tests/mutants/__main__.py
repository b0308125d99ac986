"""`make mutants`: wrong versions of the judge, the costs and the bounds, and whether tests notice.

Says for each module how many mutants were drawn, killed and known to be equivalent, and names
those that survived. Needs what `make coverage` wrote down. Mutant n of a module is made again by
`python -m tests.mutants --only PATH:n`.
"""

import argparse
import os
import random
import sys
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tests.mutants.hosting import NOT_HERE, SURVIVED, Asked, hosted
from tests.mutants.kept import HEAD, Kept
from tests.mutants.modules import DRAWN, Module, modules
from tests.mutants.mutations import Mutation, mutated, mutations
from tests.mutants.reached import FOLDER, Reached
from tests.mutants.running import Version, first_failure, preload

SECONDS = 12.0
"""What the tests that a mutant has to survive take at most, as measured."""


class Case(NamedTuple):
    """A mutant, and the tests that may notice it."""

    number: int
    mutation: Mutation
    tests: tuple[str, ...]


def drawn(module: Module, seed: int) -> list[int]:
    """Return the numbers of a module's mutants that are tried, ascending."""
    count = len(mutations(module.file.read_text()))
    if module.whole or count <= DRAWN:
        return list(range(count))
    return sorted(random.Random(f"{seed} {module.path}").sample(range(count), DRAWN))


def cases(module: Module, numbers: list[int], reached: Reached) -> list[Case]:
    """Return mutants with the tests that reach their statement, the most likely first."""
    known, by_line = mutations(module.file.read_text()), reached.by_line(module.file)
    chosen: set[str] = set()
    found = []
    for number in numbers:
        mutation = known[number]
        first, last = mutation.lines
        tests = set().union(*(by_line.get(line, set()) for line in range(first, last + 1)))
        if not mutation.function or not tests:  # what runs when the module is imported
            tests = set().union(*by_line.values())
        few = likely(module, tests, chosen, reached)
        chosen |= set(few)
        found.append(Case(number, mutation, few))
    return found


def likely(module: Module, tests: set[str], chosen: set[str], reached: Reached) -> tuple[str, ...]:
    """Return tests of some seconds, the fastest first, that reach a mutant, and some of its module
    that were not seen to: what several tests share is made by the first of them alone.

    Tests count as a part of their time that are the module's own, of its folder or needed by
    another mutant, too: they are more likely to notice, or are run in any case.
    """
    folder, _, own = module.mirror.removesuffix(".py").rpartition("/")
    near = [
        test
        for file, some in reached.files.items()
        for test in some
        if file.startswith(f"{folder}/{own}")
    ]

    def order(test: str) -> tuple[float, str]:
        worth = 4 if test in chosen else 1
        if test.startswith(f"{folder}/{own}"):
            worth *= 16
        elif folder != "tests" and test.startswith(folder):
            worth *= 4
        return reached.times[test] / worth, test

    others = sorted(set(near) - tests, key=order)
    return (
        *within(SECONDS, sorted(tests, key=order), reached),
        *within(SECONDS / 4, others, reached),
    )


def within(seconds: float, tests: Sequence[str], reached: Reached) -> list[str]:
    """Return the first tests that take at most so long together, and at least one."""
    ends = list(accumulate(reached.times[test] for test in tests))
    return list(tests[: max(1, bisect_right(ends, seconds))])


def tried(
    module: Module, tries: list[Case], times: dict[str, float], forks: int
) -> dict[int, str | None]:
    """Return by mutant the first test that fails; None: it survives."""
    found: dict[int, str | None] = {case.number: None for case in tries}
    tries = [case for case in tries if case.tests]  # what no test reaches survives
    asked = [Asked(case.number, case.mutation.function, case.tests) for case in tries]
    found |= hosted(module, asked, times, forks) if asked else {}
    for case in tries:
        if found[case.number] in (SURVIVED, NOT_HERE):
            found[case.number] = alone(module, case, times)
    return found


def alone(module: Module, case: Case, times: dict[str, float]) -> str | None:
    """Run a mutant against its tests in a process of its own; return the first that fails.

    A test that fails alone without the mutant as well is left out.

    Raises
    ------
    RuntimeError: the process ends otherwise than by a test without the mutant, too.
    """
    version = Version(module, mutated(module.file.read_text(), case.number))
    left = list(case.tests)
    while left and (by := first_failure(version, left, times)) is not None:
        if by in left and not passes(module, by, times):
            left.remove(by)
            continue
        if by not in left and not _ends_well(module, left, times):
            raise RuntimeError(f"{module.path}: without any mutant as well: {by}")
        return by
    return None


def _ends_well(module: Module, tests: list[str], times: dict[str, float]) -> bool:
    """Tell whether tests of a module as it is pass, or one of them fails."""
    by = first_failure(Version(module, None), tests, times)
    return by is None or by in tests


_passes: dict[tuple[bool, str], bool] = {}


def passes(module: Module, test: str, times: dict[str, float]) -> bool:
    """Tell whether a test passes alone with a module as it is."""
    key = (module.compiled, test)
    if key not in _passes:
        _passes[key] = first_failure(Version(module, None), [test], times) is None
    return _passes[key]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--module", action="append", help="its path in the package, or a folder")
    parser.add_argument("--only", metavar="PATH:NUMBER", help="one mutant: its text and outcome")
    parser.add_argument("--survivors", action="store_true", help="only those of the last run")
    parser.add_argument("--results", type=Path, default=FOLDER / "results.json")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    preload()
    reached = Reached()
    wanted = modules()
    if asked.only:
        show(*asked.only.split(":"), reached)
        return
    if asked.module:
        wanted = [m for m in wanted if any(m.path.startswith(name) for name in asked.module)]
    kept, wrong = Kept(asked.results), 0
    hosts = min(asked.workers, len(wanted))
    print(HEAD, flush=True)
    with ProcessPoolExecutor(hosts, mp_context=get_context("fork")) as pool:
        running = {}
        for module in wanted:
            numbers = kept.survivors(module) if asked.survivors else drawn(module, asked.seed)
            try:
                tries = cases(module, numbers, reached)
            except LookupError as error:
                wrong += 1
                print(f"  {error}: run `make coverage` again", flush=True)
                continue
            forks = asked.workers // hosts
            running[pool.submit(tried, module, tries, reached.times, forks)] = module
        for future in as_completed(running):
            module = running[future]
            kept.add(module, future.result())
            print(kept.row(module), flush=True)
            for line in kept.report(module):
                wrong += 1
                print(f"  {line}", flush=True)
    sys.exit(bool(wrong))


def show(path: str, number: str, reached: Reached) -> None:
    """Print a mutant, and what becomes of it in a process of its own."""
    (module,) = (module for module in modules() if module.path == path)
    (case,) = cases(module, [int(number)], reached)
    lines = module.file.read_text().splitlines()
    first, last = case.mutation.lines
    print(*lines[first - 1 : last], sep="\n")
    print(case.mutation.text)
    print(f"{len(case.tests)} tests: {alone(module, case, reached.times) or 'survived'}")


if __name__ == "__main__":
    main()
