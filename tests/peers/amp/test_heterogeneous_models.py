"""Models of layers that differ in size: priced as AMP's program does it (its `cost_het_model.py`),
and planned as well as any partition can be."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from ilp_planner.peers.amp.costs import AmpCosts, AmpDegrees
from ilp_planner.peers.amp.degrees import rank_plans
from ilp_planner.peers.amp.profile import read_amp
from tests.amp_cases import NODE, amp_cost_s, entry, write
from tests.examples import examples

GIGABIT_OF_NUMBERS = 1e9 / 32
FIRST = (3, 7, 9, 15, 22, 29)  # layer of a group's first block, but for the blocks of groups before
WIDTHS = (1, 1, 1, 4, 16, 64)


def amp_program_s(file: dict[str, Any], degrees: AmpDegrees, partition: Sequence[int]) -> float:
    """Return the seconds of AMP's program, layer by layer and link by link as it counts them."""
    model, case = file["gan"], file["clusters"]["pair"]
    depth, width, bottom = model["depth"], model["gf_dim"], model["bottom_width"]
    tp, dp, pp, micro = degrees
    (forward,) = (p["forward_s"] for p in file["profiles"].values() if p["tp"] == tp)
    layers, widths = [0], {}
    for group, count in enumerate(depth):
        for block in range(count):
            layers.append(FIRST[group] + sum(depth[:group]) + block)
            widths[layers[-1]] = width / WIDTHS[group]
    node_of = [n for n, node in enumerate(case["nodes"]) for _ in range(node["gpus"])]

    def speed(a: int, b: int) -> float:
        x, y = case["nodes"][node_of[a]], case["nodes"][node_of[b]]
        slower = min(x["inter_Gbps"], y["inter_Gbps"])
        gigabits = x["intra_Gbps"] if node_of[a] == node_of[b] else slower
        return float(gigabits * GIGABIT_OF_NUMBERS)

    def rank(stage: int, replica: int, part: int) -> int:
        return part + tp * (replica + dp * stage)

    ends = [0, *itertools.accumulate(partition)]
    stages = list(itertools.pairwise(ends))
    loads = [sum(3 * micro * forward[layers[n]] for n in range(*stage)) for stage in stages]
    sending = 0.0
    for stage in range(pp - 1):
        for d in range(dp):
            links = [speed(rank(stage, d, t), rank(stage + 1, d, t)) for t in range(tp)]
            sending += micro * width * bottom**2 / min(links) / dp
    bounds = [0, *(layers[end - 1] + 1 for end in ends[1:-1]), 32 + sum(depth)]
    reduction = 0.0
    for stage, (start, stop) in enumerate(itertools.pairwise(bounds)):
        numbers = sum(12 * w**2 / tp for layer, w in widths.items() if start <= layer < stop)
        for t in range(tp):
            last = speed(rank(stage, dp - 1, t), rank(stage, 0, t))
            reduction = max(reduction, 2 * (dp - 1) / (dp * last) * numbers)
    many = case["gbs"] // (dp * micro)
    return sum(loads) + (many - 1) * max(loads) + sending + reduction


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a file with a TransGAN of any six groups of blocks on one or two nodes."""
    depth = draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    seconds = st.floats(1e-4, 1e-2, allow_subnormal=False)
    rows = st.lists(seconds, min_size=32 + sum(depth), max_size=32 + sum(depth))
    nodes = [
        {**NODE, "id": n, "gpus": 2, "inter_Gbps": draw(st.sampled_from([5, 10, 50]))}
        for n in range(draw(st.integers(1, 2)))
    ]
    profiles = {f"gan_{tp}": entry("fast.large", tp, draw(rows)) for tp in (1, 2)}
    return {
        "clusters": {
            "pair": {"nodes": nodes, "model": "gan", "gbs": draw(st.sampled_from([4, 8]))}
        },
        "gan": {
            "depth": depth,
            "gf_dim": draw(st.sampled_from([64, 384, 1024])),
            "bottom_width": draw(st.integers(1, 9)),
        },
        "profiles": {name: {**row, "model": "gan"} for name, row in profiles.items()},
    }


def partitions(layers: int, stages: int) -> Iterator[list[int]]:
    """Yield the layers of each stage."""
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        yield [b - a for a, b in itertools.pairwise((0, *cuts, layers))]


@given(file=files())
@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_best_partition_is_that_of_amp_s_program(file: dict[str, Any], tmp_path: Path) -> None:
    found = read_amp(write(tmp_path, file))
    layers = 1 + sum(file["gan"]["depth"])
    costs = AmpCosts(profile=found.profile)
    for plan in rank_plans(costs, found.cluster, found.global_batch):
        every = {
            tuple(split): amp_program_s(file, plan.degrees, split)
            for split in partitions(layers, plan.degrees.pp)
        }
        assert plan.cost == pytest.approx(min(every.values()), rel=1e-9)
        for split, seconds in every.items():
            cost = amp_cost_s(found.profile, found.cluster, plan.degrees, split, found.global_batch)
            assert cost == pytest.approx(seconds, rel=1e-9)
