"""The seconds of one solve with a free core for each of its processes, whatever else the machine
does.

python -m tests.benchmarks.critical_one llama3-70b --gpus 64xH100 --global-batch-size 512

One process answers all questions that a team (`base/team`) would share, and notes the CPU seconds
of each. They are then divided over so many processes as a team does: the next run of questions goes
to the first one that is free. Nothing is counted of tables that several processes make each by
itself, nor of sending questions.
"""

import heapq
import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ilp_planner.base import team
from ilp_planner.base.team import SHARE, Team, together
from ilp_planner.faces.cli import main as command

CORES = (2, 4, 8)


class Round(NamedTuple):
    """A list of questions that is shared.

    keys, each: of each question, and its CPU seconds. first: CPU seconds of other work that one
    process does before. spent: CPU seconds of all. heavy: as a team has it.
    """

    keys: Sequence[Hashable]
    each: Sequence[float]
    first: float
    spent: float
    heavy: bool

    def on(self, cores: int) -> float:
        """Return the seconds on so many cores."""
        most = 1 if self.heavy else max(1, len(self.each) // (SHARE * cores))
        busy = [0.0] * (cores - 1) + [self.first]
        for run in together(self.keys, most):
            heapq.heapreplace(busy, busy[0] + sum(self.each[place] for place in run))
        return max(busy) + max(0.0, self.spent - self.first - sum(self.each))


class Watched(Team[Any, Any]):
    """A team of one process, which notes the rounds that more would share."""

    rounds: list[Round]
    inside = False

    def __init__(self, answer: Callable[[Any], Any], count: int, **said: Any) -> None:
        super().__init__(answer, 1, **said)
        self.several, self.begins = count > 1, False

    def ask(
        self, questions: Sequence[tuple[Hashable, Any]], meanwhile: Callable[[], object] = list
    ) -> list[Any]:
        """Answer, and note the seconds."""
        many, few = (2, 2) if self.heavy else (team.MANY, team.FEW)
        self.begins |= len(questions) >= many and time.monotonic() - self.begun > team.ALONE
        if Watched.inside or not self.several or not self.begins or len(questions) < few:
            return super().ask(questions, meanwhile)
        began, Watched.inside, each, found = time.process_time(), True, [], []
        meanwhile()
        first = time.process_time() - began
        try:
            for _, question in questions:
                at = time.process_time()
                found.append(self.answer(question))
                each.append(time.process_time() - at)
        finally:
            Watched.inside = False
        spent = time.process_time() - began
        keys = [key for key, _ in questions]
        Watched.rounds.append(Round(keys, each, first, spent, self.heavy))
        return found


def told() -> dict[str, float]:
    """Return the seconds of all that was done, by the number of cores, and those that are never
    shared."""
    total, rounds = time.process_time(), Watched.rounds
    alone = total - sum(one.spent for one in rounds)
    found = {"1": total, "serial": alone}
    for cores in CORES:
        found[str(cores)] = alone + sum(one.on(cores) for one in rounds)
    return {name: round(seconds, 2) for name, seconds in found.items()}


def main() -> None:
    """Run one solve and print its seconds after its result."""
    Watched.rounds, end = [], os._exit

    def ended(code: int) -> None:  # commands end without the interpreter's own end
        print(json.dumps(told()), flush=True)
        end(code)

    os._exit = ended  # type: ignore[assignment]
    from ilp_planner.optimize.search import part_team
    from ilp_planner.spaces.objectives import any_nodes
    from ilp_planner.spaces.training.search import plainer, possible, search

    for module in (part_team, any_nodes, plainer, possible, search):
        module.Team = Watched  # type: ignore[attr-defined]
    sys.argv = ["ilp-plan", "solve", "--model", *sys.argv[1:], "--workers", "2"]
    command.main()


if __name__ == "__main__":
    main()
