"""Stages of a few operators, worked out by hand: time and where it comes from, memory and its
peak."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ilp_planner.costs.chain import ChainCosts, missing_row
from ilp_planner.costs.models import COST_MODELS, NativeCosts, costs_named
from ilp_planner.costs.operators import Surroundings
from ilp_planner.costs.profiles.table import MIB, Origin, Provenance, RowKey
from ilp_planner.plan import OperatorStage, Plan, Strategy
from tests.examples import for_each
from tests.tiny import make_cluster, make_profile, make_row

GB = 10**9
ROWS = Origin(Provenance.INTERPOLATED, 0.05)
INSIDE, BETWEEN = Origin(Provenance.SCALED, 0.2), Origin(Provenance.EXTRAPOLATED, 0.4)
GATHER_4, GATHER_8 = Origin(Provenance.MEASURED, 0.0), Origin(Provenance.SCALED, 0.3)
COUNTED = Origin(Provenance.ANALYTIC)

# With tp 2 a norm has its tokens twice and the middle of an MLP has half of the columns: between
# them the tensor is split for nothing one way, and gathered over two devices the other way.
CHAIN = ("enc-1st-layernorm", "enc-MLP-gelu", "enc-1st-layernorm")
HALVES = Strategy(tp=2, dp=1)


def costs_of(cost_model: str = "native") -> ChainCosts:
    """Return costs whose figures come each from elsewhere: a norm takes 3 ms and receives 4 MiB,
    the MLP 6 ms and 8 MiB; gathering them takes 10 and 30 ms."""
    rows = {}
    for name, size in (("enc-1st-layernorm", 4.0), ("enc-MLP-gelu", 8.0)):
        row = make_row(size / 4e3, size / 2e3, message=size, weights=0.0)
        for tp in (1, 2):
            key = RowKey(operator=name, micro_batch=1, tp=tp, split=0)
            rows[key] = replace(row, provenance=ROWS.provenance, error=ROWS.error)
    profile = make_profile(
        rows,
        collectives={("all_gather", 2): {4: 0.010, 8: 0.030}},
        intra_node=(8.0 * GB,) * 4,
        inter_node=(2.0 * GB,) * 4,
    )
    profile = replace(
        profile,
        collective_origins={("all_gather", 2): {4: GATHER_4, 8: GATHER_8}},
        link_origins=(INSIDE, BETWEEN),
    )
    return costs_named(cost_model)(CHAIN, "gpt", profile)


def stage_of(start: int, stop: int, way: Strategy, *, first: int = 0) -> OperatorStage:
    """Return a stage that runs all operators one way."""
    return OperatorStage(
        start=start,
        stop=stop,
        first_device=first,
        device_count=way.tp * way.dp,
        strategies=(way,) * (stop - start),
    )


def around(*, enters: bool = False, leaves: bool = False) -> Surroundings:
    """Return the place of a stage that works through 4 micro-batches of one sample."""
    return Surroundings(
        micro_batch=1, micro_batches=4, behind=0, enters_node=enters, leaves_node=leaves
    )


def seconds_by_origin(costs: ChainCosts, stage: OperatorStage, at: Surroundings) -> dict:
    """Return the seconds of a stage by where they come from."""
    found: dict[Origin, float] = {}
    for origin, seconds in costs.time_origins(stage, at):
        found[origin] = found.get(origin, 0.0) + seconds
    return {origin: seconds for origin, seconds in found.items() if seconds}


@pytest.mark.parametrize("cost_model", sorted(COST_MODELS))
def test_resharding_rests_on_the_collective_of_its_size(cost_model: str) -> None:
    """One way is split, which is free; the other way gathers what the later operator receives."""
    costs = costs_of(cost_model)
    at = around(leaves=True)
    inside, between = costs.transfer(4 * MIB, False), costs.transfer(4 * MIB, True)
    assert seconds_by_origin(costs, stage_of(0, 3, HALVES), at) == pytest.approx(
        {ROWS: 0.012, GATHER_8: 0.030, GATHER_4: 0.010, INSIDE: inside, BETWEEN: between}
    )
    cost = costs.stage_cost(stage_of(0, 3, HALVES), at)
    assert cost.forward == pytest.approx(0.004 + (inside + between + 0.040) / 2)
    assert cost.time_terms == pytest.approx(
        {
            "compute": 0.012,
            "recompute": 0.0,
            "receive": inside,
            "send": between,
            "reshard": 0.040,
            "per iteration / B": 0.0,
        }
    )


@pytest.mark.parametrize("cost_model", sorted(COST_MODELS))
def test_what_is_computed_again_rests_on_its_row(cost_model: str) -> None:
    costs = costs_of(cost_model)
    stage = stage_of(0, 3, Strategy())
    again = replace(stage, strategies=(*stage.strategies[:1], *[Strategy(recompute=True)] * 2))
    at = around()
    more = costs.stage_cost(again, at).time - costs.stage_cost(stage, at).time
    assert more == pytest.approx(0.003)  # a third of 6 ms and of 3 ms
    by = seconds_by_origin(costs, again, at)
    assert by[ROWS] == pytest.approx(0.015)


def test_a_collective_that_is_not_profiled_is_counted_and_one_without_an_origin_measured() -> None:
    costs = costs_of("aceso")
    assert costs.collective_origin("all_to_all", 2, 4 * MIB) == COUNTED
    assert costs.collective_origin("all_gather", 2, 4 * MIB) == GATHER_4
    assert costs.collective_origin("all_gather", 2, 8 * MIB) == GATHER_8
    assert costs.collective_origin("all_gather", 2, 7 * MIB) == Origin(Provenance.MEASURED)
    costs.profile = replace(costs.profile, collective_origins={})
    assert costs.collective_origin("all_gather", 2, 8 * MIB) == Origin(Provenance.MEASURED)


@pytest.mark.parametrize("cost_model", sorted(COST_MODELS))
def test_the_slowest_stage_counts_with_every_micro_batch_and_the_others_once(
    cost_model: str,
) -> None:
    costs = costs_of(cost_model)
    plan = Plan(
        model="tiny",
        global_batch=4,
        micro_batches=4,
        stages=(stage_of(0, 1, Strategy()), stage_of(1, 3, HALVES, first=1)),
    )
    cluster = make_cluster(nodes=1, devices=3)
    first, second = costs.plan_cost(plan, cluster).stages
    assert second.time > first.time
    total = first.time + 4 * second.time
    shares = costs.shares(plan, cluster)
    assert sum(share.share for share in shares.values()) == pytest.approx(1)
    assert shares[ROWS.provenance].share == pytest.approx((0.003 + 4 * 0.009) / total)
    assert shares[Provenance.MEASURED].share == pytest.approx(4 * 0.010 / total)
    assert shares[ROWS.provenance].error == pytest.approx(0.05)


@pytest.mark.parametrize("cost_model", sorted(COST_MODELS))
def test_a_stage_receives_and_sends_between_nodes_where_it_begins_or_ends_one(
    cost_model: str,
) -> None:
    """Two nodes of two devices; the first stage receives from where it is, the last one sends on
    as if another node came."""
    costs = costs_of(cost_model)
    inside, between = costs.transfer(4 * MIB, False), costs.transfer(4 * MIB, True)
    inside_8, between_8 = costs.transfer(8 * MIB, False), costs.transfer(8 * MIB, True)
    assert len({inside, between, inside_8, between_8}) == 4
    plan = Plan(
        model="tiny",
        global_batch=4,
        micro_batches=4,
        stages=(
            stage_of(0, 1, HALVES),
            stage_of(1, 2, Strategy(), first=2),
            stage_of(2, 3, Strategy(), first=3),
        ),
    )
    cost = costs.plan_cost(plan, make_cluster(nodes=2, devices=2))
    ends = [(each.time_terms["receive"], each.time_terms["send"]) for each in cost.stages]
    assert ends == [(inside, between), (between_8, inside_8), (inside, between)]
    times = [each.time for each in cost.stages]
    assert cost.iteration_time == pytest.approx(sum(times) + 3 * max(times))
    held = [each.memory_terms["in flight"] / MIB for each in cost.stages]
    assert held == pytest.approx([3 * (4.0 + 1.0), 2 * (8.0 + 1.0), 4.0 + 1.0])


# ---- memory -------------------------------------------------------------------------------------

LAYER = ("enc-1st-layernorm", "enc-MLP-gelu", "enc-MLP-GEMM-2", "enc-1st-layernorm", "enc-MLP-gelu")
KEPT = {"enc-1st-layernorm": 1.0, "enc-MLP-gelu": 2.0, "enc-MLP-GEMM-2": 4.0}  # MiB


@for_each(
    ("flags", "saved", "peak"),
    [
        ("-----", 0.0, 0.0),
        ("++---", 1.0, 1.0),  # the second ends the run: its output is there, as its input is not
        ("+++--", 3.0, 3.0),
        ("++++-", 3.0, 7.0),  # the next layer's input is always kept, and ends a run
        ("+++++", 4.0, 7.0),
        ("---++", 1.0, 1.0),
        ("+-+-+", 0.0, 0.0),
        ("-++--", 2.0, 2.0),
        ("++-++", 2.0, 1.0),
        ("-+++-", 2.0, 6.0),
    ],
)
def test_runs_that_are_computed_again_save_what_is_inside_and_hold_the_largest_at_once(
    flags: str, saved: float, peak: float
) -> None:
    """`+`: computed again. Three micro-batches are in flight; each keeps the stage's input too."""
    rows = {
        RowKey(operator=name, micro_batch=1, tp=1, split=0): make_row(
            message=0.5, weights=2.0, activations=KEPT[name]
        )
        for name in KEPT
    }
    costs = NativeCosts(LAYER, "gpt", make_profile(rows))
    stage = OperatorStage(
        start=0,
        stop=5,
        first_device=0,
        device_count=1,
        strategies=tuple(Strategy(recompute=flag == "+") for flag in flags),
    )
    at = around()._replace(behind=2)
    cost = costs.stage_cost(stage, at)
    assert cost.memory_terms == pytest.approx(
        {
            "states": 8 * 10 * MIB,
            "in flight": 3 * (0.5 + 10.0 - saved) * MIB,
            "recompute peak": peak * MIB,
            "reserved": 0.0,
        }
    )
    assert cost.memory == pytest.approx((sum(cost.memory_terms.values()),))


