"""Write the proof of a saved plan, and say what that took: CPU seconds as JSON.

python -m tests.benchmarks.checked_one PLAN

The seconds are those of a second problem in the same process, so that no kernel is compiled and
nothing of the search is kept. Of a plan whose file has no proof, as of a training runtime, it is
put there; where the checker knows nothing of the plans, the reason is said.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_plan import INDEPENDENT
from ilp_planner.formats.saved_problem import problem_of


def main() -> None:
    """Run it."""
    file = Path(sys.argv[1])
    record = json.loads(file.read_text())
    known, bound = record["certificate"].get(INDEPENDENT, {}), record["result"]["bound_s"]
    nodes = known["set"]["nodes"] if "chain" in known.get("table", {}) else ()
    seconds, proof = 0.0, known
    for _ in range(2):
        problem = problem_of(read_saved(file), file, accept_changed=True)
        begin = time.process_time()
        proof = problem.space.independent_proof(problem, bound, nodes)
        seconds = time.process_time() - begin
    said: dict[str, Any] = {"writing_s": seconds}
    if not proof:
        said["why"] = problem.space.unproved(problem, bound)
    elif not known:
        record["certificate"][INDEPENDENT] = proof
        file.write_text(json.dumps(record))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
