"""How near the independent proofs of plans are to the claim, and what they cost.

python -m tests.benchmarks --suite checked [--only TEXT] [--seconds 200]

Every row is a `solve` and its saved file, read by `ilp_planner/checker.py` alone in a process of
its own. All seconds are of CPU. Cases of Aceso and of Metis are left out where their profiles are
not.
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
from tests.benchmarks.mixed import metis_files
from tests.benchmarks.mixed_cases import METIS_CASES
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table
from tests.metis_cases import SAMPLES

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
    "case", "operators or layers", "proof below the claim", "checking (s)", "writing (s)",
    "solving (s)", "file (KB)",
)  # fmt: skip


def words_of(case: Case) -> str:
    """Return the arguments of `solve` for a case of Aceso."""
    return (
        f"{case.model} --cluster {case.cluster} --profile aceso:{DATA / case.database} "
        f"--cost-model aceso --global-batch-size {case.global_batch}"
    )


METIS = {f"Metis, {case.name}, --space {space}": (case, space)
         for case in METIS_CASES for space in ("metis", "groups")}  # fmt: skip


def kept() -> Kept:
    """Return what is known of the cases."""
    return Kept("checked", [*(case.name for case in CASES), *NATIVE, *METIS])


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the table."""
    cases = {case.name: [*words_of(case).split(), "--memory-limit", case.memory] for case in CASES}
    for name, words in NATIVE.items():
        cases[name] = [*words.split(), "--space", "operators", "--global-batch-size", "512"]
    rows = kept()
    for name, words in cases.items():
        if only in name and (name in NATIVE or DATA.exists()):
            rows.add({"case": name, **_row(words, seconds or SECONDS)})
    for name, (case, space) in METIS.items():
        if only in name and SAMPLES.exists():
            with tempfile.TemporaryDirectory() as folder:
                words = [*metis_files(case, Path(folder)), "--space", space]
                words = [named(word, Path(folder)) for word in words]
                rows.add({"case": name, **_row(words, seconds or SECONDS)})
    write_table("checked", checked_table(rows.rows))


def named(word: str, folder: Path) -> str:
    """Return a word of a command, a file of the folder by its whole path."""
    return str(folder / word) if (folder / word).is_file() else word


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
        "operators": _length(record["certificate"]["independent"]["table"]),
        "below_percent": float(below[1]) if below else 0.0,
        "refused": "FAULT" in told,
        "checking_s": checking,
        "writing_s": _writing(record, words),
        "solving_s": solving,
        "bytes": size,
    }


def _length(table: Row) -> int:
    """Return the operators of a chain, or the layers."""
    return len(table["chain"]) if "chain" in table else int(table["layers"])


def _writing(record: Row, words: list[str]) -> float:
    """Return the seconds of CPU that the proof of a saved plan takes, in this process."""
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import problem_of

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        file.write_text(json.dumps(record))
        problem = problem_of(read_saved(file), file, accept_changed=True)
    proof = record["certificate"]["independent"]
    nodes = proof["set"]["nodes"] if "chain" in proof["table"] else ()
    problem.space.independent_proof(problem, proof["bound_s"], nodes)  # compiles
    begin = time.process_time()
    problem.space.independent_proof(problem, proof["bound_s"], nodes)
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
