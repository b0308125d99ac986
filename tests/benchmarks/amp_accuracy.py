"""How well cost models predict AMP's real trials: 16 GPUs, GPT-2, timed by AMP's authors.

python -m tests.benchmarks.amp_accuracy

Two experiments have real times (het_model has predictions only). The native model's three constants
are fitted on one of them and judged on the other; both together gave the shipped constants, and are
no test. The fit looks for the least mean of |log(predicted / real)|. Failed trials are left out:
the logs do not tell lack of memory from lack of time.

What the result rests on: V100 rows are launch-bound, so how long a V100 works is taken from the
T4's rows and the ratio of the two memory bandwidths. With the ratio of fp16 peaks instead, the
Spearman correlations on the other experiment are 0.88 (homogeneous) and 0.73 (het_cluster), with
neither 0.74 and 0.67. Five trials of het_cluster are missed by more than a quarter: tp > 1, two
samples or fewer per micro-batch, several stages, up to twice as slow as with larger micro-batches.
T4 nodes alone do not show it, and no term here explains it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ilp_planner.costs.launch_floor import Calibration
from ilp_planner.costs.layers import layer_costs
from ilp_planner.costs.profiles.layers import LayerProfile
from ilp_planner.peers.amp.profile import read_amp
from ilp_planner.peers.amp.tables import layer_profile
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica
from ilp_planner.specs.cluster import ClusterSpec

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "amp"
EXPERIMENTS = ("homogeneous", "het_cluster")
CONSTANTS = ("launch_share", "device_share", "tensor_loss")
START = Calibration(launch_share=0.5, device_share=0.5, tensor_loss=0.5)


class Trial(NamedTuple):
    """One launched configuration. predicted: by AMP. real: seconds per iteration."""

    plan: GroupPlan
    predicted: float
    real: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """One cluster and its successful trials."""

    name: str
    cluster: ClusterSpec
    profile: LayerProfile
    trials: tuple[Trial, ...]

    @property
    def real(self) -> NDArray[np.float64]:
        return np.array([trial.real for trial in self.trials])

    def predict(self, calibration: Calibration) -> NDArray[np.float64]:
        """Return the native model's seconds per iteration of every trial."""
        costs = layer_costs(self.profile, self.cluster, calibration=calibration)
        return np.array([costs.plan_cost(t.plan, self.cluster).iteration_time for t in self.trials])


# ---- reading ------------------------------------------------------------------------------------


@cache
def experiment(name: str) -> Experiment:
    """Read one experiment."""
    found = read_amp(DATA / "profiles.json", name)
    rows = json.loads((DATA / "trials.json").read_text())["trials"]
    return Experiment(
        name=name,
        cluster=found.cluster,
        profile=layer_profile(found.profile),
        trials=tuple(
            Trial(plan_of(row), row["predicted_s"], row["real_s"])
            for row in rows
            if row["experiment"] == name and row["real_s"] is not None
        ),
    )


def plan_of(row: dict[str, Any]) -> GroupPlan:
    """Return a trial's plan: ranks count tp fastest, then dp, then the stages; node by node."""
    tp, dp = row["tp"], row["dp"]
    device_of = {
        rank: place
        for place, rank in enumerate(
            rank for node in sorted(row["placement"], key=int) for rank in row["placement"][node]
        )
    }
    cuts = row["ds_partition"]
    stages = []
    for number, (start, stop) in enumerate(pairwise(cuts)):
        replicas = tuple(
            Replica(
                devices=tuple(device_of[k + tp * (d + dp * number)] for k in range(tp)),
                samples=row["mbs"],
            )
            for d in range(dp)
        )
        stages.append(GroupStage(start=start, stop=stop, replicas=replicas))
    return Plan(
        model=row["model"],
        global_batch=row["gbs"],
        micro_batches=row["num_microbatches"],
        stages=tuple(stages),
    )


# ---- fitting ------------------------------------------------------------------------------------


def loss(calibration: Calibration, experiments: Sequence[Experiment]) -> float:
    """Return the mean |log(predicted / real)| over all trials."""
    errors = [np.abs(np.log(e.predict(calibration) / e.real)) for e in experiments]
    return float(np.mean(np.concatenate(errors)))


