import csv
import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.costs.profiles.analytic import analytic_profile
from ilp_planner.costs.profiles.table import MIB, Provenance
from ilp_planner.costs.profiles.work import Exchange, Kernel, exchange_time, kernel_time
from ilp_planner.specs.architecture import Parameters
from ilp_planner.specs.cluster import SLOWEST_TAKEN, ClusterSpec, Device, NodeGroup
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.link import Link
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from tests.examples import for_each

ROOT = Path(__file__).parents[3]
DATABASE = ROOT.parent / "shared" / "data" / "aceso" / "eurosys"
MEASURED = (
    "gpt3-350m", "gpt3-1.3b", "gpt3-2.6b", "gpt3-6.7b", "scale-layer-64", "t5-770m", "t5-3b",
    "wide-resnet-500m", "wide-resnet-2b", "wide-resnet-4b",
)  # fmt: skip

TINY = {
    "gpt": ModelSpec(
        name="gpt",
        precision="fp16",
        architecture=Gpt(layers=1, hidden=512, heads=8, sequence=256, vocab=4096),
    ),
    "t5": ModelSpec(
        name="t5",
        precision="fp16",
        architecture=T5(
            layers=1,
            hidden=256,
            heads=8,
            kv_channels=64,
            encoder_sequence=256,
            decoder_sequence=64,
            vocab=4096,
        ),
    ),
    "resnet": ModelSpec(
        name="resnet",
        precision="fp32",
        architecture=WideResNet(blocks=(2, 1), in_channels=32, width_factor=2, image=64),
    ),
}
families = pytest.mark.parametrize("family", list(TINY))


def cluster(*, devices=4, rate=1e14, memory=1e12, link=4e10, latency=1e-5, peak=("fp16", "fp32")):
    device = Device(
        name="gpu",
        memory=2**34,
        peak=dict.fromkeys(peak, rate),
        sustained=0.5,
        memory_bandwidth=memory,
    )
    return ClusterSpec(
        name="lab",
        device_types={"gpu": device},
        nodes=(NodeGroup(device="gpu", devices=devices),),
        intra_node=Link(bandwidth=link, latency=latency),
        inter_node=Link(bandwidth=link / 8, latency=latency * 2),
    )


def total_time(model, where, samples, degree):
    profile = analytic_profile(model, where, [samples])
    rows = [profile.row(name, samples, degree, 0) for name in model.operators]
    return sum(row.forward + row.backward for row in rows)


@pytest.fixture(scope="module", params=MEASURED)
def compared(request):
    """A model, its profile for the machine of the measurements, and these, in MiB and us."""
    if not DATABASE.is_dir():
        pytest.skip("no ../shared/data/aceso beside the repository")
    model = read_model(ROOT / "models" / f"{request.param}.toml")
    profile = analytic_profile(model, read_cluster(ROOT / "clusters" / "v100-32gb-1x8.toml"))
    files = {}
    for samples in profile.micro_batch_sizes:
        for degree in profile.tensor_degrees:
            path = DATABASE / f"{model.profile['aceso']}_mbs{samples}_tp{degree}_algo0.csv"
            with path.open() as file:
                files[samples, degree] = {row["op_name"]: row for row in csv.DictReader(file)}
    return model, profile, files


def test_sizes_are_those_measured(compared):
    model, profile, files = compared
    # Aceso's weights leave out the biases and layer norms of transformers.
    for (samples, degree), measured in files.items():
        for name in dict.fromkeys(model.operators):
            row = profile.row(name, samples, degree, 0)
            values = {
                "input_size": (row.input, 0.1),
                "output_size": (row.output, 0.1),
                "weights": (row.weights, 0.02),
            }
            for column, (have, tolerance) in values.items():
                expected = float(measured[name][column])
                message = f"{name} {column} at micro-batch {samples}, tp {degree}"
                assert have / MIB == pytest.approx(expected, rel=3e-3, abs=tolerance), message


def test_activations_and_buffers_are_near_those_measured(compared):
    model, profile, files = compared
    samples = profile.micro_batch_sizes[-1]
    for degree in profile.tensor_degrees:
        measured = files[samples, degree]
        rows = {name: profile.row(name, samples, degree, 0) for name in set(model.operators)}
        kept = sum(rows[name].activations for name in model.operators) / MIB
        expected = sum(float(measured[name]["activations"]) for name in model.operators)
        assert kept == pytest.approx(expected, rel=0.01)
        reserved = sum(
            max(getattr(row, field) for row in rows.values())
            for field in ("forward_reserved", "backward_reserved")
        )
        expected = sum(
            max(float(row[column]) for row in measured.values())
            for column in ("fwd_reserved", "bwd_reserved")
        )
        assert reserved / MIB == pytest.approx(expected, rel=0.25)


