"""`make bench`: measure every case, write the results, show them in the manual.

python -m tests.benchmarks [--suite SUITE] [--only TEXT] [--seconds 200]
                           [--solvers auto,cp-sat,milp]
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from types import ModuleType

from tests.benchmarks import (
    ablations,
    accuracy,
    alpa,
    anytime,
    checked,
    checked_trials,
    consumer,
    doctor,
    errors,
    gpu_judge,
    growth,
    hybrids,
    kernel_judge,
    memory,
    mixed,
    nanotron,
    peers,
    plans,
    prediction,
    proof,
    recipes,
    reported,
    reuse,
    runtime,
    slicing_table,
    solutions,
    steps,
    tune,
    tuned,
    waits,
    wider,
)
from tests.benchmarks.cases import CASES, DATA
from tests.benchmarks.errors_table import errors_table
from tests.benchmarks.kept import Kept, measured
from tests.benchmarks.kernel_table import kernel_table
from tests.benchmarks.memory_table import memory_table
from tests.benchmarks.mixed_table import write_tables
from tests.benchmarks.nanotron_table import nanotron_table
from tests.benchmarks.steps_table import steps_table
from tests.benchmarks.table import aceso_table, write_table

SOLVERS = ("auto", "cp-sat", "milp")
ACESO_SECONDS = 200.0


def of_rows(module: ModuleType, name: str, table: Callable[..., str]) -> None:
    """Measure, and write the one table of what is known then."""
    module.measure()
    write_table(name, table(module.known()))


def memory_rows() -> None:
    """Judge memory; write its table."""
    memory.main()
    write_table("memory", memory_table(json.loads(memory.RESULTS.read_text())))


def mixed_clusters(suite: str, only: str, seconds: float | None) -> None:
    """Measure a suite of mixed clusters; write their tables."""
    mixed.measure(suite, only, seconds)
    write_tables(mixed.known())


def by_pytorch(suite: str, only: str) -> None:
    """Measure with PyTorch, which is imported for it."""
    from tests.benchmarks import step

    step.measure(suite, only)


# Name -> what measures it, of the options `--only` and `--seconds`.
SUITES: dict[str, Callable[[str, float | None], object]] = {
    **{name: partial(mixed_clusters, name) for name in mixed.KEYS},
    "memory": lambda only, seconds: memory_rows(),
    "alpa": lambda only, seconds: alpa.measure(),
    "predict": lambda only, seconds: prediction.measure(),
    "slicing": slicing_table.measure,
    "anytime": anytime.measure,
    "growth": growth.measure,
    "proof": proof.measure,
    "checked": checked.measure,
    "checked-trials": checked_trials.measure,
    "soon": proof.measure_soon,
    "nodes": proof.measure_nodes,
    "cores": lambda only, seconds: proof.measure_cores(only),
    "warm": reuse.measure_warm,
    "pinned": reuse.measure_pinned,
    "sweep": reuse.measure_sweep,
    **{name: partial(waits.measure, name) for name in waits.SUITES},
    "wider": wider.measure,
    "peers": peers.measure,
    "solutions": solutions.measure,
    "kernels": lambda only, seconds: of_rows(kernel_judge, "kernels", kernel_table),
    "ablations": lambda only, seconds: of_rows(ablations, "ablations", ablations.ablations_table),
    "steps": lambda only, seconds: of_rows(steps, "steps", steps_table),
    "nanotron": lambda only, seconds: of_rows(nanotron, "nanotron", nanotron_table),
    "hybrids": lambda only, seconds: hybrids.measure(),
    "accuracy": lambda only, seconds: accuracy.measure(),
    "errors": lambda only, seconds: of_rows(errors, "errors", errors_table),
    "tuned": lambda only, seconds: tuned.measure(),
    "reported": lambda only, seconds: reported.measure(),
    "consumer": lambda only, seconds: consumer.measure(),
    "one_gpu": lambda only, seconds: gpu_judge.measure(),
    "recipes": recipes.measure,
    "plans": plans.measure,
    "tune": tune.measure,
    "doctor": doctor.measure,
    **{name: partial(runtime.measure, name) for name in ("megatron", "analyze")},
    **{name: lambda only, seconds, name=name: by_pytorch(name, only) for name in ("step", "gpu")},
}


def main() -> None:
    """Run the cases one after the other, each in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = ("aceso", *SUITES)
    parser.add_argument("--suite", choices=every, help="default: all of them")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--solvers", default=",".join(SOLVERS), help="for the suite aceso")
    parser.add_argument("--seconds", type=float, help="time limit instead of the cases' own")
    options = parser.parse_args()
    for suite in every if options.suite is None else (options.suite,):
        if suite == "aceso":
            aceso(options.only, options.solvers.split(","), options.seconds or ACESO_SECONDS)
        else:
            SUITES[suite](options.only, options.seconds)


def aceso(only: str, solvers: list[str], seconds: float) -> None:
    """Measure Aceso's cases with every solver."""
    if not DATA.exists():
        print("aceso: left out, its profile database is not in ../shared/data/aceso")
        return
    keys = [(case.name, solver) for case in CASES for solver in SOLVERS]
    kept = Kept(
        "aceso", keys, lambda row: (row["case"], row["solver"]), f"2 cores, {seconds:.0f} s limit"
    )
    for case in CASES:
        for solver in solvers if only in case.name else ():
            kept.add(measured("tests.benchmarks.one", case.name, solver, str(seconds)))
    write_table("aceso", aceso_table(kept.rows))


if __name__ == "__main__":
    main()
