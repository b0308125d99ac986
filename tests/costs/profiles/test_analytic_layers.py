import dataclasses
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.costs.profiles.analytic import analytic_profile
from ilp_planner.costs.profiles.analytic_decoder import chain_names, decoder_rows
from ilp_planner.costs.profiles.analytic_layers import analytic_layers
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.job.memory import memory_parts, stage_memory
from ilp_planner.specs.chain_layers import segments
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.decoder import Decoder, Experts, as_decoder
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.link import Link
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.parameter_count import parameter_count, tied_parameters
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from tests.examples import examples, for_each

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT.parent / "shared" / "data" / "metis" / "profile_data_samples"
MODELS = {
    "gpt": ModelSpec(name="gpt", precision="fp16",
     architecture=Gpt(layers=3, hidden=512, heads=8, sequence=256, vocab=4096)),
    "single": ModelSpec(name="single", precision="fp32", micro_batch_sizes=(4,),
     architecture=Gpt(layers=2, hidden=256, heads=4, sequence=128, vocab=512)),
    "t5": ModelSpec(
        name="t5",
        precision="fp16",
        architecture=T5(
            layers=2,
            hidden=256,
            heads=8,
            kv_channels=64,
            encoder_sequence=256,
            decoder_sequence=64,
            vocab=4096,
        ),
    ),
    "resnet": ModelSpec(name="resnet", precision="fp32",
     architecture=WideResNet(blocks=(2, 1), in_channels=32, width_factor=2, image=64)),
}  # fmt: skip
DECODERS = {
    "gpt": MODELS["gpt"],
    "single": MODELS["single"],
    "mixture": ModelSpec(
        name="mixture",
        precision="fp16",
        architecture=Decoder(
            layers=3,
            hidden=512,
            heads=8,
            sequence=256,
            vocab=4096,
            gated=True,
            positions="rope",
            tied=False,
            experts=Experts(count=4, top_k=2, ffn=256, dense_first=1),
        ),
    ),
}
MODELS |= DECODERS
families = pytest.mark.parametrize("family", list(MODELS))
chains = pytest.mark.parametrize("family", [name for name in MODELS if name not in DECODERS])
decoders = pytest.mark.parametrize("family", list(DECODERS))


def device(name, rate, **values):
    return Device(
        **{
            "name": name,
            "memory": 2**34,
            "peak": {"fp16": rate, "fp32": rate / 4},
            "sustained": 0.5,
            "memory_bandwidth": rate / 100,
            **values,
        }
    )


def mixed(**values):
    """Return 2 nodes of 4 fast devices and one of 2 slow ones, each with a link of its own."""
    return ClusterSpec(
        name="room",
        device_types={"fast": device("fast", 2e14), "slow": device("slow", 5e13, **values)},
        nodes=(NodeGroup(device="fast", devices=4, count=2), NodeGroup(device="slow", devices=2)),
        intra_node=Link(bandwidth=1e11, latency=1e-5),
        inter_node=Link(bandwidth=5e9, latency=5e-5),
        within={"slow": Link(bandwidth=1e10, latency=2e-5)},
    )


def alone(cluster, name):
    """Return the nodes of one type."""
    return dataclasses.replace(
        cluster,
        nodes=tuple(group for group in cluster.nodes if group.device == name),
        intra_node=cluster.within.get(name, cluster.intra_node),
    )


@decoders
def test_layers_of_decoders_hold_what_their_training_jobs_do(family):
    """Layers one by one add up to what the memory model says of a stage of them."""
    model, cluster = MODELS[family], mixed()
    found = analytic_layers(model, cluster, [2])
    decoder = as_decoder(model.architecture)
    assert found.layers == chain_names(decoder)
    flags = decoder.expert_layers
    for tp in found.degrees("fast"):
        rows = decoder_rows(decoder, 2, tp, model.precision, flash=True)
        one, many = (
            stage_memory(
                memory_parts(rows.job),
                layers=flags.count(False),
                expert_layers=flags.count(True),
                embedding=True,
                in_flight=n,
            )
            for n in (1, 4)
        )
        held = found.state["fast", tp][:-1].sum()
        terms = ("parameters", "gradients", "optimizer")
        assert held == pytest.approx(sum(one.terms[name] for name in terms))
        kept = 2 * found.activation["fast", tp][:-1].sum()
        assert kept == pytest.approx((many.peak - one.peak) / 3, rel=0.01)
        largest = (found.workspace["fast", tp] + 2 * found.workspace_per_sample["fast", tp])[:-1]
        assert held + kept + largest.max() >= 0.99 * one.peak