def test_time_is_within_a_quarter_of_the_measured(compared):
    model, profile, files = compared
    samples = profile.micro_batch_sizes[-2]
    for degree in (t for t in profile.tensor_degrees if t <= 4):
        measured = files[samples, degree]
        rows = [profile.row(name, samples, degree, 0) for name in model.operators]
        have = sum(row.forward + row.backward for row in rows) * 1e6
        expected = sum(
            float(measured[name][column])
            for name in model.operators
            for column in ("forward-compute", "backward-compute")
        )
        assert have == pytest.approx(expected, rel=0.25), degree


@families
def test_every_operator_has_every_row(family):
    model = TINY[family]
    profile = analytic_profile(model, cluster())
    assert profile.source == "analytic"
    assert profile.micro_batch_sizes == model.micro_batch_sizes
    assert profile.tensor_degrees == (1, 2, 4)
    assert profile.splits == (0,)
    assert profile.notes == ()
    assert len(profile.rows) == len(set(model.operators)) * len(profile.micro_batch_sizes) * 3
    for name in model.operators:
        for samples in profile.micro_batch_sizes:
            for degree in profile.tensor_degrees:
                row = profile.row(name, samples, degree, 0)
                assert row.provenance is Provenance.ANALYTIC
                assert row.forward > 0
                assert row.backward > 0
                assert min(dataclasses.astuple(row)[2:8]) >= 0


@families
def test_what_leaves_an_operator_enters_the_next(family):
    model = TINY[family]
    profile = analytic_profile(model, cluster(), [2])
    for degree in profile.tensor_degrees:
        for before, after in pairwise(model.operators):
            if after == "t5-post-process":
                continue  # Aceso sends the encoder's output along to the end, and drops it there.
            sent = profile.row(before, 2, degree, 0).output
            assert profile.row(after, 2, degree, 0).input == pytest.approx(sent), (before, after)


@families
def test_collectives_have_the_sizes_that_occur(family):
    profile = analytic_profile(TINY[family], cluster())
    assert {devices for _, devices in profile.collectives} == {2, 4}
    sizes = {round(row.input / MIB) for row in profile.rows.values()}
    for table in profile.collectives.values():
        assert sizes <= set(table)
        assert {size - 1 for size in sizes if size} <= set(table)
        times = [seconds for _, seconds in sorted(table.items())]
        assert times == sorted(times)
        assert times[0] > 0


def test_effective_bandwidth_grows_towards_the_link():
    profile = analytic_profile(TINY["gpt"], cluster(link=4e10))
    for table, link in ((profile.intra_node, 4e10), (profile.inter_node, 5e9)):
        assert len(table) == 11
        assert list(table) == sorted(table)
        assert table[-1] < link
        assert table[-1] == pytest.approx(link, rel=0.01)


@given(
    family=st.sampled_from(list(TINY)),
    degree=st.sampled_from([1, 2, 4]),
    better=st.sampled_from(["rate", "memory", "link"]),
    value=st.floats(1e9, 1e15),
    factor=st.floats(1.0, 10.0),
)
def test_a_faster_cluster_is_never_slower(family, degree, better, value, factor):
    model = TINY[family]
    slow = total_time(model, cluster(**{better: value}), 2, degree)
    fast = total_time(model, cluster(**{better: value * factor}), 2, degree)
    assert fast <= slow * (1 + 1e-12)


@given(
    family=st.sampled_from(list(TINY)),
    degree=st.sampled_from([1, 2, 4]),
    samples=st.integers(1, 64),
    more=st.integers(1, 64),
)
def test_more_samples_never_take_less(family, degree, samples, more):
    model = TINY[family]
    profile = analytic_profile(model, cluster(), [samples, samples + more])
    for name in set(model.operators):
        small = profile.row(name, samples, degree, 0)
        large = profile.row(name, samples + more, degree, 0)
        for field in ("forward", "backward", "input", "output", "activations"):
            assert getattr(large, field) >= getattr(small, field), (name, field)
        assert large.weights == small.weights


