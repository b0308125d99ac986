"""How near the independent proofs of plans of operators are to the claim, and what they cost.

python -m tests.benchmarks --suite checked [--only TEXT] [--seconds 200]

Every row is a `solve` and its saved file, read by `ilp_planner/checker.py` alone in a process of
its own. All seconds are of CPU. Cases of Aceso are left out where its profiles are not.
"""

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import CASES, DATA, ROOT, Case
from tests.benchmarks.kept import Kept, on_cores
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table

Row = dict[str, Any]

SECONDS = 200.0
EQUAL = 1e-6  # percent: the claim is rounded down by as much before it is proved
NATIVE = {
    "native gpt 1.3B, 4": "gpt3-1.3b --cluster v100-32gb-1x4",
    "native gpt 6.7B, 1 or 2 nodes of 8": "gpt3-6.7b --cluster v100-32gb-2x8 --max-devices 16",
    "native resnet 2B, 4": "wide-resnet-2b --cluster v100-32gb-1x4",
    "native t5 770M, 4": "t5-770m --cluster v100-32gb-1x4",
}
COLUMNS = (
    "case", "operators", "proof below the claim", "checking (s)", "writing (s)", "solving (s)",
    "file (KB)",
)  # fmt: skip


def words_of(case: Case) -> str:
    """Return the arguments of `solve` for a case of Aceso."""
    return (
        f"{case.model} --cluster {case.cluster} --profile aceso:{DATA / case.database} "
        f"--cost-model aceso --global-batch-size {case.global_batch}"
    )


def kept() -> Kept:
    """Return what is known of the cases."""
    return Kept("checked", [*(case.name for case in CASES), *NATIVE])


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the table."""
    cases = {case.name: [*words_of(case).split(), "--memory-limit", case.memory] for case in CASES}
    for name, words in NATIVE.items():
        cases[name] = [*words.split(), "--space", "operators", "--global-batch-size", "512"]
    rows = kept()
    for name, words in cases.items():
        if only in name and (name in NATIVE or DATA.exists()):
            rows.add({"case": name, **_row(words, seconds or SECONDS)})
    write_table("checked", checked_table(rows.rows))


def cpu(*command: str) -> tuple[float, str]:
    """Return the seconds of CPU that a command takes, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True, text=True, check=False, cwd=ROOT, preexec_fn=on_cores(),
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode and not done.stdout:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def _row(words: list[str], seconds: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        solving, _ = cpu("-m", "ilp_planner", "solve", *words, "--time-limit", str(seconds),
                         "--output", str(file))  # fmt: skip
        checking, told = cpu("ilp_planner/checker.py", str(file))
        record = json.loads(file.read_text())
        size = file.stat().st_size
    below = re.search(r"^weaker +(\S+) %", told, re.MULTILINE)
    return {
        "operators": len(record["certificate"]["independent"]["table"]["chain"]),
        "below_percent": float(below[1]) if below else 0.0,
        "refused": "FAULT" in told,
        "checking_s": checking,
        "writing_s": _writing(record, words),
        "solving_s": solving,
        "bytes": size,
    }


def _writing(record: Row, words: list[str]) -> float:
    """Return the seconds of CPU that the proof of a saved plan takes, in this process."""
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import problem_of

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        file.write_text(json.dumps(record))
        problem = problem_of(read_saved(file), file, accept_changed=True)
    proof = record["certificate"]["independent"]
    problem.space.independent_proof(problem, proof["bound_s"], proof["set"]["nodes"])  # compiles
    begin = time.process_time()
    problem.space.independent_proof(problem, proof["bound_s"], proof["set"]["nodes"])
    return time.process_time() - begin


def checked_table(rows: list[Row]) -> str:
    """Return the table of the page."""
    lines = [line(COLUMNS), line(["---", *["---:"] * (len(COLUMNS) - 1)])]
    for row in rows:
        below = row["below_percent"]
        lines.append(line([
            row["case"], str(row["operators"]),
            ("equal" if below <= EQUAL else f"{below:.2g} %") + (", refused" * row["refused"]),
            f"{row['checking_s']:.1f}", f"{row['writing_s']:.2f}", f"{row['solving_s']:.1f}",
            f"{row['bytes'] / 1000:.0f}",
        ]))  # fmt: skip
    return "\n".join(lines)