def test_the_allocator_grows_by_the_most_of_all_but_the_last_operator() -> None:
    def reserved(cost_model: str, weights: float, *sizes: Sequence[float]) -> float:
        rows = {
            RowKey(operator=name, micro_batch=1, tp=1, split=0): make_row(
                weights=weights, forward_reserved=forward, backward_reserved=backward
            )
            for name, (forward, backward) in zip(LAYER[:3], sizes, strict=True)
        }
        costs = costs_named(cost_model)(LAYER[:3], "gpt", make_profile(rows))
        terms = costs.stage_cost(stage_of(0, 3, Strategy()), around()).memory_terms
        return terms["reserved"] / MIB

    assert reserved("native", 1.0, (1.0, 7.0), (5.0, 2.0), (90.0, 90.0)) == 5.0 + 7.0
    assert reserved("aceso", 1.0, (1.0, 7.0), (5.0, 2.0), (90.0, 90.0)) == 5.0 + 7.0
    assert reserved("aceso", 9.0, (1.0, 7.0), (5.0, 2.0), (90.0, 90.0)) == 3 * 9.0  # its floor
    assert reserved("native", 9.0, (1.0, 7.0), (5.0, 2.0), (90.0, 90.0)) == 5.0 + 7.0


# ---- tables -------------------------------------------------------------------------------------