@families
def test_tensor_parallelism_divides_weights_and_arithmetic(family):
    model = TINY[family]
    profile = analytic_profile(model, cluster(link=1e18, latency=1e-15), [4])
    for name in set(model.operators):
        rows = [profile.row(name, 4, degree, 0) for degree in (1, 2, 4)]
        for whole, half in pairwise(rows):
            assert half.weights <= whole.weights
            if family != "resnet":  # a gathered convolution makes a copy of its output
                assert half.forward <= whole.forward * (1 + 1e-6)
        held = model.architecture.parameters.get(name, Parameters())
        size = model.bytes_per_number
        assert rows[2].weights == pytest.approx(size * (held.split / 4 + held.whole))


def test_kernels_follow_the_roofline():
    device = cluster(rate=1e14, memory=1e12).device  # sustained: 5e13 FLOP/s and 8.5e11 bytes/s
    arithmetic = kernel_time((Kernel(5e13, 1.0),), device, "fp16")
    assert arithmetic == pytest.approx(1 + device.launch)
    assert kernel_time((Kernel(1.0, 8.5e11),), device, "fp16") == pytest.approx(1 + device.launch)
    assert kernel_time((Kernel(0, 0),) * 3, device, "fp16") == pytest.approx(3 * device.launch)


@for_each(
    ("primitive", "sent"),
    [("all_reduce", 1.5), ("reduce_scatter", 0.75), ("all_to_all", 0.75), ("all_gather", 3.0)],
)
def test_collectives_follow_the_ring(primitive, sent):
    link = Link(bandwidth=10.0, latency=0.5, collectives={4: 20.0})
    assert exchange_time(Exchange(primitive, 100.0), 4, link) == 0.5 + sent * 100 / 20
    assert exchange_time(Exchange(primitive, 100.0), 1, link) == 0.0


def test_degrees_that_do_not_divide_are_left_out_and_named():
    model = dataclasses.replace(
        TINY["gpt"], architecture=dataclasses.replace(TINY["gpt"].architecture, heads=2)
    )
    profile = analytic_profile(model, cluster(devices=8))
    assert profile.tensor_degrees == (1, 2)
    assert profile.notes == ("tp 4, 8: does not divide gpt, left out",)
    assert analytic_profile(model, cluster(devices=1)).collectives == {}


def test_links_of_the_device_type_are_used_where_it_has_its_own():
    plain, fast = cluster(), Link(bandwidth=2e11, latency=1e-6)
    own = dataclasses.replace(plain, within={"gpu": fast}, between={("gpu", "gpu"): fast})
    same = dataclasses.replace(plain, intra_node=fast, inter_node=fast)
    assert analytic_profile(TINY["gpt"], own) == analytic_profile(TINY["gpt"], same)
    assert analytic_profile(TINY["gpt"], own) != analytic_profile(TINY["gpt"], plain)


def test_a_matrix_of_links_is_taken_as_its_slowest():
    slow, fast = (Link(bandwidth=b, latency=1e-6) for b in (1e9, 2e9))
    matrix = ((slow, slow, fast), (slow,) * 3, (slow,) * 3)
    nodes = (NodeGroup(device="gpu", devices=4, count=3),)
    profile = analytic_profile(
        TINY["gpt"], dataclasses.replace(cluster(), nodes=nodes, matrix=matrix)
    )
    assert profile.inter_node[-1] == pytest.approx(1e9, rel=0.01)
    assert profile.notes == (SLOWEST_TAKEN,)


def test_micro_batches_are_sorted_and_once():
    assert analytic_profile(TINY["gpt"], cluster(), [4, 1, 4]).micro_batch_sizes == (1, 4)


@for_each(
    ("arguments", "message"),
    [
        ((TINY["gpt"], cluster(), [0]), "micro-batch size: must be at least 1, found 0"),
        ((TINY["gpt"], cluster(), []), "micro-batch size: must be at least 1, found none"),
        (
            (TINY["gpt"], cluster(peak=("fp32",))),
            "device 'gpu': peak must have 'fp16', which the model needs, found fp32",
        ),
    ],
)
def test_bad_input_gives_one_line(arguments, message):
    with pytest.raises(SpecError) as error:
        analytic_profile(*arguments)
    assert str(error.value) == message
