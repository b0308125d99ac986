"""Times and memory of Megatron's training jobs: links by hand, the schedule, one memory model."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.costs.training.iteration import SLOWEST, WAITING
from ilp_planner.costs.training.job import layout_of, spread, virtual_sizes
from ilp_planner.costs.training.memory import fits, most_by_states, most_layers
from ilp_planner.costs.training.network import HOP, Network
from ilp_planner.costs.training.ranks import RankCosts, shared_of
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.job.memory import memory_parts, rank_memory
from ilp_planner.job.parts import Part, activations_of
from ilp_planner.spaces.training.enumerate.variants import Variant
from ilp_planner.spaces.training.search.possible import megatron_parts
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.pipeline_layout import ALONE, FIRST, REMAINDERS, split_layout
from ilp_planner.specs.training import ORDERS, SHARDINGS, Recompute, Settings, TrainingJob
from tests.examples import examples, for_each
from tests.megatron_cases import MIXTURE, alone, every_plan, small_cluster, small_problem
from tests.training_jobs import jobs

MODEL = Decoder(layers=4, hidden=256, heads=4, sequence=512, vocab=2000, ffn=768)


def job(*, tp=1, dp=1, pp=1, batch=1, order=ORDERS[0], model=MODEL, **values):
    return TrainingJob(
        model=model,
        micro_batch=batch,
        global_batch=batch * dp * 4,
        tp=tp,
        dp=dp,
        pp=pp,
        layout=split_layout([model.layers] + [0] * (pp - 1)),
        settings=Settings(order=order, sequence_parallel=tp > 1, **values),
        devices_per_node=2,
    )


def network(nodes=2, devices=2, **values):
    return Network(small_cluster(nodes, devices, **values), tuple(range(nodes)))


def test_a_group_in_a_node_uses_its_link():
    route = network().route(job(tp=2, dp=2), "tp", 0)
    assert not route.crosses
    assert route.seconds("all_gather", 1e9) == pytest.approx(5e-6 + 0.5 * 1e9 / 200e9)
    assert route.seconds("all_reduce", 1e9) == pytest.approx(5e-6 + 1e9 / 200e9)
    assert route.seconds("all_gather", 0) == 0


def test_groups_that_cross_share_the_cards():
    """Two tensor-parallel ranks of a node: two rings over its card, one hop each."""
    found = network().route(job(tp=2, dp=2), "dp-cp", 0)
    assert found.crosses
    assert found.seconds("reduce_scatter", 1e9) == pytest.approx(15e-6 + 0.5 * 1e9 * 2 / 20e9)
    alone = network().route(job(dp=4), "dp-cp", 0)  # one ring over both nodes
    assert alone.seconds("reduce_scatter", 1e9) == pytest.approx(15e-6 + 2 * HOP + 0.75e9 / 20e9)


def test_an_all_to_all_sends_directly():
    """Of four ranks on two nodes each sends half of its bytes to the other node, in one step; if a
    node gets a token once, three quarters by the links inside at least."""
    mixture = Decoder(**{
        "layers": 4, "hidden": 256, "heads": 4, "sequence": 512, "vocab": 2000, "ffn": 768,
        "experts": MIXTURE,
    })  # fmt: skip
    found = network().route(job(dp=4, ep=4, model=mixture), "ep", 0)
    assert found.direct == pytest.approx(2 * (2 / 4) / 20e9)
    assert found.seconds("all_to_all", 1e9) == pytest.approx(15e-6 + 1e9 / 20e9)
    assert found.line("all_to_all") == pytest.approx((15e-6, 1 / 20e9))
    assert found.seconds("all_to_all", 1e9, 0.5) == pytest.approx(15e-6 + 0.5e9 / 20e9)
    assert found.seconds("all_to_all", 1e9, 0.0) == pytest.approx(15e-6 + 0.75e9 / 200e9)
    inside = network().route(job(tp=1, dp=2, pp=2, ep=2, model=mixture), "ep", 0)
    assert not inside.crosses
    assert inside.seconds("all_to_all", 1e9) == pytest.approx(5e-6 + 0.5e9 / 200e9)


def test_pipeline_pairs_pass_the_card_together():
    inside = network().transfer(job(pp=2, dp=2, order=ORDERS[1]), 0).seconds(1e6)
    assert inside == pytest.approx(5e-6 + 1e6 / 200e9)
    across = network().transfer(job(pp=2, dp=2), 0).seconds(1e6)
    assert across == pytest.approx(15e-6 + 2 * 1e6 / 20e9)
    back = network().transfer(job(pp=4), 3).seconds(1e6)
    assert back == pytest.approx(15e-6 + 1e6 / 20e9)
    assert network().transfer(job(dp=4), 0).seconds(1e6) == 0


def test_the_schedule_of_equal_ranks_is_the_published_one():
    """B (f + b) + (p - 1) (f + b) / v, without sending (arXiv 2104.04473, section 2.2)."""
    cluster = dataclasses.replace(
        small_cluster(1, 4),
        intra_node=dataclasses.replace(small_cluster().intra_node, latency=1e-15, bandwidth=1e18),
    )
    problem = small_problem(cluster, batch=8, layers=8, vocab=64, hidden=512)
    (part,) = [
        p for p in megatron_parts(problem, problem.costs)
        if p.degrees[:7] == (1, 1, 1, 0, 1, 4, 1) and not p.degrees.order
    ]  # fmt: skip
    layer = part.ranks.times[0].dense.total
    ends = (0, 3, 5, 7, 10)
    for virtual in (1, 2):
        plan = part.group_plan(Variant(virtual, Recompute()), ends)
        cost = problem.costs.plan_cost(plan, cluster)
        slowest = max(cost.stages[0].time, cost.stages[-1].time) * virtual
        pipeline = cost.terms[SLOWEST] + cost.terms[WAITING]
        low = (8 + 3 / virtual) * 2 * layer
        assert low < pipeline < low + (8 + 3 / virtual) * (slowest - 2 * layer) * 2 + 1e-9
    first, second = (
        problem.costs.plan_cost(part.group_plan(Variant(v, Recompute()), ends), cluster)
        for v in (1, 2)
    )
    assert second.iteration_time < first.iteration_time


def test_recomputation_takes_its_forward_pass_again():
    problem = small_problem(small_cluster(1, 2), batch=2)
    part = next(p for p in megatron_parts(problem, problem.costs) if p.degrees.pp == 1)
    times = part.ranks.times[0].dense

    def time(**recompute):
        plan = part.group_plan(Variant(1, Recompute(**recompute)), (0, 6))
        return problem.costs.plan_cost(plan, problem.cluster).stages[0].time

    plain = time()
    assert time(granularity="selective") == pytest.approx(plain + 4 * times.core)
    full = {"granularity": "full", "method": "uniform", "layers": 1}
    assert time(**full) == pytest.approx(plain + 4 * times.again)
    block = {"granularity": "full", "method": "block", "layers": 3}
    assert time(**block) == pytest.approx(plain + 3 * times.again)


def test_ranks_on_slower_devices_take_longer():
    net = Network(small_cluster(1, 2, slow=1), (0, 1))
    ranks = RankCosts(job(dp=2, pp=2), net)
    assert ranks.kinds == (0, 1)
    assert ranks.times[1].dense.compute > ranks.times[0].dense.compute
    both = RankCosts(job(dp=4), net)
    assert both.times[0].dense.compute == pytest.approx(ranks.times[1].dense.compute)


@pytest.mark.parametrize("orders", [ORDERS, ORDERS[::-1]])
def test_device_types_of_ranks_depend_on_their_order(orders):
    """Also where the same network was asked about another order, whose axes are as long."""
    net = Network(small_cluster(1, 2, slow=1), (0, 1))
    for order in orders:
        types = [net.stage_types(job(dp=2, pp=2, order=order), rank) for rank in (0, 1)]
        if order.endswith("dp-pp"):  # a pipeline rank has a node
            assert types == [("a100",), ("l4",)]
        else:
            assert types == [("a100", "l4"), ("a100", "l4")]


@pytest.mark.parametrize("sharding", SHARDINGS)
@examples(20)
@given(
    pp=st.sampled_from((1, 2, 4)),
    virtual=st.sampled_from((1, 2)),
    tp=st.sampled_from((1, 2)),
    again=st.sampled_from(
        (
            Recompute(),
            Recompute(granularity="selective"),
            Recompute(granularity="full", method="uniform", layers=1),
            Recompute(granularity="full", method="block", layers=1),
            Recompute(granularity="full", method="block", layers=2),
        )
    ),
    experts=st.booleans(),
    predicts=st.booleans(),
    data=st.data(),
)
def test_what_fits_is_what_the_memory_model_says(
    pp, virtual, tp, again, experts, predicts, sharding, data
):
    """Every rank of a random layout, against `job.memory.rank_memory` of that layout."""
    if pp == 1 or experts:
        virtual = 1
    remainder = data.draw(st.sampled_from(REMAINDERS)) if virtual > 1 else FIRST
    inner = data.draw(st.lists(st.integers(3, 8), min_size=pp - 1, max_size=pp - 1, unique=True))
    fits_as_it_is(pp, virtual, tp, again, experts, predicts, sharding, remainder, inner)


def test_the_last_norm_is_where_the_output_alone_leaves_it():
    """In models that predict further tokens, on the rank before the last one."""
    tried = [
        fits_as_it_is(pp, 2, 1, Recompute(), False, True, "optimizer", ALONE, inner)
        for pp in (2, 4)
        for inner in itertools.combinations(range(3, 9), pp - 1)
    ]
    assert sum(tried) >= 5


def fits_as_it_is(pp, virtual, tp, again, experts, predicts, sharding, remainder, inner):
    """Hold what fits with these layers against memory; tell whether there is such a layout."""
    model = Decoder(
        layers=9, hidden=256, heads=4, sequence=512, vocab=2000, ffn=768,
        experts=MIXTURE if experts else None, positions="rope", prediction_layers=int(predicts),
    )  # fmt: skip
    ends = (0, *sorted(inner), 11)
    sizes = virtual_sizes(ends, virtual, model.layers, remainder)
    if min(sizes) < 1 or sum(sizes) != 11:
        return False
    base = job(tp=tp, pp=pp, model=model, recompute=again)
    optimizer = dataclasses.replace(base.settings.optimizer, sharding=sharding)
    settings = dataclasses.replace(base.settings, optimizer=optimizer)
    base = dataclasses.replace(base, global_batch=4 * pp, settings=settings)
    layout = layout_of((0, *np.cumsum(sizes).tolist()), model)
    exact = dataclasses.replace(base, layout=layout)
    # Tables do not know which rank has the last norm where the output is alone for want of layers.
    unknown = predicts and virtual > 1 and remainder != ALONE and not layout.stages[-1].layers
    spare = split_layout([9] + [0] * (pp * virtual - 1), prediction_layers=int(predicts))
    loose = dataclasses.replace(base, layout=spare)
    needs = [rank_memory(exact, rank).needed for rank in range(pp)]
    enough = fits(memory_parts(loose), [n * (1 + 1e-9) for n in needs], remainder)
    short = fits(memory_parts(loose), [n * (1 - 1e-9) for n in needs], remainder)
    for rank, (start, stop) in enumerate(itertools.pairwise(ends)):
        assert enough.possible[enough.row[rank], start, stop]
        assert unknown or not short.possible[short.row[rank], start, stop]
    return True


@pytest.mark.slow
@for_each("expert", [False, True])
@for_each("pp", [2, 4])
def test_the_most_layers_are_those_that_fit(pp: int, expert: bool) -> None:
    model = Decoder(
        layers=9, hidden=256, heads=4, sequence=512, vocab=2000, ffn=768,
        experts=dataclasses.replace(MIXTURE, dense_first=0) if expert else None,
    )  # fmt: skip
    base = job(pp=pp, model=model)
    base = dataclasses.replace(base, global_batch=6, layout=split_layout([9] + [0] * (pp - 1)))

    def parts(again):
        settings = dataclasses.replace(base.settings, recompute=again)
        found = memory_parts(dataclasses.replace(base, settings=settings))
        # which rank has the last norm is not looked at
        return dataclasses.replace(found, parts={**found.parts, "final norm": Part()})

    def most(again, limits):
        """The longest range of any that has the ends of the rank."""
        found = fits(parts(again), limits)
        longest = []
        for rank in range(pp):
            starts = [0] if rank == 0 else range(1, 11)
            stops = [11] if rank == pp - 1 else range(1, 11)
            held = [
                min(stop, 10) - max(start, 1)
                for start in starts
                for stop in stops
                if start < stop and found.possible[found.row[rank], start, stop]
            ]
            longest.append(max(held, default=-1))
        return longest

    sizes = (1, 2, 3, 5, 9)
    some = [Recompute(granularity="full", method="block", layers=k) for k in sizes]
    seen = set()
    for gib in np.linspace(1.0, 2.0, 41):
        limits = [gib * 1e9] * pp
        for agains in ([Recompute()], some):
            own = sizes if agains is some else ()
            many = most_layers(parts(agains[0]), limits, 9, kind=expert, sizes=own)
            expected = np.array([most(again, limits) for again in agains])
            # an inner rank without any layer is no range; the ends are, with what else they have
            assert (np.maximum(many, 0) == np.maximum(expected, 0)).all()
            ends = np.maximum(many, -1)[:, [0, -1]]
            assert (ends == expected[:, [0, -1]]).all()
            seen.update(expected.flatten().tolist())
    assert len(seen) > 3


@given(one=jobs(), gib=st.floats(0.2, 40.0))
def test_states_and_activations_alone_never_take_more_than_all(one: TrainingJob, gib: float):
    assume(one.virtual == 1 and one.settings.recompute.granularity != "full")
    parts, limits, again = memory_parts(one), [gib * 2**30] * one.pp, one.settings.recompute
    whole = dataclasses.replace(one.settings, recompute=Recompute())
    plain = memory_parts(dataclasses.replace(one, settings=whole))
    kinds = {kind: LAYER_KINDS[kind].name for kind in set(one.model.expert_layers)}
    of_kind = activations_of(plain.job, {})
    kept = {name: of_kind(again, name) for name in kinds.values()}
    for kind in kinds:
        held = most_layers(parts, limits, 20, kind=kind)[0]
        most = most_by_states(plain, limits, kept, kind=kind)
        assert (held <= np.floor(np.minimum(most, 20) + 1e-9)).all()


@given(layers=st.integers(0, 100), virtual=st.integers(1, 12))
def test_layers_are_spread_evenly(layers, virtual):
    found = spread(layers, virtual)
    assert sum(found) == layers
    assert max(found) - min(found) <= 1
    assert list(found) == sorted(found, reverse=True)


@for_each("experts", [None, MIXTURE])
def test_plans_of_other_settings_and_degrees_do_not_share_times(experts):
    """What is known of jobs of the same model changes the time of none."""
    asked = {"sharding": "optimizer", "recompute": "none", "fused_loss": "none,native"}
    problem = small_problem(
        small_cluster(1, 2), batch=2, constraints=constraints_of(asked), experts=experts
    )
    plans = [plan for plan in every_plan(problem) if plan.virtual == 1]
    judged = {plan: evaluate(problem, plan) for plan in plans[:: len(plans) // 25 or 1]}
    times = {plan: found.iteration_time for plan, found in judged.items() if found.legal}
    for plan, seconds in times.items():
        shared_of.cache_clear()
        assert evaluate(alone(problem), plan).iteration_time == seconds
    assert len({*times.values()}) > 4