@decoders
def test_decoders_are_timed_by_kernels_and_messages(family):
    """One tensor-parallel rank sends nothing; several share the arithmetic."""
    model = MODELS[family]
    decoder = as_decoder(model.architecture)
    fast = device("fast", 2e14, launch=1e-12)
    link = Link(bandwidth=1e11, latency=1e-5)
    far = Link(bandwidth=1e9, latency=1e-5)
    alone = decoder_rows(decoder, 2, 1, model.precision, flash=True)
    assert (alone.seconds(fast, link) == alone.seconds(fast, far)).all()
    shared = decoder_rows(decoder, 2, 4, model.precision, flash=True)
    assert (shared.seconds(fast, link) < shared.seconds(fast, far)).all()
    free = Link(bandwidth=1e18, latency=1e-12)
    ratio = alone.seconds(fast, free)[1:-1] / shared.seconds(fast, free)[1:-1]
    assert ((ratio > 1.5) & (ratio <= 4.01)).all()


def test_a_layer_with_experts_is_not_one_without():
    found = analytic_layers(MODELS["mixture"], mixed(), [2])
    assert found.state["fast", 1][1] != found.state["fast", 1][2]
    assert found.state["fast", 1][2] == found.state["fast", 1][3]


@chains
def test_layers_are_the_sums_of_their_operators(family):
    """Every figure against the operator profile of each device type by itself."""
    model, cluster = MODELS[family], mixed()
    found = analytic_layers(model, cluster, [3])
    parts = segments(model.operators)
    assert found.layers == tuple(part.name for part in parts)
    sizes = tuple(sorted({3, *model.micro_batch_sizes}))
    for name in cluster.type_names:
        profile = analytic_profile(model, alone(cluster, name), sizes)
        assert found.degrees(name) == profile.tensor_degrees
        for tp in profile.tensor_degrees:
            assert found.samples(name, tp) == sizes
            key = (name, tp)
            for size in sizes:
                for place, part in enumerate(parts):
                    rows = [
                        profile.row(operator, size, tp, 0)
                        for operator in model.operators[part.start : part.stop]
                    ]
                    seconds = sum(row.forward + row.backward for row in rows)
                    assert found.time[LayerKey(name, tp, size)][place] == pytest.approx(seconds)
                    factor = 16 / model.bytes_per_number
                    weights = sum(row.weights for row in rows)
                    assert found.state[key][place] == pytest.approx(factor * weights)
                    kept = sum(row.activations for row in rows)
                    held = size * found.activation[key][place]
                    if size == 1:  # without the copies that several samples need
                        assert held >= kept * (1 - 1e-9)
                    else:
                        assert held == pytest.approx(kept)
                    buffers = max(row.forward_reserved for row in rows) + max(
                        row.backward_reserved for row in rows
                    )
                    room = (
                        found.workspace[key][place] + size * found.workspace_per_sample[key][place]
                    )
                    if size in (sizes[0], sizes[-1]):
                        assert room == pytest.approx(buffers, rel=0.01)
                    else:
                        assert room >= buffers * (1 - 1e-9)
                    if tp == 1:
                        number = model.bytes_per_number
                        assert found.gradients[place] == pytest.approx(weights)
                        assert found.gradients.sum() / number == pytest.approx(
                            parameter_count(model) + tied_parameters(model.architecture)
                        )
                    if place:
                        sent = found.boundary[place] * size
                        assert sent == pytest.approx(rows[0].input)
    assert found.boundary[0] == found.boundary[-1] == 0
    assert found.measured == frozenset()
    assert found.source == "analytic"


@chains
def test_the_optimizer_streams_the_states_twice(family):
    cluster = mixed()
    found = analytic_layers(MODELS[family], cluster)
    for (name, tp), seconds in found.optimizer.items():
        rate = cluster.device_types[name].streaming
        np.testing.assert_allclose(seconds * rate, 2 * found.state[name, tp])


@families
def test_a_type_is_as_it_is_by_itself(family):
    model, cluster = MODELS[family], mixed()
    together = analytic_layers(model, cluster)
    for name in cluster.type_names:
        single = analytic_layers(model, alone(cluster, name))
        assert single.devices == (name,)
        for key, seconds in single.time.items():
            np.testing.assert_array_equal(together.time[key], seconds)


