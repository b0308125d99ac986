"""The planner's own cost model: what it adds to Aceso's, and what it mends."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.models import OPTIMIZER_BANDWIDTH, NativeCosts
from ilp_planner.costs.operators import Option, Surroundings
from ilp_planner.costs.profiles.table import MIB, Origin, Provenance, RowKey
from ilp_planner.plan import OperatorStage, Strategy
from tests.examples import for_each
from tests.tiny import GB, make_profile, make_row

CHAIN = ("enc-1st-layernorm", "enc-MLP-gelu")
PRIMITIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
# A link's bandwidth grows with the message, but by less than ln 2 per doubling: beyond that, the
# interpolation over the logarithm would make a longer message faster.
GROWTH = 0.69


def make_costs(
    *,
    family: str = "gpt",
    weights: float = 1.0,
    collectives: dict[tuple[str, int], dict[int, float]] | None = None,
    intra_node: tuple[float, ...] = (10.0 * GB,),
    inter_node: tuple[float, ...] = (2.0 * GB,),
    devices_per_node: int | None = None,
) -> NativeCosts:
    """Return the costs of two operators; micro-batch 1 or 2, tp 1 or 2."""
    rows = {
        RowKey(operator=name, micro_batch=m, tp=t, split=0): make_row(weights=weights)
        for name, m, t in itertools.product(CHAIN, (1, 2), (1, 2))
    }
    profile = make_profile(
        rows, collectives=collectives, intra_node=intra_node, inter_node=inter_node
    )
    return NativeCosts(CHAIN, family, profile, devices_per_node=devices_per_node)


@st.composite
def links(draw: st.DrawFn) -> tuple[float, ...]:
    """Draw bandwidths of messages of 1, 2, 4 ... MiB that never fall."""
    table = [draw(st.floats(0.1, 50.0)) * GB]
    for growth in draw(st.lists(st.floats(0.0, GROWTH), max_size=10)):
        table.append(table[-1] * (1 + growth))
    return tuple(table)


sizes = st.floats(2.0**-10, 2.0**14).map(lambda mib: mib * MIB)


# ---- work once per iteration --------------------------------------------------------------------


@given(st.floats(1e-3, 1e4), st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_gradients_are_reduced_over_replicas_only(mib: float, dp: int, tp: int) -> None:
    costs = make_costs()
    row = make_row(weights=mib)
    step = costs.iteration_work(row, Option(tp, 1, 0))
    assert step == pytest.approx(16 * row.weights / OPTIMIZER_BANDWIDTH)
    reduced = costs.iteration_work(row, Option(tp, dp, 0))
    ring = 2 * (dp - 1) / dp * costs.transfer(row.weights, between_nodes=False)
    assert reduced - step == pytest.approx(ring)
    assert reduced > step


def test_rings_of_a_stage_on_several_nodes_share_the_network_of_each() -> None:
    """8 MiB of gradients on two nodes of four devices: per ring 0.5 GB/s of 1 with tp 2, inside 10.

    4 replicas pass 2 * 3/4 of the bytes; 8 replicas 2 * 7/8, alone on the network.
    """
    costs = make_costs(inter_node=(1.0 * GB,), devices_per_node=4)
    row = make_row(weights=8.0)
    step = costs.iteration_work(row, Option(4, 1, 0))
    for tp, dp in ((2, 4), (1, 8), (4, 2)):
        seconds = 2 * (dp - 1) / dp * tp * 8 * MIB / GB
        assert costs.iteration_work(row, Option(tp, dp, 0)) - step == pytest.approx(seconds)
    inside = costs.iteration_work(row, Option(1, 4, 0)) - step
    assert inside == pytest.approx(2 * 3 / 4 * 8 * MIB / (10 * GB))


def test_where_the_network_is_faster_the_links_inside_a_node_count() -> None:
    costs = make_costs(inter_node=(90.0 * GB,), devices_per_node=4)
    row = make_row(weights=8.0)
    step = costs.iteration_work(row, Option(4, 1, 0))
    both, alone = (costs.iteration_work(row, Option(tp, 8 // tp, 0)) - step for tp in (1, 4))
    assert both == pytest.approx(2 * 7 / 8 * 8 * MIB / (10 * GB))
    assert alone == pytest.approx(2 * 1 / 2 * 4 * 8 * MIB / (90 * GB))  # one replica in each node


@pytest.mark.parametrize("tp", [1, 2])
def test_replicas_on_several_nodes_do_not_change_their_layout(tp: int) -> None:
    """From tokens to whole samples is all-to-all between replicas; the rest stays in a node."""
    option = Option(tp, 4 // tp, 0)
    pairs = {"enc-final-layernorm": True, "enc-1st-layernorm": False}
    for want, between in pairs.items():
        inside, across = (
            make_costs(devices_per_node=n)._reshard("enc-post-MLP-dropout", option, want, option, 1)
            for n in (4, 2)
        )
        assert inside < 1
        assert (across == float("inf")) == between


@given(st.floats(0.0, 1e-3), st.integers(1, 6))
def test_a_reduction_between_nodes_takes_a_latency_per_step(latency: float, nodes: int) -> None:
    """Of messages of 1 and 2 MiB at 1 GB/s after a latency, the latency is what is left of both."""
    table = tuple(size * MIB / (latency + size * MIB / GB) for size in (1, 2))
    costs = make_costs(inter_node=table, devices_per_node=2)
    expected = 2 * (nodes - 1) * latency
    assert costs.stage_work(2 * nodes) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert costs.stage_work(1) == 0.0
    assert make_costs(inter_node=table).stage_work(2 * nodes) == 0.0


def test_without_weights_there_is_nothing_to_do_per_iteration() -> None:
    for dp in (1, 2, 8):
        assert make_costs().iteration_work(make_row(weights=0.0), Option(1, dp, 0)) == 0.0


@for_each("count", [1, 2, 64])
def test_work_per_iteration_is_shared_by_its_micro_batches(count: int) -> None:
    costs = make_costs(weights=100.0)
    stage = OperatorStage(
        start=0, stop=2, first_device=0, device_count=2, strategies=(Strategy(tp=1, dp=2),) * 2
    )
    cost = costs.stage_cost(
        stage,
        Surroundings(
            micro_batch=2, micro_batches=count, behind=0, enters_node=False, leaves_node=False
        ),
    )
    once = 2 * costs.iteration_work(make_row(weights=100.0), Option(1, 2, 0))
    assert once > 0
    assert cost.time_terms["per iteration / B"] == pytest.approx(once / count)


def test_states_are_16_bytes_per_parameter() -> None:
    assert make_costs(family="gpt").state_factor == 16 / 2
    assert make_costs(family="t5").state_factor == 16 / 2
    assert make_costs(family="resnet").state_factor == 16 / 4


# ---- memory -------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(1, 40))
def test_no_more_micro_batches_are_in_flight_than_there_are(behind: int, count: int) -> None:
    held = make_costs().in_flight(behind, count)
    assert 1 <= held <= count
    assert held == (behind + 1 if behind < count else count)


def test_a_stage_holds_the_live_bytes_of_what_is_in_flight() -> None:
    costs = make_costs()
    stage = OperatorStage(
        start=0, stop=2, first_device=0, device_count=1, strategies=(Strategy(),) * 2
    )
    held = [
        costs.stage_cost(
            stage,
            Surroundings(
                micro_batch=1, micro_batches=3, behind=behind, enters_node=False, leaves_node=False
            ),
        ).memory_terms["in flight"]
        for behind in range(6)
    ]
    live = (1.0 + 2 * 1.0) * MIB  # the input and two operators' activations
    assert held == [live, 2 * live, 3 * live, 3 * live, 3 * live, 3 * live]


def test_every_operator_keeps_what_was_profiled() -> None:
    costs = make_costs()
    for name in ("enc-attention-dropout", "enc-attention-softmax", "bn1"):
        assert costs.activation(name, make_row(activations=3.0)) == 3.0 * MIB
        assert not costs.is_shared(name)


# ---- messages -----------------------------------------------------------------------------------


@given(links(), sizes, sizes, st.booleans())
def test_a_longer_message_never_takes_less(
    table: tuple[float, ...], a: float, b: float, between_nodes: bool
) -> None:
    costs = make_costs(intra_node=table, inter_node=table)
    short, long = sorted((a, b))
    assert costs.transfer(0.0, between_nodes) == 0.0
    assert costs.transfer(short, between_nodes) > 0
    assert costs.transfer(short, between_nodes) <= costs.transfer(long, between_nodes) * (1 + 1e-12)


@given(links(), st.lists(st.floats(0.01, 1.0), min_size=11, max_size=11), sizes)
def test_between_nodes_is_never_faster_where_the_links_are_slower(
    intra: tuple[float, ...], shares: list[float], size: float
) -> None:
    inter = tuple(b * share for b, share in zip(intra, shares, strict=False))
    costs = make_costs(intra_node=intra, inter_node=inter)
    inside = costs.transfer(size, between_nodes=False)
    assert costs.transfer(size, between_nodes=True) >= inside * (1 - 1e-12)


@given(links())
def test_a_message_of_a_profiled_size_takes_its_own_bandwidth(table: tuple[float, ...]) -> None:
    costs = make_costs(intra_node=table)
    for i, bandwidth in enumerate(table):
        size = 2.0**i * MIB
        assert costs.transfer(size, between_nodes=False) == pytest.approx(size / bandwidth)
    # the ends of the table hold beyond it
    for size, bandwidth in ((MIB / 8, table[0]), (2.0**14 * MIB, table[-1])):
        assert costs.transfer(size, between_nodes=False) == pytest.approx(size / bandwidth)


# ---- collectives --------------------------------------------------------------------------------


@st.composite
def measured(draw: st.DrawFn) -> dict[int, float]:
    """Draw a table in which more bytes take more time."""
    at = draw(st.lists(st.integers(1, 4096), min_size=1, max_size=8, unique=True))
    times = draw(st.lists(st.floats(1e-6, 10.0), min_size=len(at), max_size=len(at)))
    return dict(zip(sorted(at), sorted(times), strict=True))


@given(measured(), st.sampled_from(PRIMITIVES), st.data())
def test_a_collective_takes_what_was_measured_and_between_sizes_what_is_between(
    table: dict[int, float], primitive: str, data: st.DataObject
) -> None:
    costs = make_costs(collectives={(primitive, 4): table})
    for size, time in table.items():
        assert costs.collective(primitive, 4, size * MIB) == pytest.approx(time, rel=1e-9)
    least, most = min(table), max(table)
    a, b = sorted(data.draw(st.floats(least / 2, 2 * most)) for _ in range(2))
    times = [costs.collective(primitive, 4, mib * MIB) for mib in (a, b)]
    assert times[0] <= times[1] * (1 + 1e-12)
    for mib, time in zip((a, b), times, strict=True):
        below = [table[size] for size in table if size <= mib]
        above = [table[size] for size in table if size >= mib]
        assert time >= max(below, default=0.0) * (1 - 1e-12)
        assert time <= min(above, default=math.inf) * (1 + 1e-12)


def test_beyond_the_largest_measured_size_time_is_in_proportion() -> None:
    costs = make_costs(collectives={("all_gather", 2): {1: 1e-3, 8: 5e-3}})
    assert costs.collective("all_gather", 2, 32 * MIB) == pytest.approx(20e-3)
    assert costs.collective("all_gather", 2, 4.5 * MIB) == pytest.approx(3e-3)


@for_each("table", [{}, {0: 1e-3}, {8: 1e3, 16: 1e6}])
@for_each("primitive", PRIMITIVES)
@for_each("devices", [2, 4, 8])
def test_without_a_usable_measurement_a_ring_is_charged(
    table: dict[int, float], primitive: str, devices: int
) -> None:
    costs = make_costs(collectives={(primitive, devices): table} if table else None)
    # bytes that a device sends, in units of the tensor it holds before
    sent = {
        "all_gather": devices - 1,
        "all_reduce": 2 * (devices - 1) / devices,
        "reduce_scatter": (devices - 1) / devices,
        "all_to_all": (devices - 1) / devices,
    }[primitive]
    ring = sent * costs.transfer(8 * MIB, between_nodes=False)
    assert costs.collective(primitive, devices, 8 * MIB) == pytest.approx(ring)


def test_a_failed_measurement_is_not_a_time() -> None:
    costs = make_costs(collectives={("all_gather", 2): {1: 1e-3, 2: 2e-3, 64: 1e3, 128: 1e6}})
    assert costs.collective("all_gather", 2, 64 * MIB) == pytest.approx(64e-3)


def test_a_time_of_a_hundred_seconds_is_of_one_that_failed() -> None:
    costs = make_costs(collectives={("all_gather", 2): {1: 100.0}})
    ring = costs.transfer(8 * MIB, between_nodes=False)
    assert costs.collective("all_gather", 2, 8 * MIB) == ring
    assert costs.collective_origin("all_gather", 2, 8 * MIB) == Origin(Provenance.ANALYTIC)


@for_each(
    ("mib", "source"),
    [
        (0.5, Provenance.EXTRAPOLATED),
        (1, Provenance.MEASURED),
        (3, Provenance.INTERPOLATED),
        (4, Provenance.MEASURED),
        (6, Provenance.INTERPOLATED),
        (8, Provenance.MEASURED),
        (9, Provenance.EXTRAPOLATED),
    ],
)
def test_what_is_read_off_a_table_is_measured_between_or_beyond(
    mib: float, source: Provenance
) -> None:
    """Links of 1, 2, 4 and 8 MiB, and collectives of as many; what was predicted stays so."""
    sizes = dict.fromkeys((1, 2, 4, 8), 1e-3)
    table = (1.0 * GB, 2.0 * GB, 3.0 * GB, 4.0 * GB)
    costs = make_costs(collectives={("all_gather", 2): sizes}, intra_node=table)
    assert costs.transfer_origin(mib * MIB, False) == Origin(source)
    assert costs.collective_origin("all_gather", 2, mib * MIB) == Origin(source)
    guessed = Origin(Provenance.EXTRAPOLATED, 0.25)
    origins = {("all_gather", 2): {1: guessed}}
    costs.profile = replace(
        costs.profile, link_origins=(guessed, Origin()), collective_origins=origins
    )
    assert costs.transfer_origin(mib * MIB, False) == guessed
    near = guessed if mib <= 1 else Origin(source)
    assert costs.collective_origin("all_gather", 2, mib * MIB) == near


def test_stages_may_span_nodes_and_what_is_missing_fits_nowhere() -> None:
    assert NativeCosts.spans_nodes
    assert NativeCosts.missing.weights == 2.0**60


def test_a_change_of_layout_takes_a_collective_each_way() -> None:
    costs = make_costs(collectives={("all_to_all", 2): {1: 3e-3}})
    strategies = (Strategy(tp=1, dp=2), Strategy(tp=2, dp=1))
    stage = OperatorStage(start=0, stop=2, first_device=0, device_count=2, strategies=strategies)
    terms = costs.stage_cost(
        stage,
        Surroundings(
            micro_batch=2, micro_batches=1, behind=0, enters_node=False, leaves_node=False
        ),
    ).time_terms
    # (1; 1, 2, 1) -> (1; 1, 1, 2)
    assert terms["reshard"] == pytest.approx(2 * 3e-3)