def table_costs(cost_model: str, family: str, chain: tuple[str, ...], **more: int) -> ChainCosts:
    """Return costs of operators whose rows are all equal."""
    rows = {
        RowKey(operator=name, micro_batch=size, tp=1, split=0): make_row(weights=0.0)
        for name in chain
        for size in (1, 3)
    }
    profile = make_profile(rows, inter_node=(1.0 * GB, 2.0 * GB))
    return costs_named(cost_model)(chain, family, profile, **more)


def test_a_segment_goes_on_where_an_operator_keeps_nothing_of_its_own() -> None:
    """Of Aceso's softmax nothing is kept, so the next layer's beginning ends no segment there."""
    chain = ("enc-MLP-gelu", "enc-1st-layernorm", "enc-attention-softmax", "enc-1st-layernorm")
    aceso, native = (
        table_costs(name, "gpt", chain).tables(1, 1, 1) for name in ("aceso", "native")
    )
    assert aceso is not None
    assert native is not None
    assert aceso.closes.tolist() == [True, False, False, False]
    assert aceso.shared.tolist() == [False, False, True, False]
    assert native.closes.tolist() == [True, False, True, False]
    assert native.shared.tolist() == [False] * 4


def test_operators_of_another_name_are_of_one_kind_where_layouts_do_not_depend_on_it() -> None:
    alike = ("layer0-1-relu1", "layer0-2-relu1")
    resnet, gpt = (table_costs("native", family, alike) for family in ("resnet", "gpt"))
    for costs, kinds in ((resnet, [0, 0]), (gpt, [0, 1])):
        tables = costs.tables(1, 1, 1)
        assert tables is not None
        assert tables.kind.tolist() == kinds


def test_what_a_stage_on_several_nodes_does_once_is_spread_over_the_micro_batches() -> None:
    chain = ("enc-MLP-gelu", "enc-MLP-gelu")
    costs = table_costs("native", "gpt", chain, devices_per_node=2)
    stage = stage_of(0, 2, Strategy(dp=4))
    at = around()._replace(micro_batch=4)
    once = costs.stage_work(4)
    assert once == pytest.approx(2 * MIB / GB)  # messages of 1 and of 2 MiB take a MiB at 1 GB/s
    cost = costs.stage_cost(stage, at)
    assert cost.time_terms["per iteration / B"] == pytest.approx(once / 4)
    by = seconds_by_origin(costs, stage, at)
    assert by[COUNTED] == pytest.approx(once / 4)
    assert sum(by.values()) == pytest.approx(cost.time)


def test_replicas_that_do_not_divide_the_micro_batch_are_priced_with_whole_samples() -> None:
    """It is another rule that names them: they are profiled."""
    costs = table_costs("native", "gpt", ("enc-MLP-gelu",))
    at = around()._replace(micro_batch=3)
    assert costs.stage_cost(stage_of(0, 1, Strategy(dp=2)), at).unprofiled == ()
    assert costs.stage_cost(stage_of(0, 1, Strategy(dp=4)), at).unprofiled == (
        "operator 0 with tp 1, 0 samples per replica, split 0 (1 such operators)",
    )


def test_a_row_that_is_not_there_takes_a_second_each_way() -> None:
    row = missing_row(5.0)
    assert (row.forward, row.backward) == (1.0, 1.0)
    sizes = (row.input, row.output, row.weights, row.activations)
    assert {*sizes, row.forward_reserved, row.backward_reserved} == {5.0}
