"""Piper's formula: its optimum against every plan, and the same costs to plan with."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.solve import solve
from tests.benchmarks.piper import (
    DATA,
    DEVICE,
    Chain,
    Part,
    PiperCosts,
    cluster_of,
    profile_of,
    read_chain,
)
from tests.examples import examples
from tests.problems import build_group_problem

published = pytest.mark.skipif(
    not DATA.is_file(), reason="Piper's BERT is not in ../shared/data/piper"
)


def drawn(seed: int, layers: int = 3, batch: int = 4) -> Chain:
    """Return a random chain with degrees 1 and 2."""
    random = np.random.default_rng(seed)
    compute, weights, crossing = (random.uniform(0.5, 2, layers) for _ in range(3))
    return Chain(
        batch=batch,
        bandwidth=1.0,
        memory=100.0,
        compute={tp: compute / tp**0.9 for tp in (1, 2)},
        weights={tp: 0.2 * weights / tp for tp in (1, 2)},
        held={tp: (np.ones(layers), np.ones(layers)) for tp in (1, 2)},
        crossing={tp: np.triu(0.1 * crossing[:, None] + np.zeros(layers + 1), 1) for tp in (1, 2)},
    )


def every_plan(chain: Chain, devices: int, at: int = 0) -> Iterator[list[Part]]:
    """Yield the plans of layers from `at` on with so many devices at most."""
    if at == chain.layers:
        yield []
    ways = [(tp, dp) for tp, dp in product((1, 2), (1, 2, 4)) if tp * dp <= devices]
    for stop, (tp, dp) in product(range(at + 1, chain.layers + 1), ways):
        for behind in every_plan(chain, devices - tp * dp, stop):
            yield [Part(at, stop, tp, dp), *behind]


@examples(20)
@given(st.integers(0, 2**20), st.integers(1, 8))
def test_no_plan_has_less_load(seed: int, devices: int) -> None:
    chain = drawn(seed)
    plans = [p for p in every_plan(chain, devices) if sum(s.dp for s in p) <= chain.batch]
    found = chain.best(devices)
    assert found in plans
    assert chain.seconds(found) == pytest.approx(min(map(chain.seconds, plans)))


def test_the_fill_counts_in_the_timeline() -> None:
    chain = drawn(3, layers=2)
    each = [float(chain.loads(1, 1)[n, n + 1]) for n in (0, 1)]
    slow, fast = max(each), min(each)
    parts = [Part(0, 1, 1, 1), Part(1, 2, 1, 1)]
    assert chain.timeline(parts) == pytest.approx(chain.batch * slow + fast)
    whole = [Part(0, 2, 1, 4)]
    assert chain.timeline(whole) == pytest.approx(chain.seconds(whole))


def test_memory_grows_with_the_replicas_behind() -> None:
    """The first of two stages with one replica holds two samples: 2 + 1 a layer."""
    parts = [Part(0, 2, 1, 1), Part(2, 3, 1, 1)]
    assert replace(drawn(0), memory=6.0).fits(parts)
    assert not replace(drawn(0), memory=5.9).fits(parts)


@pytest.mark.parametrize("seed", range(2))
def test_the_search_claims_what_the_formula_says(seed: int) -> None:
    chain = drawn(seed, layers=4, batch=4)
    problem = build_group_problem(
        cluster_of(chain, 8), profile_of(chain), model="chain", global_batch=chain.batch
    )
    problem = replace(problem, costs=PiperCosts(chain, {DEVICE: chain.memory}))
    result = solve(problem)
    assert result.plan is not None
    assert result.gap == 0
    parts = [Part(s.start, s.stop, s.tp, s.dp) for s in result.plan.stages]
    assert result.objective >= chain.seconds(parts) * (1 - 1e-9)
    if len(parts) == 1:
        assert result.objective == pytest.approx(chain.seconds(parts))


@published
def test_berts_chain() -> None:
    """Without pipelines and degrees a sample takes the sum of the nodes, on 64 devices a 64th, and
    4 * 63 / 64 of the weights are sent for every batch."""
    chain = read_chain()
    assert chain.layers == 33
    (only,) = chain.best(64)
    assert only == Part(0, 33, 1, 64)
    sync = 4 * 63 / 64 * chain.weights[1].sum() / chain.bandwidth
    expected = chain.batch * chain.compute[1].sum() / 64 + sync
    assert chain.seconds([only]) == pytest.approx(expected)
