"""Measure mixed clusters: Metis's and AMP's cases, accuracy on real trials, and scale.

Every run is a process of its own; its seconds count from start to end, with compiled kernels.
Metis's cases and AMP's winners go through the command line, from the files that a user has. Those
of Metis are made in a temporary folder, as its profiles may not be kept here.
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import ROOT
from tests.benchmarks.mixed_cases import (
    AMP_PUBLISHED,
    METIS_CASES,
    SCALE_CASES,
    SEEDS,
    MetisCase,
    ScaleCase,
)
from tests.metis_cases import SAMPLES, published_cluster, scaled_samples, write_metis_cluster

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "mixed.json"
AMP_PROFILES = ROOT.parent / "shared" / "data" / "amp" / "profiles.json"
WIDER_SECONDS = 60.0  # for the planner's own space under Metis's costs
KEYS = {
    "metis": ("case", "space"),
    "amp": ("experiment", "placement"),
    "accuracy": ("experiment", "model", "fitted_on"),
    "scale": ("network", "types", "devices_per_type", "layers", "seed"),
}


def measure(suite: str, only: str, seconds: float | None) -> None:
    """Run the cases of a suite whose name contains a text; keep and show every row.

    Parameters
    ----------
    seconds: time limit instead of the cases' own.
    """
    runs: dict[str, Callable[[str, float | None], Iterator[Row]]] = {
        "metis": metis_rows,
        "amp": amp_rows,
        "accuracy": accuracy_rows,
        "scale": scale_rows,
    }
    for row in runs[suite](only, seconds):
        keep(suite, row)
        print(suite, json.dumps(row)[:240], flush=True)


def known() -> dict[str, Any]:
    """Return what was measured so far."""
    if RESULTS.exists():
        record: dict[str, Any] = json.loads(RESULTS.read_text())
        return record
    return {}


def keep(suite: str, row: Row) -> None:
    """Write a row to the results, in place of an older one of the same case."""

    def key(entry: Row) -> tuple[Any, ...]:
        return tuple(entry.get(name) for name in KEYS[suite])

    record = known()
    record["machine"] = f"Python {platform.python_version()}, 2 cores"
    kept = {key(entry): entry for entry in record.get(suite, [])}
    record[suite] = list((kept | {key(row): row}).values())
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")


# ---- Metis --------------------------------------------------------------------------------------


def metis_rows(only: str, seconds: float | None) -> Iterator[Row]:
    """Solve Metis's cases in its own space, and in the planner's under the same costs."""
    if not SAMPLES.is_dir():
        print("metis: left out, its sample profiles are not in ../shared/data/metis")
        return
    warm = True
    for case in METIS_CASES:
        if only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            options = metis_files(case, folder)
            for space, own in (
                (["--space", "metis", "--memory-rule", "device"], 200.0),
                (["--space", "groups"], WIDER_SECONDS),
            ):
                words = [*options, *space, "--time-limit", str(seconds or own)]
                if warm:
                    plan(words, folder)
                row = plan(words, folder)
                yield {"case": case.name, "space": space[1], **row}
            warm = False


def metis_files(case: MetisCase, folder: Path) -> list[str]:
    """Write a case's files; return the options that name them."""
    profile = SAMPLES
    if case.slower is not None:
        profile = scaled_samples(folder / "profile", case.slower)
    write_metis_cluster(
        published_cluster(case.t4, case.a100), folder / "hostfile", folder / "clusterfile.json"
    )
    text = (
        f"--hostfile hostfile --clusterfile clusterfile.json --profile metis:{profile} "
        "--cost-model metis --global-batch-size 128 --hidden-size 4096 --sequence-length 1024 "
        f"--vocab-size {case.vocabulary} --max-tp 4"
    )
    return text.split()


def plan(options: list[str], folder: Path) -> Row:
    """Run `ilp-plan solve` and return what it says.

    Raises
    ------
    SystemExit: it failed, otherwise than for lack of time or of a plan.
    """
    started = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", "ilp_planner", "solve", *options, "--json"],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    wall = time.perf_counter() - started
    if run.returncode not in (0, 3, 4):
        sys.exit(f"{' '.join(options)}: {run.stderr}")
    value = json.loads(run.stdout)
    stages = [
        {
            "layers": stage["stop"] - stage["start"],
            "tp": stage["tp"],
            "dp": stage["dp"],
            "types": sorted({name for r in stage["replicas"] for name in r["types"]}),
        }
        for stage in value.get("stages", [])
    ]
    return {
        **{key: value[key] for key in ("objective_s", "bound_s", "gap", "stopped_by")},
        "micro_batches": value.get("micro_batches"),
        "stages": stages,
        "idle_devices": len(value.get("idle", [])),
        "wall_s": wall,
    }


# ---- AMP ----------------------------------------------------------------------------------------


def amp_rows(only: str, seconds: float | None) -> Iterator[Row]:
    """Solve AMP's configurations jointly, then its experiments through the command line."""
    if not AMP_PROFILES.exists():
        print("amp: left out, its profiles are not in ../shared/data/amp")
        return
    experiments = [name for name in AMP_PUBLISHED if only in name]
    if not experiments:
        return
    for row in one("amp"):
        if row["experiment"] in experiments:
            yield row
    for number, name in enumerate(experiments):
        for placement in ("default", "free"):
            words = ["--profile", f"amp:{AMP_PROFILES}", "--experiment", name]
            words += ["--cost-model", "amp", "--placement", placement]
            words += ["--time-limit", str(seconds or 200.0)]
            if not number:
                plan(words, ROOT)  # compiles
            yield {"experiment": name, "placement": placement, **plan(words, ROOT)}


def accuracy_rows(only: str, seconds: float | None) -> Iterator[Row]:
    """Compare predictions with AMP's real trials."""
    del seconds
    if not AMP_PROFILES.exists():
        print("accuracy: left out, AMP's trials are not in ../shared/data/amp")
        return
    for row in one("accuracy"):
        if only in row["experiment"]:
            yield row


# ---- scale --------------------------------------------------------------------------------------


def scale_rows(only: str, seconds: float | None) -> Iterator[Row]:
    """Solve the generated instances of every size and seed."""
    cases = [case for case in SCALE_CASES if only in case.name]
    if cases:
        one("scale", "fast", "2", "4", "4", "0", "10")  # compiles
    for case in cases:
        for seed in SEEDS:
            yield scale_row(case, seed, seconds or case.limit)


def scale_row(case: ScaleCase, seed: int, seconds: float) -> Row:
    """Solve one."""
    words = (case.network, case.types, case.devices_per_type, case.layers, seed, seconds)
    row: Row = one("scale", *map(str, words))
    return row


def one(*words: str) -> Any:
    """Run `mixed_one`; return what it prints.

    Raises
    ------
    SystemExit: it failed.
    """
    run = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.mixed_one", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if run.returncode:
        sys.exit(f"{' '.join(words)}: {run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])
