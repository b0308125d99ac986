"""The interval of measured over predicted seconds that holds 4 of 5 runs, by kinds of runs.

python -m tests.benchmarks --suite errors

Of runs that are predicted by constants of their own GPU, fitted without their model, 1 in 10 is to
be faster and 1 in 10 slower than the interval says: a base of either side, times a factor of at
least 1 for each feature of the run (`RunKind.features`), by quantile regression. The base is then
widened until 4 of 5 runs are inside by a table that did not see their model. Factors of GPUs on
which nothing was measured are those by which the runs of one GPU, or of one architecture, have to
be wider where it was left out: the geometric mean of all that were. A feature that no run has
counts as the one that widens most.

Coverage is of runs that were left out by model, and by GPU: table, constants and kernels saw none.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from ilp_planner.specs import time_errors
from ilp_planner.specs.time_errors import (
    OTHER,
    OWN,
    SAME,
    RunKind,
    gpu_model,
    half_widths,
    kind_of_job,
)
from tests.benchmarks import error_rows
from tests.benchmarks.error_rows import Row
from tests.benchmarks.machine_fit import model_of
from tests.benchmarks.published import DATA, Run, gpu

RESULTS = Path(__file__).parent / "results" / "errors.json"
SHIPPED = Path(time_errors.__file__).with_name(time_errors.FILE)
INSIDE, OUTSIDE = 0.8, 0.1  # share of runs inside, and beyond either end
SMOOTH, PULL = 0.01, 0.1  # of the pinball loss near 0; cost of a factor of e, in errors of runs
STARTS, LEAST, LARGEST = (-3.0, -2.3), -5.0, 1.5  # logarithms of a base, and of a factor
DIGITS = 3
FEATURES = ("experts", "below 16 bits", "4 bits", "sharded", "long", "many")
GPUS = ("A100",)  # whose constants were fitted apart from all others
BORROWED = ("H200",)  # which have no constants of their own
FEW = 10  # runs of a GPU that a factor is told from, at least


class Case(NamedTuple):
    """A run as tables see it. level: of its constants; its GPU where they are fitted to that's own
    runs. off: logarithm of measured over predicted."""

    run: Run
    model: str
    architecture: str
    level: str
    features: tuple[str, ...]
    off: float


Pair = tuple[float, float]


class Widths(NamedTuple):
    """A base and factors, of faster and of slower runs."""

    base: Pair
    factors: dict[str, Pair]

    def excess(self, case: Case) -> float:
        """Return how far a run is from the middle, with the ends at 1."""
        faster, slower = half_widths(case.features, self.base, self.factors)
        return max(-case.off / faster, case.off / slower)

    def widened(self, times: float) -> "Widths":
        """Return the same with another base."""
        return self._replace(base=(self.base[0] * times, self.base[1] * times))


def kind_of(run: Run) -> RunKind:
    """Return what tells how far the time of a published run may be off."""
    kind = kind_of_job(run.job.model, run.job.settings, run.gpus)
    return replace(kind, gpu=gpu(run.gpu).name)


def case_of(row: Row) -> Case:
    """Return a row as tables see it."""
    own = gpu(row.run.gpu)
    level = gpu_model(own.name) if row.level == OWN else row.level
    features = (*kind_of(row.run).job_features, level)
    return Case(row.run, model_of(row.run), own.architecture.name, level, features, row.off)


def fitted(cases: Sequence[Case]) -> Widths:
    """Return base and factors by quantile regression."""
    names = [name for name in (*FEATURES, *GPUS) if any(name in c.features for c in cases)]
    has = np.array([[name in case.features for name in names] for case in cases], float)
    off = np.array([case.off for case in cases])
    faster, slower = (_regression(has, sign * off) for sign in (-1, 1))
    pairs = np.exp(np.stack((faster, slower), axis=1)).tolist()
    return Widths(tuple(pairs[0]), dict(zip(names, map(tuple, pairs[1:]), strict=True)))


def _regression(has: np.ndarray, off: np.ndarray) -> np.ndarray:
    """Return the logarithms of base and factors, at least 0, beyond whose product 1 run in 10
    is."""

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        ends = np.exp(values[0] + has @ values[1:])
        beyond = (off - ends) / SMOOTH
        total = (SMOOTH * np.logaddexp(0, beyond) - OUTSIDE * (off - ends)).sum()
        slope = (OUTSIDE - expit(beyond)) * ends
        each = np.concatenate(([slope.sum()], has.T @ slope + PULL))
        return float(total + PULL * values[1:].sum()), each

    bounds = [(LEAST, 0.0), *[(0.0, LARGEST)] * has.shape[1]]
    found = [
        minimize(loss, [start, *[0.2] * has.shape[1]], jac=True, method="L-BFGS-B", bounds=bounds)
        for start in STARTS
    ]
    return np.asarray(min(found, key=lambda one: one.fun).x)


def left_out(cases: Sequence[Case], name: Callable[[Case], str]) -> list[float]:
    """Return how far each run is from the middle by a table that saw none of its name."""
    tables = {
        one: fitted([case for case in cases if name(case) != one])
        for one in dict.fromkeys(map(name, cases))
    }
    return [tables[name(case)].excess(case) for case in cases]


def quantile(excess: Sequence[float], share: float = INSIDE) -> float:
    """Return what a share of runs, and of one more, is within."""
    ranked = sorted(excess)
    return ranked[min(len(ranked), int(np.ceil(share * (len(ranked) + 1)))) - 1]


def model(case: Case) -> str:
    """Return the model of a run."""
    return case.model


def gpu_of(case: Case) -> str:
    """Return the GPU of a run."""
    return gpu_model(gpu(case.run.gpu).name)


def architecture(case: Case) -> str:
    """Return the architecture of the GPU of a run."""
    return case.architecture


class Found(NamedTuple):
    """The table, and of every judged run whether it was inside by a table that did not see it."""

    widths: Widths
    models: list[tuple[Case, bool]]
    gpus: list[tuple[Case, bool]]
    architectures: list[tuple[Case, bool]]


def inherited(
    widths: Widths, cases: Sequence[Case], kind: Callable[[Case], str]
) -> dict[str, float]:
    """Return by how much the runs of each kind have to be wider, by constants of another GPU."""
    names = dict.fromkeys(map(kind, cases))
    return {
        name: max(1.0, quantile([widths.excess(c) for c in cases if kind(c) == name]))
        for name in names
        if sum(kind(c) == name for c in cases) > FEW
    }


def usual(factors: dict[str, float]) -> float:
    """Return the geometric mean of the factors of kinds."""
    return float(np.exp(np.mean(np.log(list(factors.values())))))


def judged(rows: Sequence[Row]) -> Found:
    """Fit the table and judge it."""
    cases = [case_of(row) for row in rows]
    own = [case for case in cases if case.level not in (SAME, OTHER)]
    own = [case for case in own if gpu_of(case) not in BORROWED]
    away = left_out(own, model)
    widths = fitted(own).widened(quantile(away))
    pairs = list(zip(own, away, strict=True))
    ends = {
        name: quantile([found for case, found in pairs if case.model != name])
        for name in dict.fromkeys(map(model, own))
    }
    models = [(case, found <= ends[case.model]) for case, found in pairs]
    sides: list[list[tuple[Case, bool]]] = []
    factors = dict(widths.factors)
    for level, kind in ((SAME, gpu_of), (OTHER, architecture)):
        some = [case for case in cases if case.level == level]
        found = inherited(widths, some, kind)
        factors[level] = (usual(found),) * 2
        inside = []
        for name in dict.fromkeys(map(kind, some)):
            rest = [case for case in own if kind(case) != name]
            table = fitted(rest).widened(quantile(left_out(rest, model)))
            others = [case for case in some if kind(case) != name]
            factor = usual(inherited(table, others, kind))
            inside += [(c, table.excess(c) <= factor) for c in some if kind(c) == name]
        sides.append(inside)
    return Found(widths._replace(factors=factors), models, *sides)


def shipped(found: Found) -> dict[str, Any]:
    """Return the table as it ships."""
    widths, cases = found.widths, [case for case, _ in found.models]
    kinds = [kind_of(case.run) for case in cases]
    count = Counter((k.experts, k.bits, gpu_model(k.gpu), k.sharded, k.long, k.many) for k in kinds)
    pairs = [widths.factors[name] for name in FEATURES]
    sizes = [sum(half_widths(case.features, *widths)) / 2 for case in cases]
    heads = ("experts", "bits", "gpu", "sharded", "long", "many")
    return {
        "source": f"tests/benchmarks/errors.py, {len(cases)} groups of published runs; base and "
        "factors: logarithms of measured over predicted, of runs faster and slower than predicted",
        "base": _rounded(widths.base),
        "factors": {name: _rounded(pair) for name, pair in widths.factors.items()},
        "unmeasured": _rounded([max(side) for side in zip(*pairs, strict=True)]),
        "mean": round(sum(abs(case.off) for case in cases) / sum(sizes), DIGITS),
        "longest": max(kind.sequence for kind in kinds),
        "most": max(kind.gpus for kind in kinds),
        "groups": [
            {**dict(zip(heads, key, strict=True)), "groups": n} for key, n in sorted(count.items())
        ],
    }


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, DIGITS) for value in values]


def coverage(found: Found) -> list[dict[str, Any]]:
    """Return the share of runs inside, of all that were left out and by class."""
    rows = [_share("model", "all", found.models, found.widths)]
    for name in (*FEATURES, *GPUS):
        some = [pair for pair in found.models if name in pair[0].features]
        rows.append(_share("model", name, some, found.widths))
    plain = [pair for pair in found.models if not {*FEATURES, *GPUS} & {*pair[0].features}]
    rows.append(_share("model", "none of these", plain, found.widths))
    for what, kind, pairs in (
        ("GPU", gpu_of, found.gpus),
        ("architecture", architecture, found.architectures),
    ):
        rows.append(_share(what, "all", pairs, found.widths))
        for name in dict.fromkeys(kind(case) for case, _ in pairs):
            some = [pair for pair in pairs if kind(pair[0]) == name]
            rows.append(_share(what, name, some, found.widths))
    return rows


def _share(
    out: str, name: str, pairs: Sequence[tuple[Case, bool]], widths: Widths
) -> dict[str, Any]:
    ends = np.array([half_widths(case.features, *widths) for case, _ in pairs])
    low, high = np.median(np.exp(ends * (-1, 1)), axis=0)
    return {
        "left out": out,
        "class": name,
        "groups": len(pairs),
        "inside": round(sum(inside for _, inside in pairs) / len(pairs), DIGITS),
        "low": round(float(low) - 1, DIGITS),
        "high": round(float(high) - 1, DIGITS),
        "mean error": round(float(np.mean([abs(np.expm1(-c.off)) for c, _ in pairs])), DIGITS),
    }


def measure() -> None:
    """Fit the table, judge it, and write both down."""
    if not DATA.is_dir():
        print("errors: left out, no runs in ../shared/data/measured")
        return
    rows = [*error_rows.own_rows(), *error_rows.nearest_rows(), *error_rows.elsewhere_rows()]
    write(judged(rows))


def write(found: Found) -> None:
    """Write down the table that ships and its coverage."""
    SHIPPED.write_text(_text(shipped(found)))
    RESULTS.write_text(_text(coverage(found)))


def _text(value: object) -> str:
    """Return JSON with its innermost objects on a line each."""
    text = json.dumps(value, indent=1)
    for inner in (r"\[[^][{}]*\]", r"\{[^{}]*\}"):
        text = re.sub(inner, lambda found: json.dumps(json.loads(found[0])), text)
    return f"{text}\n"


def known() -> list[dict[str, Any]]:
    """Return the coverage that was written down last."""
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text())
    return found
