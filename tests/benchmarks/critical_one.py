"""The critical path of one solve: the CPU seconds that it would take with a free core for each of
its processes, whatever else the machine does.

python -m tests.benchmarks.critical_one 2 llama3-70b --gpus 64xH100 --global-batch-size 512

The first number is `--workers`. A round is one list of questions to a team (`base/team`): it takes
as long as the process with the most CPU seconds in it. What is outside of rounds is serial.
"""

import collections
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from ilp_planner.base.team import Team
from ilp_planner.faces.cli import main as command


class Round(NamedTuple):
    """A list of questions. began, ended: by `time.monotonic`. cpu: seconds of the process that
    asks, without those of rounds inside. caller: the function that asks."""

    began: float
    ended: float
    cpu: float
    questions: int
    caller: str


def watch(folder: Path, rounds: list[Round]) -> None:
    """Note all rounds, and in a file for each other process when it answered, and its CPU
    seconds."""
    here, ask, begin = os.getpid(), Team.ask, Team.__init__

    def noted(own: Any, answer: Any, *given: Any, **said: Any) -> None:
        def timed(question: Any) -> Any:
            if os.getpid() == here:
                return answer(question)
            began, cpu = time.monotonic(), time.process_time()
            found = answer(question)
            with (folder / str(os.getpid())).open("a") as file:
                file.write(json.dumps([began, time.process_time() - cpu]) + "\n")
            return found

        begin(own, timed, *given, **said)

    def asked(own: Any, questions: Any, *given: Any) -> Any:
        began, cpu, inside = time.monotonic(), time.process_time(), len(rounds)
        try:
            return ask(own, questions, *given)
        finally:
            spent = time.process_time() - cpu - sum(one.cpu for one in rounds[inside:])
            caller = sys._getframe(1).f_code.co_name
            rounds.append(Round(began, time.monotonic(), spent, len(questions), caller))

    Team.__init__, Team.ask = noted, asked  # type: ignore[method-assign,assignment]


def told(folder: Path, rounds: list[Round]) -> dict[str, Any]:
    """Return the CPU seconds of all rounds, and of the critical path."""
    others = [
        [json.loads(line) for line in file.read_text().splitlines()] for file in folder.iterdir()
    ]
    by_caller: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for one in rounds:
        each = [sum(cpu for at, cpu in own if one.began <= at < one.ended) for own in others]
        row = (one.questions, one.cpu, sum(each), max(one.cpu, *each, 0.0))
        by_caller[one.caller] = [a + b for a, b in zip(by_caller[one.caller], row, strict=True)]
    serial = time.process_time() - sum(one.cpu for one in rounds)
    names = ("questions", "asking_s", "others_s", "critical_s")
    return {
        "serial_s": round(serial, 3),
        "critical_s": round(serial + sum(row[3] for row in by_caller.values()), 3),
        "cpu_s": round(time.process_time() + sum(row[2] for row in by_caller.values()), 3),
        "rounds": {
            caller: dict(zip(names, (round(n, 3) for n in row), strict=True))
            for caller, row in by_caller.items()
        },
    }


def main() -> None:
    """Run one solve and print its critical path after its result."""
    workers, *case = sys.argv[1:]
    rounds: list[Round] = []
    folder, end, here = Path(tempfile.mkdtemp()), os._exit, os.getpid()
    watch(folder, rounds)

    def ended(code: int) -> None:  # commands end without the interpreter's own end
        if os.getpid() == here:
            print(json.dumps(told(folder, rounds), indent=1), flush=True)
            shutil.rmtree(folder)
        end(code)

    os._exit = ended  # type: ignore[assignment]
    sys.argv = ["ilp-plan", "solve", "--model", *case, "--workers", workers]
    command.main()


if __name__ == "__main__":
    main()
