"""Sharing whole samples: the slowest replica is least, by enumeration."""

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.layers import share_samples


def slowest(times, replicas, shares) -> float:
    kinds = [kind for kind, count in enumerate(replicas) for _ in range(count)]
    return max(times[kind][share] for kind, share in zip(kinds, shares, strict=True))


@given(
    replicas=st.lists(st.integers(0, 2), min_size=1, max_size=3).filter(any),
    samples=st.integers(0, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_other_split_is_faster(replicas: list[int], samples: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = rng.uniform(0, 1, (len(replicas), samples))
    times = np.hstack([np.zeros((len(replicas), 1)), np.cumsum(steps, axis=1)])
    shares = share_samples(times, replicas, samples)
    total = sum(replicas)
    if samples < total:
        assert shares is None
        return
    assert shares is not None
    assert len(shares) == total
    assert sum(shares) == samples
    assert min(shares) >= 1
    every = (s for s in itertools.product(range(1, samples + 1), repeat=total) if sum(s) == samples)
    assert slowest(times, replicas, shares) == min(slowest(times, replicas, s) for s in every)


def one_by_one(times, replicas, samples) -> tuple[int, ...]:
    """Give every further sample to the replica that is then the fastest."""
    kinds = [kind for kind, count in enumerate(replicas) for _ in range(count)]
    rising = [np.maximum.accumulate(seconds) for seconds in times]
    shares = [1] * len(kinds)
    queue = [(float(rising[kind][2]), kind, 1, i) for i, kind in enumerate(kinds) if samples > 1]
    heapq.heapify(queue)
    for _ in range(samples - len(kinds)):
        _, kind, share, i = heapq.heappop(queue)
        shares[i] = share + 1
        if share + 2 <= samples:
            heapq.heappush(queue, (float(rising[kind][share + 2]), kind, share + 1, i))
    return tuple(shares)


@given(
    replicas=st.lists(st.integers(0, 4), min_size=2, max_size=3).filter(any),
    samples=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    ties=st.booleans(),
)
def test_as_if_given_one_by_one(replicas: list[int], samples: int, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    steps = rng.uniform(-0.2, 1, (len(replicas), samples))
    if ties:
        steps = np.round(steps)
    times = np.hstack([np.zeros((len(replicas), 1)), np.cumsum(steps, axis=1)])
    shares = share_samples(times, replicas, samples)
    if samples >= sum(replicas):
        assert shares == one_by_one(times, replicas, samples)


def test_many_samples_cost_no_step_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    search = np.searchsorted
    monkeypatch.setattr(np, "searchsorted", lambda *a, **k: asked.append(a) or search(*a, **k))
    line = np.arange(1_000_004) * 1.0
    assert share_samples([line, 4 * line], [2, 1], 1_000_003) == (444446, 444446, 111111)
    assert len(asked) < 200


def test_a_device_four_times_as_slow_gets_a_fifth() -> None:
    fast, slow = np.arange(11) * 1.0, np.arange(11) * 4.0
    assert share_samples([fast, slow], [1, 1], 10) == (8, 2)


def test_equal_replicas_differ_by_one_at_most() -> None:
    assert share_samples([np.arange(8) * 1.0], [3], 7) == (3, 2, 2)


def test_a_time_that_falls_counts_as_its_running_maximum() -> None:
    bumpy = np.array([0.0, 1.0, 5.0, 2.0, 2.5])
    assert share_samples([bumpy, np.arange(5) * 2.0], [1, 1], 4) == (2, 2)


@pytest.mark.parametrize("replicas", [[], [0, 0]])
def test_no_replicas(replicas: list[int]) -> None:
    assert share_samples([np.arange(3.0)] * len(replicas), replicas, 2) is None


def test_a_fast_replica_takes_all_but_one_sample_of_a_slow_one() -> None:
    fast, slow = np.arange(5.0), 100 * np.arange(5.0)
    assert share_samples([fast, slow], [1, 1], 4) == (3, 1)
    assert share_samples([slow, fast], [1, 1], 4) == (1, 3)
    assert share_samples([fast, slow], [2, 0], 3) == (2, 1)
    assert share_samples([fast, slow], [1, 1], 2) == (1, 1)
    assert share_samples([fast, slow], [1, 1], 1) is None
