"""The host's time of PyTorch's operators, by steps of transformers that wait for it.

python -m tests.benchmarks.host

`starts.EAGER` and `starts.HOOKED` are fitted to the steps that these two make longer; each step is
also predicted by the steps of other models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

from ilp_planner.costs.training import ranks, starts
from tests.benchmarks.step_times import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.specs.machine import Machine
    from tests.benchmarks.published import Run

FELT = 0.05  # of a step that ends earlier without the host
FIRST = (1.0, 1.0)  # of the search: nothing is particular about PyTorch
Pair = tuple[float, float]
Step = tuple["Run", "Machine"]


def predicted(step: Step, pair: Pair) -> float:
    """Return the seconds of a step by some `EAGER` and `HOOKED`."""
    names = dict(zip(("EAGER", "HOOKED"), pair, strict=True))
    with mock.patch.multiple(starts, **names):
        ranks.shared_of.cache_clear()
        found = seconds(*step)
    ranks.shared_of.cache_clear()
    return found


def waits(step: Step) -> bool:
    """Tell whether the host makes a step longer, by the constants that ship."""
    shipped = predicted(step, (starts.EAGER, starts.HOOKED))
    return predicted(step, (0.0, 0.0)) < (1 - FELT) * shipped


def fitted(steps: Sequence[Step]) -> Pair:
    """Return the constants with the least squares of relative errors."""
    from scipy.optimize import minimize

    def off(values: np.ndarray) -> float:
        pair = float(values[0]), float(values[1])
        ratios = [predicted(one, pair) / one[0].seconds for one in steps]
        return float(np.square(np.log(ratios)).sum())

    found = minimize(off, FIRST, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-6})
    return float(found.x[0]), float(found.x[1])


def left_out(steps: Sequence[Step]) -> Iterator[tuple[Step, float]]:
    """Yield each step that waits for the host, with its seconds by those of other models."""
    late = [step for step in steps if waits(step)]
    for model in dict.fromkeys(run.model for run, _ in late):
        pair = fitted([step for step in late if step[0].model != model])
        for step in late:
            if step[0].model == model:
                yield step, predicted(step, pair)


if __name__ == "__main__":
    from tests.benchmarks.tuned import transformers_runs

    every = transformers_runs()
    late = [step for step in every if waits(step)]
    print(len(late), "steps wait:", ", ".join(f"{value:.2f}" for value in fitted(late)))
    for (run, _), found in left_out(every):
        print(f"{run.name:50} {found / run.seconds - 1:+.1%}")