@cache
def fitted(names: tuple[str, ...]) -> Calibration:
    """Fit the constants on some experiments: pattern search, halving the steps down to 0.5 %."""
    experiments = [experiment(name) for name in names]
    best = START
    least = loss(best, experiments)
    step = 0.4
    while step > 0.005:
        for trial in neighbours(best, step):
            value = loss(trial, experiments)
            if value < least:
                best, least = trial, value
                break
        else:
            step /= 2
    return best


def neighbours(calibration: Calibration, step: float) -> Iterator[Calibration]:
    """Yield one constant, then two at once, larger or smaller by a share."""
    for name in CONSTANTS:
        for factor in (1 + step, 1 / (1 + step)):
            yield replace(calibration, **{name: getattr(calibration, name) * factor})
    for i, first in enumerate(CONSTANTS):
        for second in CONSTANTS[i + 1 :]:
            for factor in (1 + step, 1 / (1 + step)):  # one up, the other down
                up = getattr(calibration, first) * factor
                down = getattr(calibration, second) / factor
                yield replace(calibration, **{first: up, second: down})


# ---- judging ------------------------------------------------------------------------------------


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks; equal values share the mean of theirs."""
    below = (values[:, None] > values[None, :]).sum(axis=1)
    return below + ((values[:, None] == values[None, :]).sum(axis=1) - 1) / 2


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the correlation of ranks."""
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def kendall(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return Kendall's tau-b."""
    pairs = np.triu_indices(a.size, 1)
    x, y = np.sign(a[:, None] - a)[pairs], np.sign(b[:, None] - b)[pairs]
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def regret(predicted: NDArray[np.float64], real: NDArray[np.float64], first: int) -> float:
    """Return what the best of the first few costs above the best of all, as a share."""
    chosen = np.argsort(predicted, kind="stable")[:first]
    return float(real[chosen].min() / real.min() - 1)


def accuracy(predicted: NDArray[np.float64], real: NDArray[np.float64]) -> dict[str, float]:
    """Return every figure of merit."""
    error = np.abs(predicted / real - 1)
    return {
        "n": real.size,
        "spearman": spearman(predicted, real),
        "kendall": kendall(predicted, real),
        "mape": float(error.mean()),
        "median_ape": float(np.median(error)),
        **{f"top_{k}_regret": regret(predicted, real, k) for k in (1, 3, 10)},
    }


def rows() -> list[dict[str, Any]]:
    """Return the accuracy of AMP and of the native model, JSON-ready; errors are shares."""
    found = []
    for name in EXPERIMENTS:
        tested = experiment(name)
        amp = np.array([trial.predicted for trial in tested.trials])
        found.append({"experiment": name, "model": "amp", **accuracy(amp, tested.real)})
        others = tuple(other for other in EXPERIMENTS if other != name)
        for names in (others, EXPERIMENTS):
            calibration = fitted(names)
            found.append(
                {
                    "experiment": name,
                    "model": "native",
                    "fitted_on": " + ".join(names),
                    "constants": {key: getattr(calibration, key) for key in CONSTANTS},
                    **accuracy(tested.predict(calibration), tested.real),
                }
            )
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    share: Callable[[float], str] = lambda value: f"{100 * value:.1f} %"  # noqa: E731
    lines = [
        "| experiment | model | fitted on | trials | Spearman | Kendall | MAPE | median APE "
        "| top-1 regret | top-3 | top-10 |",
        "|---|---|---|" + "---:|" * 8,
    ]
    for row in found:
        errors = (row[key] for key in ("mape", "median_ape"))
        regrets = (row[f"top_{k}_regret"] for k in (1, 3, 10))
        cells = [
            row["experiment"],
            row["model"],
            row.get("fitted_on", "-"),
            f"{row['n']}",
            f"{row['spearman']:.3f}",
            f"{row['kendall']:.3f}",
            *map(share, (*errors, *regrets)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    measured = rows()
    print(table(measured))
    for row in measured:
        if "constants" in row:
            print(row["experiment"], row["fitted_on"], row["constants"])
