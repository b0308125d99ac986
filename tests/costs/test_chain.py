"""The tables that the optimiser reads say what the judge says, stage by stage."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from ilp_planner.costs.models import COST_MODELS, costs_named
from ilp_planner.costs.operators import Option, Surroundings
from ilp_planner.costs.profiles.table import RowKey
from ilp_planner.plan import OperatorStage, Strategy
from tests.examples import examples
from tests.tiny import CHAINS, make_profile, make_row, price_stages, random_profile

MODELS = sorted(COST_MODELS)


@pytest.mark.parametrize("cost_model", MODELS)
@examples(50, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_tables_price_a_stage_as_the_judge_does(cost_model: str, data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(sorted(CHAINS)))
    operators = data.draw(st.sampled_from(CHAINS[family]))
    micro_batches = data.draw(st.sampled_from([(1,), (1, 2), (2, 4), (1, 2, 4, 8)]))
    profile = random_profile(
        data.draw(st.integers(0, 2**32 - 1)),
        operators,
        micro_batches=micro_batches,
        degrees=data.draw(st.sampled_from([(1,), (1, 2), (2,), (1, 2, 4)])),
        splits=data.draw(st.sampled_from([(0,), (0, 1)])),
        holes=data.draw(st.sampled_from([0.0, 0.1, 0.3])),
        ties=data.draw(st.sampled_from([0.0, 0.2, 0.8])),
    )
    per_node = data.draw(st.sampled_from([None, 1, 2, 4]))
    model = costs_named(cost_model)
    costs = model(tuple(operators), family, profile, devices_per_node=per_node)
    micro_batch = data.draw(st.sampled_from(costs.micro_batch_sizes((1, 2, 4))))
    count = data.draw(st.integers(1, 9))
    devices = data.draw(st.sampled_from([1, 2, 4]))
    tables = costs.tables(micro_batch, devices, count)
    if tables is None:
        return
    start = data.draw(st.integers(0, len(operators) - 1))
    stop = data.draw(st.integers(start + 1, len(operators)))
    behind = data.draw(st.integers(0, 5))
    enters, leaves = data.draw(st.booleans()), data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    ways = rng.integers(len(tables.options), size=(8, stop - start))
    ways[0] = ways[0, 0]  # one way throughout
    flags = rng.random((8, stop - start)) < data.draw(st.sampled_from([0.2, 0.7, 1.0]))
    times, bytes_ = price_stages(
        tables,
        start,
        stop,
        ways,
        flags,
        in_flight=costs.in_flight(behind, count),
        enters_node=enters,
        leaves_node=leaves,
    )
    for x in range(len(ways)):
        options = [tables.options[o] for o in ways[x]]
        cost = costs.stage_cost(
            OperatorStage(
                start=start,
                stop=stop,
                first_device=0,
                device_count=devices,
                strategies=tuple(
                    Strategy(tp=o.tp, dp=o.dp, split=o.split, recompute=bool(flag))
                    for o, flag in zip(options, flags[x], strict=True)
                ),
            ),
            Surroundings(
                micro_batch=micro_batch,
                micro_batches=count,
                behind=behind,
                enters_node=enters,
                leaves_node=leaves,
            ),
        )
        profiled = [
            profile.row(operators[start + i], micro_batch // o.dp, o.tp, o.split) is not None
            for i, o in enumerate(options)
        ]
        if not all(profiled):
            first = profiled.index(False)
            o = options[first]
            assert cost.unprofiled == (
                f"operator {start + first} with tp {o.tp}, {micro_batch // o.dp} samples per "
                f"replica, split {o.split} ({profiled.count(False)} such operators)",
            )
            assert times[x] == math.inf
            continue
        assert cost.unprofiled == ()
        assert cost.time == pytest.approx(times[x], rel=1e-9, abs=0)
        assert cost.memory == pytest.approx((bytes_[x],), rel=1e-9, abs=1e-3)
        assert cost.time == pytest.approx(sum(cost.time_terms.values()), rel=1e-9)
        assert cost.memory == pytest.approx((sum(cost.memory_terms.values()),), rel=1e-9)


def rows_of(
    operators: tuple[str, ...], micro_batches: tuple[int, ...], degrees: tuple[int, ...]
) -> dict[RowKey, object]:
    """Return equal rows for everything."""
    return {
        RowKey(operator=name, micro_batch=m, tp=t, split=0): make_row()
        for name, m, t in itertools.product(operators, micro_batches, degrees)
    }


@pytest.mark.parametrize("cost_model", MODELS)
def test_options_are_those_that_use_every_device_and_a_profiled_micro_batch(
    cost_model: str,
) -> None:
    operators = ("enc-MLP-gelu",)
    profile = make_profile(rows_of(operators, (1, 2), (1, 2, 4)))
    costs = costs_named(cost_model)(operators, "gpt", profile)
    assert costs.options(1, 4) == (Option(4, 1, 0),)
    assert costs.options(2, 4) == (Option(2, 2, 0), Option(4, 1, 0))
    assert costs.options(2, 1) == (Option(1, 1, 0),)
    assert costs.options(4, 1) == ()  # 4 samples on one replica are not profiled
    assert costs.options(2, 8) == (Option(4, 2, 0),)
    assert costs.tables(4, 1, 1) is None


def test_replicas_of_profiled_samples_make_a_micro_batch_and_only_profiled_ones_do_for_aceso() -> (
    None
):
    operators = ("enc-MLP-gelu",)
    profile = make_profile(rows_of(operators, (2, 3), (1, 4)))
    native, aceso = (costs_named(name)(operators, "gpt", profile) for name in ("native", "aceso"))
    assert native.micro_batch_sizes((1, 2)) == (2, 3, 4, 6)
    assert native.micro_batch_sizes((2, 8)) == (2, 3, 4, 6, 16, 24)
    assert aceso.micro_batch_sizes((2, 8)) == (2, 3)
    only = make_profile(rows_of(operators, (2, 3), (4,)))
    assert costs_named("native")(operators, "gpt", only).micro_batch_sizes((1, 2)) == (2, 3)


@pytest.mark.parametrize("cost_model", MODELS)
@examples(30)
@given(
    each=st.sets(st.integers(1, 6), min_size=1, max_size=3),
    degrees=st.sets(st.sampled_from([1, 2, 4]), min_size=1),
    groups=st.sets(st.sampled_from([1, 2, 4, 8]), min_size=1),
)
def test_whatever_micro_batch_a_stage_can_have_is_tried(
    cost_model: str, each: set[int], degrees: set[int], groups: set[int]
) -> None:
    operators = ("enc-MLP-gelu",)
    profile = make_profile(rows_of(operators, tuple(each), tuple(degrees)))
    costs = costs_named(cost_model)(operators, "gpt", profile)
    usable = {size for size in range(1, 50) for g in groups if costs.options(size, g)}
    tried = set(costs.micro_batch_sizes(sorted(groups)))
    if cost_model == "aceso":
        assert tried == each
    else:
        assert usable <= tried


@pytest.mark.parametrize("cost_model", MODELS)
def test_an_option_without_a_row_is_not_allowed_and_one_without_any_is_left_out(
    cost_model: str,
) -> None:
    operators = ("enc-MLP-gelu", "enc-1st-layernorm")
    rows = rows_of(operators, (1,), (1, 2, 4))
    del rows[RowKey(operator="enc-1st-layernorm", micro_batch=1, tp=2, split=0)]
    costs = costs_named(cost_model)(operators, "gpt", make_profile(rows))
    tables = costs.tables(1, 2, 1)
    assert tables is not None
    assert tables.options == (Option(2, 1, 0),)
    assert tables.allowed[tables.kind].tolist() == [[True], [False]]
    assert tables.compute[tables.kind[1], 0] == 0.0


@pytest.mark.parametrize("cost_model", MODELS)
def test_equal_operators_share_a_kind_and_every_pair_has_one(cost_model: str) -> None:
    layer = ("layer0-1-conv1", "layer0-1-bn3")
    operators = ("conv1", *layer * 3)
    profile = make_profile(rows_of(operators, (1,), (1,)))
    tables = costs_named(cost_model)(operators, "resnet", profile).tables(1, 1, 1)
    assert tables is not None
    assert tables.kind[1::2].tolist() == [tables.kind[1]] * 3
    assert tables.kind[2::2].tolist() == [tables.kind[2]] * 3
    assert tables.kind[1] != tables.kind[2]  # where recomputation stops is part of the kind
    for i, j in itertools.combinations(range(1, len(operators)), 2):
        equal = tuple(tables.kind[i - 1 : i + 1]) == tuple(tables.kind[j - 1 : j + 1])
        assert (tables.pair[i] == tables.pair[j]) == equal


def test_recomputation_stops_at_a_layer_and_saves_what_is_between() -> None:
    operators = ("enc-1st-layernorm", "enc-MLP-gelu", "enc-MLP-GEMM-2", "enc-1st-layernorm")
    costs = costs_named("native")(operators, "gpt", make_profile(rows_of(operators, (1,), (1,))))
    tables = costs.tables(1, 1, 1)
    assert tables is not None
    assert tables.saves.tolist()[:3] == [True, True, False]
    assert tables.closes.tolist() == [False, False, True, False]


def test_the_last_operator_is_sent_as_the_first_one_is_split() -> None:
    operators = ("enc-1st-layernorm", "enc-2nd-layernorm")
    rows = {
        RowKey(operator=name, micro_batch=m, tp=t, split=0): make_row(message=2.0**t)
        for name, m, t in itertools.product(operators, (1, 2), (1, 2))
    }
    costs = costs_named("aceso")(operators, "gpt", make_profile(rows))
    strategies = (Strategy(tp=1, dp=2), Strategy(tp=2, dp=1))
    sent = []
    for pair in (strategies, strategies[::-1]):
        stage = OperatorStage(start=0, stop=2, first_device=0, device_count=2, strategies=pair)
        cost = costs.stage_cost(
            stage,
            Surroundings(
                micro_batch=2, micro_batches=1, behind=0, enters_node=False, leaves_node=False
            ),
        )
        sent.append(cost.time_terms["send"])
    small, large = costs.transfer(2.0 * 2**20, False), costs.transfer(4.0 * 2**20, False)
    assert sent == [small, large]
