"""A stage of layers by hand, of which some are computed again."""

from dataclasses import replace
from typing import Any

import numpy as np

from ilp_planner.costs.layer_rows import LayerRows
from ilp_planner.costs.layer_shares import Piece, pieces, stage_cost, stage_needs, stage_seconds
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.plan import GroupStage, Replica
from ilp_planner.specs.training import Recompute
from tests.costs.mixed_instances import cluster_of
from tests.costs.test_layer_rows import again, profile
from tests.examples import for_each

FULL = Recompute(granularity="full", method="uniform", layers=1)
CLUSTER = cluster_of([("a", 4)])
ONE = LayerKey("a", 1, 1)


def block(layers: int) -> Recompute:
    return Recompute(granularity="full", method="block", layers=layers)


def rows(**changes: Any) -> LayerRows:
    """Return rows of three layers that take 1, 2 and 3 s, or 4 s each computed again."""
    return LayerRows(profile(recomputed={"full": again(4.0)}, **changes), {"a": 1000.0})


def stage(
    start: int, stop: int, samples: tuple[int, ...] = (1,), recompute: Recompute | None = None
) -> GroupStage:
    replicas = tuple(Replica(devices=(k,), samples=x) for k, x in enumerate(samples))
    made = GroupStage(start=start, stop=stop, replicas=replicas)
    return made if recompute is None else replace(made, recompute=recompute)


@for_each(
    ("start", "stop", "recompute", "cut"),
    [
        (0, 3, FULL, 3),
        (0, 3, block(1), 2),  # the embedding is none of them
        (1, 3, block(1), 2),
        (1, 3, block(2), 3),
        (1, 3, block(9), 3),
    ],
)
def test_the_first_layers_are_computed_again_and_then_come_the_others(
    start: int, stop: int, recompute: Recompute, cut: int
) -> None:
    own = rows()
    expected = [Piece(own.again["full"], slice(start, cut)), Piece(own, slice(cut, stop))]
    assert pieces(own, stage(start, stop, recompute=recompute)) == tuple(
        expected[: 1 if cut == stop else 2]
    )
    assert pieces(own, stage(start, stop)) == (Piece(own, slice(start, stop)),)


def test_seconds_and_bytes_of_pieces_add_up_but_for_the_largest_workspace() -> None:
    """Two layers computed again, with a byte of state each, and the last one, with 30 and 7."""
    own = rows()
    parts = pieces(own, stage(0, 3, recompute=block(1)))
    assert stage_seconds(parts, ONE) == 4 + 4 + 3
    assert stage_needs(parts, ONE, 5) == {"state": 32.0, "activations": 10.0, "workspace": 7.0}
    first = {"a": np.array([9.0, 9.0, 0.0])}
    wide = replace(again(4.0), workspace={("a", 1): first["a"]})
    other = LayerRows(profile(recomputed={"full": wide}), {})
    assert stage_needs(pieces(other, stage(0, 3, recompute=block(1))), ONE, 1)["workspace"] == 9


def test_what_is_computed_again_is_a_term_of_its_own() -> None:
    cost = stage_cost(rows(), stage(0, 3, recompute=FULL), (), 1, CLUSTER)
    assert cost.time == 12
    assert cost.time_terms == {"compute": 6.0, "recompute": 6.0, "point-to-point": 0.0}
    plain = stage_cost(rows(), stage(0, 3), (), 1, CLUSTER)
    assert plain.time_terms == {"compute": 6.0, "point-to-point": 0.0}
    still = {key: np.zeros(3) for key in profile().time}
    nothing = LayerRows(
        profile(time=still, recomputed={"full": replace(again(0.0), time=still)}), {}
    )
    cost = stage_cost(nothing, stage(0, 3, recompute=FULL), (), 1, CLUSTER)
    assert cost.time_terms == {"compute": 0.0, "point-to-point": 0.0}


@for_each("samples", [(1, 4, 2), (4, 1, 2), (1, 2, 4)])
def test_the_slowest_replica_takes_the_time_and_the_fullest_the_memory(
    samples: tuple[int, ...],
) -> None:
    """60 bytes of states, 7 of workspace, and 3 for every sample of two micro-batches."""
    cost = stage_cost(rows(), stage(0, 3, samples), (), 2, CLUSTER)
    assert cost.time == 18
    assert cost.memory == tuple(67.0 + 2 * 3 * x for x in samples)
    assert cost.memory_terms == {"state": 60.0, "activations": 24.0, "workspace": 7.0}
    assert cost.unprofiled == ()


def test_what_a_replica_cannot_run_is_named() -> None:
    own = rows(most_samples={("a", 1): 2})
    cost = stage_cost(own, stage(0, 3, (1, 4)), (), 1, CLUSTER)
    assert cost.time == np.inf
    assert cost.unprofiled == ("a, tp 1, 4 samples, which failed",)
    wide = GroupStage(start=0, stop=3, replicas=(Replica(devices=(0, 1), samples=1),))
    assert stage_cost(rows(), wide, (), 1, CLUSTER).unprofiled == ("a, tp 2",)
    apart = cluster_of([("a", 1), ("a", 1)])
    assert stage_cost(rows(), wide, (), 1, apart).unprofiled == (
        "a, tp 2",
        "tensor-parallel ranks on several nodes",
    )
