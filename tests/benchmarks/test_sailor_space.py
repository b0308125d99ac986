"""Sailor's formulas and space: its published plan, and every plan of small instances."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.peers import read_sailor
from tests.benchmarks.sailor_score import Curve, Replica, Sailor, Stage
from tests.benchmarks.sailor_space import Found, Rules, best_plan, parts
from tests.examples import examples
from tests.sailor_cases import ZONE, published

GPUS = ("A100-40", "V100-16")
EVERY_RULE = [Rules(degrees=a, short=b) for a, b in product((True, False), repeat=2)]


def drawn(seed: int) -> Sailor:
    """Return random figures of three layers; degrees 1 and 2, micro-batches 1 and 2."""
    random = np.random.default_rng(seed)
    times = {
        gpu: {
            str(size): {
                str(tp): {
                    str(layer): [*(random.uniform(0.5, 2, 2) * size / tp), 0.1]
                    for layer in range(3)
                }
                for tp in (1, 2)
            }
            for size in (1, 2)
        }
        for gpu in GPUS
    }
    sizes = {
        str(tp): {
            str(layer): {
                "params_floats": int(random.integers(1, 2e8)) // tp,
                "act_mem_floats": int(random.integers(1, 9e8)) // tp,
                "act_output_floats": int(random.integers(1, 3e8)),
            }
            for layer in range(3)
        }
        for tp in (1, 2)
    }
    ends = {gpu: {str(n): [[random.uniform(1, 5)], random.uniform(1e9, 5e9)] for n in (1, 2)}
            for gpu in GPUS}  # fmt: skip
    network = {gpu: {str(n): {ZONE: ends} for n in (1, 2)} for gpu in GPUS}
    return Sailor(times, sizes, network, ZONE)


def every_plan(
    sailor: Sailor, gpus: dict[str, int], batch: int, rules: Rules
) -> Iterator[tuple[list[Stage], int]]:
    """Yield the plans of up to two stages that fit and have GPUs enough, and their micro-batches;
    without a line of the search."""
    first, second = gpus.values()
    for count, samples, dp in product((1, 2), (1, 2), range(1, first + second + 1)):
        if not rules.short and batch % (samples * dp):
            continue
        stages = []
        for start, stop in parts(sailor.layers, count):
            ways = []
            for a, (one, two) in product(range(dp + 1), product((1, 2), repeat=2)):
                if 0 < a < dp and one != two and not rules.degrees:
                    continue
                pairs = zip(GPUS, (one, two), (a, dp - a), strict=True)
                replicas = {Replica(gpu, tp, samples): n for gpu, tp, n in pairs if n}
                ways.append(Stage(start=start, stop=stop, replicas=replicas))
            stages.append(ways)
        for plan in product(*stages):
            used = dict.fromkeys(GPUS, 0)
            for stage in plan:
                for replica, n in stage.replicas.items():
                    used[replica.gpu] += n * replica.tp
            if all(used[gpu] <= gpus[gpu] for gpu in GPUS) and sailor.fits(plan):
                yield list(plan), math.ceil(batch / (samples * dp))


@examples(10)
@given(st.integers(0, 2**20), st.integers(1, 4), st.integers(1, 4), st.integers(2, 9))
def test_no_plan_is_faster(seed: int, first: int, second: int, batch: int) -> None:
    sailor, gpus = drawn(seed), dict(zip(GPUS, (first, second), strict=True))
    for rules in EVERY_RULE:
        times = [sailor.seconds(*plan) for plan in every_plan(sailor, gpus, batch, rules)]
        found = best_plan(sailor, gpus, batch, rules, most_stages=2)
        assert (found.seconds if found else math.inf) == pytest.approx(min(times, default=math.inf))
        if found is not None:
            held(sailor, gpus, found)


def held(sailor: Sailor, gpus: dict[str, int], found: Found) -> None:
    """Check that a plan is what it says."""
    assert sailor.seconds(found.stages, found.micro_batches) == pytest.approx(found.seconds)
    assert sailor.fits(found.stages)
    for gpu, most in gpus.items():
        used = sum(n * r.tp for s in found.stages for r, n in s.replicas.items() if r.gpu == gpu)
        assert used <= most


@published
def test_the_published_plan() -> None:
    """Sailor found 5.26 s on 32 A100-40 and 96 V100-16, with 3 A100 alone beside 24 replicas of 4
    V100 in one stage."""
    gpus = {"A100-40": 32, "V100-16": 96}
    found = best_plan(read_sailor(), gpus, 1024, most_stages=2)
    assert found is not None
    assert round(found.seconds, 2) == 5.26
    assert found.stages[0].replicas == {Replica(GPUS[0], 1, 2): 3, Replica(GPUS[1], 4, 2): 24}
    assert found.stages[1].replicas == {Replica(GPUS[0], 1, 2): 27}
    held(read_sailor(), gpus, found)


def test_a_curve_is_a_polynomial_in_megabytes() -> None:
    """At 4 MB: 2 + 3 * 2 + 1 * 4 = 12 GB/s."""
    assert Curve((1.0, 3.0, 2.0), 1e9).seconds(4e6) == pytest.approx(4e6 / 12e9)


def test_sizes_between_are_on_the_line() -> None:
    sailor = drawn(1)
    one, two, four = (sailor.compute(Replica(GPUS[0], 1, n), 0, 3) for n in (1, 2, 4))
    assert four == pytest.approx(two + 2 * (two - one))
