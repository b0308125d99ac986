"""How near the independent proofs of plans are to the claim, and what they cost.

python -m tests.benchmarks --suite checked [--only TEXT] [--seconds 200]

Every row is a `solve` and its saved file, read by the checker alone, in a process of
its own. All seconds are of CPU. Rows of the README, of Aceso, of Metis and of Megatron are among
them; cases of Aceso and of Metis are left out where their profiles are not. A case that is known of
the checker as it is now is not measured again, unless `--only` names it.
"""

import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks import runtime
from tests.benchmarks.cases import CASES, DATA, ROOT, Case
from tests.benchmarks.checked_trials import FALSE, NOTICED, SPACES, code_lines, digest
from tests.benchmarks.checked_trials import kept as kept_trials
from tests.benchmarks.kept import Kept, measured, on_cores
from tests.benchmarks.mixed import metis_files
from tests.benchmarks.mixed_cases import METIS_CASES
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table
from tests.metis_cases import SAMPLES

Row = dict[str, Any]

SECONDS = 200.0
EQUAL = 1e-6  # percent: the claim is rounded down by as much before it is proved
NATIVE = {
    "native gpt 1.3B, 4": "gpt3-1.3b --cluster v100-32gb-1x4 --global-batch-size 512",
    "native gpt 6.7B, 1 or 2 nodes of 8": "gpt3-6.7b --cluster v100-32gb-2x8 --max-devices 16 "
    "--global-batch-size 512",
    "native resnet 2B, 4": "wide-resnet-2b --cluster v100-32gb-1x4 --global-batch-size 512",
    "native t5 770M, 4": "t5-770m --cluster v100-32gb-1x4 --global-batch-size 512",
    "native gpt 1.3B, 2x8, batch 64": "gpt3-1.3b --cluster v100-32gb-2x8 --global-batch-size 64",
    "native gpt 6.7B, 4x8, batch 64": "gpt3-6.7b --cluster v100-32gb-4x8 --global-batch-size 64",
    "native t5 3B, 2x8, batch 64": "t5-3b --cluster v100-32gb-2x8 --global-batch-size 64",
}
LAYERS = {
    "native gpt 1.3B, 12 V100 + 4 T4, --space groups": "gpt3-1.3b --cluster mixed-v100-t4 "
    "--space groups --global-batch-size 256",
}  # fmt: skip
JOBS = {  # of the README, and of other runtimes
    "Qwen3 14B, 16 H100, batch 128, one stage per rank": "Qwen/Qwen3-14B --gpus 16xH100 "
    "--global-batch-size 128 --virtual-stages 1 --prefer-plain 0",
    "the same, any number of stages": "Qwen/Qwen3-14B --gpus 16xH100 --global-batch-size 128",
    "Llama-3 8B, 16 H100, batch 128, pp 2, one stage per rank": "llama3-8b --gpus 16xH100 "
    "--global-batch-size 128 --pp 2 --virtual-stages 1",
    "Llama-3 8B, 32 A100, batch 256": "llama3-8b --cluster a100-4x8 --global-batch-size 256",
    "Llama-3 70B, 64 H100, batch 256": "llama3-70b --gpus 64xH100 --global-batch-size 256",
    "deepseek-v3, 256 H100, batch 2048": "deepseek-v3 --gpus 256xH100 --global-batch-size 2048",
    "Mixtral 8x7B, 16 H100, batch 64": "mixtral-8x7b --gpus 16xH100 --global-batch-size 64",
    "Llama-3 8B, 16 H100, batch 64, DeepSpeed": "llama3-8b --gpus 16xH100 "
    "--global-batch-size 64 --runtime deepspeed",
    "the same, torchtitan, `schedule=1f1b`": "llama3-8b --gpus 16xH100 "
    "--global-batch-size 64 --runtime torchtitan --schedule 1f1b",
}  # fmt: skip
PLANNED = {f"{runtime.case_name(case)}, batch {case.batch}": case for case in runtime.PLANNED}
COLUMNS = {
    "checked": (
        "case", "operators or layers", "proof below the claim", "checking (s)", "writing (s)",
        "solving (s)", "file (KB)",
    ),
    "checked-jobs": (
        "case", "proof below the claim", "degrees x settings", "checking (s)", "writing (s)",
        "solving (s)", "file (KB)",
    ),
}  # fmt: skip


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
    names = [*(case.name for case in CASES), *NATIVE, *LAYERS, *METIS, *JOBS, *PLANNED]
    return Kept("checked", names)


