"""Synchronisation: whose links its rings use, what a measured profile says of it, and of sends."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.profiles.analytic_layers import analytic_layers
from ilp_planner.costs.profiles.elements import elements_of_layers
from ilp_planner.costs.profiles.link_times import SEND, LinkGroup, link_times
from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.costs.profiles.shares import LINKS
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.costs.training.measured import measured_times
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.costs.training.sync import Held, held_by_elements
from ilp_planner.job.groups import groups
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.gpu_cluster import Gpus, gpu_cluster
from ilp_planner.specs.gpus import Gpu, gpu, table
from ilp_planner.specs.machine import Machine
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import ORDERS, OptimizerSettings, Settings, TrainingJob
from tests.examples import examples, for_each
from tests.megatron_cases import MIXTURE, small_cluster, small_model
from tests.rank_groups import pp_rank_of

MODEL = Decoder(layers=4, hidden=256, heads=4, sequence=512, vocab=2000, ffn=768)
SIZES = (2**12, 2**18, 2**24)


def job(*, tp=1, dp=1, pp=1, order=ORDERS[0], sharding="optimizer", instances=1, **others):
    return TrainingJob(
        model=MODEL,
        micro_batch=1,
        global_batch=4 * dp,
        tp=tp,
        dp=dp,
        pp=pp,
        layout=split_layout([MODEL.layers] + [0] * (pp - 1)),
        settings=Settings(
            order=order,
            **{"sequence_parallel": tp > 1} | others,
            optimizer=OptimizerSettings(sharding=sharding, master=4, instances=instances),
        ),
        devices_per_node=2,
    )


def links(*kinds):
    """Return measured links that take 3 ms and a second per GB; kinds: (name, size, hosts)."""
    rows = [
        {
            "record": "point_to_point" if name == SEND else "collective",
            "name": name, "group_size": size, "hosts": hosts, "stride": 1, "groups": 1,
            "bytes": count, "time_s": 3e-3 + count / 1e9,
        }
        for name, size, hosts in kinds
        for count in SIZES
    ]  # fmt: skip
    return link_times(measurements_of(rows, "links.csv"))


def ranks(what, network, *kinds, steps=None):
    """Return the costs of a job with estimated layers, but measured links and optimiser steps."""
    model = small_model(**{name: getattr(MODEL, name) for name in ("layers", "hidden", "vocab")})
    profile = analytic_layers(model, network.cluster, [1])
    optimizer = {} if steps is None else {("a100", what.tp): np.array(steps)}
    measured = dataclasses.replace(
        profile, optimizer=optimizer, links=links(*kinds) if kinds else None
    )
    elements = elements_of_layers(measured, what.model)
    times = measured_times(elements, what.model, what.settings, network.cluster)
    return RankCosts(what, network, times)


@examples(30)
@given(
    tp=st.sampled_from((1, 2, 4)),
    dp=st.sampled_from((2, 3, 4, 6, 8)),
    pp=st.sampled_from((1, 2, 3)),
    order=st.sampled_from(ORDERS),
    each=st.sampled_from((1, 2, 3, 4, 6, 8)),
    data=st.data(),
)
def test_groups_are_those_of_the_ranks(tp, dp, pp, order, each, data):
    what = job(tp=tp, dp=dp, pp=pp, order=order)
    if what.world % each:
        return
    rank = data.draw(st.integers(0, pp - 1))
    network = Network(small_cluster(what.world // each, each), tuple(range(what.world // each)))
    found = network.route(what, "dp-cp", rank).group
    members = [list(g.ranks) for g in groups(what, "dp-cp") if pp_rank_of(what, g.first) == rank]
    nodes = [Counter(r // each for r in group) for group in members]
    crossing = [count for count in nodes if len(count) > 1]
    stride = members[0][1] - members[0][0]
    if not crossing:
        assert found == LinkGroup(dp, 1, stride, "a100")
    elif len({tuple(sorted(count.values())) for count in crossing}) > 1 or any(
        len(set(count.values())) > 1 for count in crossing
    ):
        assert found is None
    else:
        sharing = max(sum((Counter(set(count)) for count in crossing), Counter()).values())
        assert found == LinkGroup(dp, len(crossing[0]), stride, "a100", sharing)


def test_rings_are_the_measured_ones_where_their_groups_were():
    network = Network(small_cluster(2, 2), (0, 1))
    kinds = [("reduce_scatter", 4, 2), ("all_gather", 4, 2)]
    for known in ([], kinds[:1], kinds, [("reduce_scatter", 2, 2), ("all_reduce", 4, 2)]):
        costs = ranks(job(dp=4), network, *known)
        for ring in costs.rings(0):
            size = float(ring.sizes[1:3].sum())
            if (ring.collective, 4, 2) in known:
                assert (ring.latency, ring.per_byte) == pytest.approx((3e-3, 1e-9), rel=1e-4)
                assert ring.origin(size).provenance is Provenance.INTERPOLATED
            else:
                assert (ring.latency, ring.per_byte) == ring.route.line(ring.collective)
                assert ring.origin(size) == LINKS
        fixed, each = costs.sync(0)
        assert fixed == pytest.approx(sum(ring.latency for ring in costs.rings(0)))
        rings = sum(ring.per_byte * ring.sizes for ring in costs.rings(0))
        np.testing.assert_allclose(each, rings + costs.step(0))


def late(network, what, machine, bandwidth):
    """Return (seconds sent, seconds that passes do not hide, seconds of passes) of every element,
    of messages beside backward passes and beside forward ones."""
    cluster = network.cluster
    link = dataclasses.replace(cluster.inter_node, bandwidth=bandwidth, latency=1e-6)
    types = {
        name: dataclasses.replace(device, machine=machine)
        for name, device in cluster.device_types.items()
    }
    cluster = dataclasses.replace(cluster, intra_node=link, inter_node=link, device_types=types)
    costs = RankCosts(what, Network(cluster, network.order))
    found = []
    for gathers in (False, True):
        rings = [one for one in costs.exposed_rings(0) if one.ring.gathers == gathers]
        sent, exposed = (
            np.sum([values(one) for one in rings], axis=0)
            for values in (lambda one: one.ring.seconds, lambda one: one.each)
        )
        assert all(one.fixed == one.ring.latency for one in rings)
        passes = [e.forward if gathers else e.total - e.forward for e in costs.elements(0)]
        found.append((sent, exposed, np.array(passes)))
    return found


@examples(40)
@given(
    tp=st.sampled_from((1, 2)),
    dp=st.sampled_from((2, 4)),
    sharding=st.sampled_from(("none", "optimizer")),
    instances=st.sampled_from((1, 2)),
    digits=st.floats(6.0, 12.0),
    share=st.floats(0.0, 1.0),
    slower=st.floats(1.0, 10.0),
    gradients=st.booleans(),
    parameters=st.booleans(),
)
def test_a_pass_hides_no_more_than_it_takes(
    tp, dp, sharding, instances, digits, share, slower, gradients, parameters
):
    """Messages that overlap passes wait layer by layer for what is longer than a pass, and at least
    for their exposed share; the more, the longer they take, and the less, the longer passes take;
    all in all at least for what is longer than all passes."""
    if sharding == "none":
        instances, parameters = 1, False
    what = job(tp=tp, dp=dp, sharding=sharding, instances=instances)
    optimizer = dataclasses.replace(
        what.settings.optimizer, overlap_gradients=gradients, overlap_parameters=parameters
    )
    what = dataclasses.replace(
        what, settings=dataclasses.replace(what.settings, optimizer=optimizer)
    )
    network = Network(small_cluster(what.world, 1), tuple(range(what.world)))
    machine, bandwidth = Machine(data_exposed=share, host_forward=1e-4), 10**digits
    here = late(network, what, machine, bandwidth)
    narrow = late(network, what, machine, bandwidth / slower)
    longer = {"host_forward": 1e-4 * slower, "host_backward": 1e-4 * slower}
    slow = late(network, what, dataclasses.replace(machine, **longer), bandwidth)
    for overlapped, *cases in zip((gradients, parameters), here, narrow, slow, strict=True):
        (sent, exposed, passes), (_, more, _), (_, less, _) = cases
        if overlapped:
            expected = np.maximum(share * sent, sent - passes)
            np.testing.assert_allclose(exposed, expected, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(exposed, sent)
        assert exposed.sum() >= (sent.sum() - passes.sum()) * (1 - 1e-9)
        assert (more >= exposed * (1 - 1e-9)).all()
        assert (less <= exposed * (1 + 1e-9)).all()


def test_sends_are_the_measured_ones_at_their_size():
    network = Network(small_cluster(2, 1), (0, 1))
    assert network.route(job(dp=2), "dp-cp", 0).seconds("all_gather", 0.0) == 0.0
    cluster, measured = (ranks(job(pp=2), network, *kinds) for kinds in ((), [(SEND, 2, 2)]))
    size = measured.boundary
    assert size == 512 * 256 * 2 == SIZES[1]
    assert measured.transfers[0] == pytest.approx(2 * (3e-3 + size / 1e9))
    assert measured.transfer_origin(0).provenance is Provenance.MEASURED
    assert cluster.transfer_origin(0) == LINKS
    half = measured.tied / 2
    assert measured.constant == pytest.approx(2 * (3e-3 + half / 1e9))
    assert measured.constant_origin().provenance is Provenance.INTERPOLATED


@pytest.mark.parametrize(("sharding", "shards"), [("none", 1), ("optimizer", 4)])
def test_a_measured_step_is_divided_like_its_states(sharding, shards):
    network = Network(small_cluster(2, 2), (0, 1))
    steps = np.array([3.0, 1.0, 2.0, 1.0, 1.0, 4.0])
    costs = ranks(job(dp=4, sharding=sharding), network, steps=steps)
    np.testing.assert_allclose(costs.step(0), steps / shards)
    alone = ranks(job(dp=4, sharding=sharding), network)
    own = RankCosts(alone.job, network)
    np.testing.assert_allclose(alone.step(0), own.step(0))


def test_the_slowest_of_several_types_steps_last():
    network = Network(small_cluster(1, 2, slow=1), (0, 1))
    costs = ranks(job(dp=4), network, steps=[1e-9, 1.0, 1e-9, 1e-9, 1e-9, 1e-9])
    estimated = RankCosts(job(dp=4), network).step(0)  # of the type without a row
    np.testing.assert_allclose(costs.step(0)[1], 1.0 / 4)
    np.testing.assert_allclose(np.delete(costs.step(0), 1), np.delete(estimated, 1))


def test_instances_of_the_optimizer_share_among_neighbours_and_sum_over_the_rest():
    network = Network(small_cluster(nodes=4), tuple(range(4)))
    one, two = (RankCosts(job(dp=8, instances=count), network) for count in (1, 4))
    (_, gathered), (scattered, gathered_here, summed) = one.rings(0), two.rings(0)
    assert gathered.route.size == 8
    assert (scattered.route.size, gathered_here.route.size, summed.route.size) == (2, 2, 4)
    assert not scattered.route.crosses
    assert summed.route.crosses
    assert (scattered.collective, summed.collective) == ("reduce_scatter", "all_reduce")
    np.testing.assert_allclose(summed.sizes, scattered.sizes / 2)
    # Both GPUs of a node sum their shards at once.
    assert summed.route.ring == pytest.approx(2 * gathered.route.ring)
    np.testing.assert_allclose(two.step(0), 4 * one.step(0))


def test_scattered_sends_are_a_share_and_a_gather_and_those_of_sequence_parallelism_are_so_anyway():
    network = Network(small_cluster(nodes=2), (0, 1))
    plain = RankCosts(job(tp=2, pp=2, sequence_parallel=False), network)
    scattered = RankCosts(job(tp=2, pp=2, sequence_parallel=False, scatter_sends=True), network)
    assert scattered.boundary == plain.boundary / 2
    gather = network.route(scattered.job, "tp", 1).seconds("all_gather", plain.boundary)
    sent = network.transfer(plain.job, 0)
    assert scattered.transfers[0] == pytest.approx(2 * (sent.seconds(plain.boundary / 2) + gather))
    divided = [RankCosts(job(tp=2, pp=2, scatter_sends=how), network) for how in (False, True)]
    assert divided[0].transfers == divided[1].transfers


def test_sums_of_input_gradients_travel_while_weight_gradients_are_made():
    network = Network(small_cluster(nodes=1), (0,))

    def layer(**settings):
        return RankCosts(job(tp=2, **settings), network).elements(0)[1]

    for parallel in (False, True):
        waited, hidden = (
            layer(sequence_parallel=parallel, async_tensor=how) for how in (False, True)
        )
        assert hidden.compute == waited.compute
        assert hidden.forward == waited.forward
        assert 0 < hidden.messages < waited.messages


def all_gathers(network: Network) -> dict[int, float]:
    """Return the bytes/s that each rank sends in an all-gather of 1 GiB, by ranks of one node."""
    found, size = {}, 2**30
    for ranks in (2, 4, 8):
        if ranks <= network.per_node:
            route = network.route(dataclasses.replace(job(tp=ranks), devices_per_node=8), "tp", 0)
            found[ranks] = size * (ranks - 1) / ranks / route.seconds("all_gather", size)
    return found


@for_each("row", table().values())
def test_no_gpu_sends_more_than_its_own_links(row: Gpu):
    """Kernels are taken from a measured GPU, collectives from one with the same links."""
    network = Network(gpu_cluster(Gpus(row.node, row)), (0,))
    for ranks, rate in all_gathers(network).items():
        most = min(row.link_bandwidth, (ranks - 1) * row.pair_bandwidth)
        assert 0.2 * row.pair_bandwidth < rate < most
    alike = row.link.startswith("NVLink") and row.name not in ("P100", "A800-80GB", "H800")
    assert bool(row.constants.curves) == (alike and not row.name.startswith("V100"))


@for_each("name", ["A100-80GB", "H100-80GB", "B200"])
def test_a_cluster_s_own_slower_links_count(name: str):
    """Cards of the same name without bridges send over PCIe, whatever was measured over NVLink."""
    usual = gpu_cluster(Gpus(8, gpu(name)))
    link = dataclasses.replace(usual.intra_node, bandwidth=25e9)
    slow = dataclasses.replace(usual, intra_node=link, within={})
    assert max(all_gathers(Network(slow, (0,))).values()) < 25e9
    measured = all_gathers(Network(usual, (0,)))
    faster = dataclasses.replace(link, bandwidth=1.1 * usual.intra_node.bandwidth)
    same = dataclasses.replace(usual, intra_node=faster, within={})
    assert all_gathers(Network(same, (0,))) == measured
    said = dataclasses.replace(faster, collectives={2: 0.95 * faster.bandwidth})
    told = dataclasses.replace(usual, intra_node=said, within={})
    assert all_gathers(Network(told, (0,))) != measured  # the cluster's own are measured as well


def with_machine(network, **constants):
    """Return the network of the same nodes with other constants of all device types."""
    types = {
        name: dataclasses.replace(kind, machine=Machine(**constants))
        for name, kind in network.cluster.device_types.items()
    }
    return Network(dataclasses.replace(network.cluster, device_types=types), network.order)


@pytest.mark.parametrize(("nodes", "doublings"), [(1, 0), (2, 1), (4, 2), (8, 3)])
@pytest.mark.parametrize("sharding", ["none", "optimizer"])
def test_scatters_grow_with_the_nodes_and_sums_do_not(nodes, doublings, sharding):
    plain = Network(small_cluster(nodes=nodes), tuple(range(nodes)))
    grown = with_machine(plain, ring_growth=0.25)
    one, two = (
        RankCosts(job(dp=2 * nodes, sharding=sharding), net).rings(0) for net in (plain, grown)
    )
    names = [of.collective for of in two]
    assert names == (["all_reduce"] if sharding == "none" else ["reduce_scatter", "all_gather"])
    for before, after in zip(one, two, strict=True):
        longer = 1 + 0.25 * doublings * (after.collective != "all_reduce")
        assert after.per_byte == pytest.approx(longer * before.per_byte)
        assert after.latency == before.latency


@pytest.mark.parametrize(("dp", "bucket"), [(4, 40e6), (128, 128e6)])
@pytest.mark.parametrize("overlapped", [False, True])
def test_gradients_are_reduced_in_buckets_where_they_overlap(dp, bucket, overlapped):
    """Every bucket of parameters takes the latency of its ring."""
    what = job(dp=dp)
    optimizer = dataclasses.replace(
        what.settings.optimizer, overlap_gradients=overlapped, overlap_parameters=overlapped
    )
    what = dataclasses.replace(
        what, settings=dataclasses.replace(what.settings, optimizer=optimizer)
    )
    costs = RankCosts(what, Network(small_cluster(nodes=dp // 2), tuple(range(dp // 2))))
    parameters = sum(one.dense for one in costs.held)
    for one in costs.rings(0):
        alone = one.route.line(one.collective)
        later = one.latency * parameters / bucket if overlapped else 0.0
        size = one.sizes.sum()
        assert one.latency == alone[0] > 0
        assert one.per_byte * size == pytest.approx(alone[1] * size + later)


def test_messages_of_tensor_parallelism_over_nodes_grow_alike():
    plain = Network(small_cluster(nodes=2), (0, 1))
    grown = with_machine(plain, ring_growth=0.25)
    for kind, ratio in (("all_gather", 1.25), ("reduce_scatter", 1.25), ("all_reduce", 1.0)):
        before, after = (net.route(job(tp=4), "tp", 0).line(kind) for net in (plain, grown))
        assert after == (before[0], pytest.approx(ratio * before[1]))
    before, after = (net.route(job(tp=2, dp=2), "tp", 0) for net in (plain, grown))
    assert before.line("all_gather") == after.line("all_gather")  # inside a node


def test_every_rank_sends_to_the_next_one_and_the_last_to_the_first():
    what, network = job(tp=2, pp=4), Network(small_cluster(1, 8), (0,))
    strides = [[way.group.stride for way in network.transfer(what, r).ways] for r in range(4)]
    assert strides == [[2], [2], [2], [6]]


def test_a_tied_embedding_is_summed_between_the_last_rank_and_the_first():
    """Over nodes, though the last two ranks share one: half of it there, and half back."""
    what, network = job(pp=4), Network(small_cluster(2, 2, between=20e9), (0, 1))
    costs = RankCosts(what, network)
    size = what.padded_vocab * MODEL.hidden * what.settings.optimizer.gradient
    assert costs.tied_seconds == pytest.approx(2 * (15e-6 + size / 2 / 20e9))


def test_each_layer_of_prediction_is_held_by_the_output():
    """With experts and without; the output has no parameters that tensor parallelism leaves whole
    and none that are not trained."""
    for experts in (None, MIXTURE):
        changes = {"tied": False, "positions": "rope", "experts": experts}
        outputs = [
            held_by_elements(
                dataclasses.replace(
                    job(),
                    layout=None,
                    model=dataclasses.replace(MODEL, prediction_layers=n, **changes),
                )
            )[-1]
            for n in range(4)
        ]
        none, one, *_ = outputs
        more = one.dense - none.dense, one.expert - none.expert
        assert more[0] > MODEL.hidden**2
        assert (more[1] > 0) == bool(experts)
        for n, held in enumerate(outputs):
            assert held == Held(none.dense + n * more[0], n * more[1])


def test_a_step_of_several_passes_takes_so_much_longer():
    plain = Network(small_cluster(nodes=2), (0, 1))
    slow = with_machine(plain, stepping=0.25)
    before, after = (RankCosts(job(dp=4), net).step(0) for net in (plain, slow))
    np.testing.assert_allclose(after, 4 * before)
    assert (before > 0).all()