def test_degrees_fit_the_largest_node_of_a_type():
    found = analytic_layers(MODELS["gpt"], mixed())
    assert found.degrees("fast") == (1, 2, 4)
    assert found.degrees("slow") == (1, 2)
    (note,) = found.notes
    assert note.startswith("device types fast, slow: found no GPU")  # whose attention may be fused


def test_degrees_that_do_not_divide_are_left_out_and_named():
    model = dataclasses.replace(
        MODELS["gpt"], architecture=dataclasses.replace(MODELS["gpt"].architecture, heads=2)
    )
    found = analytic_layers(model, mixed())
    assert found.degrees("fast") == (1, 2)
    assert found.notes[1:] == ("tp 4: does not divide gpt, left out",)


@examples(3, more=20)
@given(
    family=st.sampled_from(list(MODELS)),
    samples=st.lists(st.integers(1, 64), max_size=4),
    factor=st.floats(1.0, 8.0),
)
def test_more_work_takes_longer_and_faster_devices_less(family, samples, factor):
    slow = analytic_layers(MODELS[family], mixed(), samples)
    better = device("slow", 5e13 * factor)
    fast = analytic_layers(
        MODELS[family],
        dataclasses.replace(mixed(), device_types={**mixed().device_types, "slow": better}),
        samples,
    )
    for key, seconds in slow.time.items():
        assert (seconds > 0).all()
        assert (fast.time[key] <= seconds * (1 + 1e-12)).all()
        assert set(samples) <= set(slow.samples(key.device, key.tp))
    for name in slow.devices:
        for tp in slow.degrees(name):
            for less, more in pairwise(slow.samples(name, tp)):
                assert (slow.time[name, tp, less] <= slow.time[name, tp, more]).all()


@for_each(
    ("changes", "samples", "message"),
    [
        ({}, [0], "micro-batch size: must be at least 1, found 0"),
        (
            {"peak": {"fp32": 1e13}},
            [1],
            "cluster 'room': device 'slow': peak must have 'fp16', which the model needs, "
            "found fp32; precision = \"fp32\" in the file of model 'gpt' would do",
        ),
        *(
            (
                {key: None},
                [1],
                f"cluster 'room': device 'slow': {key} is missing, which an analytic profile needs "
                "(a measured one, `profile=FORMAT:PATH`, does without, "
                "unless for `space=megatron`)",
            )
            for key in ("peak", "sustained", "memory_bandwidth")
        ),
    ],
)
def test_bad_input_gives_one_line(changes, samples, message):
    with pytest.raises(SpecError) as error:
        analytic_layers(MODELS["gpt"], mixed(**changes), samples)
    assert str(error.value) == message


def test_the_model_of_metis_has_its_ten_layers():
    model = read_model(ROOT / "models" / "gpt-10l-4096.toml")
    found = analytic_layers(model, read_cluster(ROOT / "clusters" / "mixed-a100-t4.toml"))
    assert found.layers == ("embedding", *(f"layer {i}" for i in range(1, 9)), "head")
    for path in measurements():
        (tp,) = re.findall(r"_tp(\d+)_", path.name)
        measured = json.loads(path.read_text())
        assert len(measured["execution_time"]["layer_compute_total_ms"]) == len(found.layers)
        # What the files call bytes are numbers of parameters.
        parameters = measured["model"]["parameters"]["parameters_per_layer_bytes"][1]
        if tp == "1":
            # Megatron adds gradients up, and reduces them, in single precision.
            assert found.gradients[1] == pytest.approx(4 * parameters, rel=0.01)
        step = measured["execution_time"]["optimizer_time_ms"] * 1e-3
        assert found.optimizer["a100", int(tp)].sum() == pytest.approx(step, rel=0.15)


def measurements():
    """Return Metis's profiles of an A100."""
    if not SAMPLES.is_dir():
        pytest.skip("no ../shared/data/metis beside the repository")
    return sorted(SAMPLES.glob("DeviceType.A100_*.json"))


@pytest.mark.slow
def test_large_models_on_three_types_have_rows_for_every_degree():
    cluster = read_cluster(ROOT / "clusters" / "mixed-h100-a100-v100.toml")
    for name in ("gpt3-13b", "t5-22b", "wide-resnet-13b"):
        model = read_model(ROOT / "models" / f"{name}.toml")
        found = analytic_layers(model, cluster, [1, 2, 4, 8, 16, 32, 64, 128])
        assert len(found.time) >= 3 * 4 * 8