def commands() -> dict[str, Callable[[Path], list[str]]]:
    """Return what makes the arguments of `solve` of every case that can be measured here, with its
    files in a folder."""
    found: dict[str, Callable[[Path], list[str]]] = {}
    if DATA.exists():
        for case in CASES:
            words = [*words_of(case).split(), "--memory-limit", case.memory]
            found[case.name] = lambda _, words=words: words
    for name, text in NATIVE.items():
        words = [*text.split(), "--space", "operators"]
        found[name] = lambda _, words=words: words
    if SAMPLES.exists():
        found |= {name: lambda folder, one=one: _metis(folder, *one) for name, one in METIS.items()}
    asked = {**LAYERS, **JOBS}
    found |= {name: lambda _, text=text: text.split() for name, text in asked.items()}
    return found | {
        name: lambda folder, case=case: _planned(folder, case) for name, case in PLANNED.items()
    }


def _metis(folder: Path, case: Any, space: str) -> list[str]:
    """Return the arguments of a case of Metis."""
    return [named(word, folder) for word in [*metis_files(case, folder), "--space", space]]


def _planned(folder: Path, case: runtime.Case) -> list[str]:
    """Return the arguments of a case of Megatron."""
    return ["--model", str(ROOT / "models" / f"{case.model}.toml"),
            "--cluster", str(runtime.cluster_file(case, folder)),
            "--global-batch-size", str(case.batch), "--runtime", "megatron"]  # fmt: skip


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the tables."""
    rows, now = kept(), digest()
    known = {row["case"]: row.get("checker") for row in rows.rows}
    for name, words in commands().items():
        if only in name and (only or known.get(name) != now):
            with tempfile.TemporaryDirectory() as folder:
                row = _row(words(Path(folder)), Path(folder) / "plan.json", seconds or SECONDS)
            rows.add({"case": name, **row, "checker": now, "lines": code_lines()})
    for name, table in tables(rows.rows).items():
        write_table(name, table)


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


def _row(words: list[str], file: Path, seconds: float) -> Row:
    """Return what is measured of a case, or why there is nothing to check."""
    solving, told = cpu("-m", "ilp_planner", "solve", *words, "--time-limit", str(seconds),
                        "--output", str(file))  # fmt: skip
    if not file.exists():
        return {"solving_s": solving, "why": told.strip().splitlines()[-1] if told else "no plan"}
    written = measured("tests.benchmarks.checked_one", str(file))
    if "why" in written:
        return {"solving_s": solving, **written}
    checking, told = cpu("ilp_planner/checker/checker.py", str(file))
    proof = json.loads(file.read_text())["certificate"]["independent"]
    below = re.search(r"^weaker +(\S+) %", told, re.MULTILINE)
    row = {
        "operators": _length(proof),
        "below_percent": float(below[1]) if below else 0.0,
        "refused": "FAULT" in told,
        "checking_s": checking,
        "solving_s": solving,
        "bytes": file.stat().st_size,
        **written,
    }
    if proof["table"]["costs"] == "training":
        cases = (len(case) if isinstance(case, list) else 1 for case in proof["cases"])
        row |= {"settings": sum(cases)}
    return row


def _length(proof: Row) -> int:
    """Return the operators of a chain, or the layers."""
    table = proof["table"]
    if "chain" in table:
        return len(table["chain"])
    return int(table["layers"] if "layers" in table else proof["set"]["layers"])


def tables(rows: list[Row]) -> dict[str, str]:
    """Return the tables of the page by name."""
    jobs = {*JOBS, *PLANNED}
    return {
        "checked": _table("checked", [row for row in rows if row["case"] not in jobs], _cells),
        "checked-jobs": _table(
            "checked-jobs", [row for row in rows if row["case"] in jobs], _cells_of_job
        ),
        "checked-asked": asked_table(rows, kept_trials().rows),
    }


def _table(name: str, rows: list[Row], cells: Callable[[Row], list[str]]) -> str:
    heads = COLUMNS[name]
    lines = [line(heads), line(["---", *["---:"] * (len(heads) - 1)])]
    return "\n".join([*lines, *(line([row["case"], *cells(row)]) for row in rows)])


def _cells(row: Row) -> list[str]:
    """Return what is said of a plan of operators or of whole layers."""
    if "why" in row:
        return ["", f"none: {row['why']}", "", "", f"{row['solving_s']:.1f}", ""]
    return [str(row["operators"]), _below(row), *_costs(row)]


def _cells_of_job(row: Row) -> list[str]:
    """Return what is said of a plan of a training runtime."""
    if "why" in row:
        return [f"none: {row['why']}", "", "", "", f"{row['solving_s']:.1f}", ""]
    return [_below(row), str(row["settings"]), *_costs(row)]


def _below(row: Row) -> str:
    below = row["below_percent"]
    return ("equal" if below <= EQUAL else f"{below:.2g} %") + (", refused" * row["refused"])


def _costs(row: Row) -> list[str]:
    seconds = (f"{row['checking_s']:.1f}", f"{row['writing_s']:.2f}", f"{row['solving_s']:.1f}")
    return [*seconds, f"{row['bytes'] / 1000:.0f}"]


# ---- what was asked ------------------------------------------------------------------------------

WITHIN = 1e-4  # percent: 1e-6 of the claim


def asked_table(rows: list[Row], trials: list[Row]) -> str:
    """Return what was asked of the checker with what was measured."""
    proved = [row for row in rows if "why" not in row]
    equal = sum(row["below_percent"] <= WITHIN for row in proved)
    near = sum(row["below_percent"] <= 1 for row in proved)
    soon = sum(row["checking_s"] <= max(10, row["solving_s"] / 10) for row in proved)
    cheap = sum(row["writing_s"] <= row["solving_s"] / 5 for row in proved)
    lines = next((row["lines"] for row in reversed(rows) if "lines" in row), "")
    of = {name: [row for row in trials if row["trial"] == name]
          for name in ("bounds", "edits", "mistakes")}  # fmt: skip
    edits = sum(row["edits"] + len(row["broken"]) for row in of["edits"])
    accepted = sum(len(row["accepted"]) for row in of["edits"])
    false, noticed = (sum(row.get(x, 0) for row in of["mistakes"] for x in every)
                      for every in (FALSE, NOTICED))  # fmt: skip
    least = min(sum(row.get("instances", 0) for row in of["bounds"] if row["space"] == space)
                for space in SPACES)  # fmt: skip
    above = sum(len(row["above"]) for row in of["bounds"])
    cells = (
        ("lines of the checker, without comments, docstrings and blank lines", "2,500", f"{lines}"),
        ("proofs equal to the claim within 1e-6", "90 %",
         f"{equal} of {len(proved)}, {near} within 1 %; {len(rows) - len(proved)} have none"),
        ("seconds of checking, at most 10 or a tenth of the solve", "all",
         f"{soon} of {len(proved)}"),
        ("seconds of writing, at most a fifth of the solve", "all", f"{cheap} of {len(proved)}"),
        ("mistakes that make a claim false, noticed", "100 of 100", f"{noticed} of {false}"),
        ("edits of files, accepted with a false claim", "0 of 10,000", f"{accepted} of {edits}"),
        ("random instances of each space, bounds above the optimum", "0 of 1,000",
         f"{above}; {least} instances of the space with fewest"),
    )  # fmt: skip
    return "\n".join([line(("", "asked", "measured")), "|---|---:|---:|", *map(line, cells)])
