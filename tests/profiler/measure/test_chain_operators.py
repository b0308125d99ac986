"""Operators of T5 and Wide ResNet: names, shapes, what crosses a cut, and what they compute."""

from dataclasses import replace

import pytest

from ilp_planner.profiler.measure.target import Target
from tests.profiler.measure.small_chains import CHAINS, IMAGES, SIDES, shard

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
from ilp_planner.profiler.measure.convolution import Bottleneck  # noqa: E402
from ilp_planner.profiler.measure.layers import OperatorBench  # noqa: E402
from ilp_planner.profiler.measure.t5_job import Attention  # noqa: E402
from ilp_planner.profiler.measure.transformer_operators import known_sizes, sent_bytes  # noqa: E402

CPU = Target(kind="cpu", name="CPU", dtype="fp32")
SHARDS = [(name, tp, 0) for name in CHAINS for tp in (1, 2, 4)]
SHARDS += [("resnet", tp, 1) for tp in (1, 2, 4)]
TOKENS = ("encoder-embedding",)  # whose input is tokens, of which tools have various widths


@pytest.mark.parametrize(("name", "tp", "split"), SHARDS)
def test_names_parameters_and_cuts_are_the_models(name, tp, split):
    model = CHAINS[name]
    job = shard(model, tp)
    found = job.operators(split)
    assert tuple(found) == tuple(dict.fromkeys(model.operators))
    for operator, ours in found.items():
        held = model.parameters.get(operator)
        count = sum(torch.Size(shape).numel() for shape in ours.weights) + ours.bias
        assert count == (0 if held is None else held.split / tp + held.whole), operator
        sizes, work = known_sizes(ours, job), job.works[operator]
        assert sizes["output_bytes"] == work.output, operator
        if operator not in TOKENS:
            assert sizes["input_bytes"] == work.input, operator


@pytest.mark.parametrize(("name", "tp", "split"), SHARDS)
def test_a_pass_sends_what_the_model_does(name, tp, split):
    """The sums over a vocabulary, a few bytes a token, are left out."""
    job = shard(CHAINS[name], tp)
    for operator, ours in job.operators(split).items():
        work = job.works[operator]
        ways = (work.forward_exchanges, work.backward_exchanges)
        if operator == "t5-post-process":
            ways = ((), work.backward_exchanges)
        expected = tuple([job.reduced(e) for e in way] if tp > 1 else [] for way in ways)
        if split == 0 or tp == 1 or operator == "conv1":
            assert sent_bytes(ours, job) == expected, operator
        elif expected[0]:
            forward, backward = sent_bytes(ours, job)
            assert forward == [2 * size for size in expected[0]], "summed, not gathered"
            assert backward == [size / 2 for size in expected[1]], "gathered, not summed"


@pytest.mark.parametrize(("name", "tp", "split"), [("t5", 2, 0), ("resnet", 2, 1)])
def test_all_of_them_run_and_keep_what_the_model_says(name, tp, split, monkeypatch):
    # All of 8 words may be another rank's: once in 256 draws.
    monkeypatch.setattr("ilp_planner.profiler.measure.transformer_operators._KEPT", {})
    torch.manual_seed(0)
    job = shard(CHAINS[name], tp, micro_batch=1)
    seen = set()
    for operator, ours in job.operators(split).items():
        what = (ours.step or operator, ours.inputs, ours.weights)
        if what in seen:
            continue
        seen.add(what)
        bench = OperatorBench(ours, job, CPU)
        bench.sample(1)
        values = bench.values()
        assert values["forward_s"] > 0, operator
        assert values["backward_s"] > 0, operator
        for gradient in bench.gradients.gradients:
            assert gradient.any(), operator
        if operator.startswith("enc-MLP") or "bn" in operator or "relu" in operator:
            # The operator's output, and a few numbers of each channel.
            kept = job.works[operator].activations
            assert kept <= values["activation_bytes"] <= kept + 8 * 1024, operator


def test_a_divided_input_is_kept_as_well():
    """Of split 1 a convolution copies its share of the input: 8 of 16 channels, 8 x 8 pixels."""
    job = shard(IMAGES, tp=2)
    kept = {}
    for split in (0, 1):
        operator = job.operators(split)["block-0-1-conv1"]
        bench = OperatorBench(operator, job, CPU)
        bench.sample(1)
        kept[split] = bench.values()["activation_bytes"]
    assert kept[1] - kept[0] == 4 * 2 * 8 * 8**2


def test_crossing_operators_together_are_attention():
    """One after the other they attend as the fused kernel of whole layers does."""
    torch.manual_seed(3)
    job = shard(SIDES)
    found = job.operators(0)
    layer = Attention(job, across=True)
    hidden, memory = torch.randn(8, 2, 32), torch.randn(16, 2, 32)
    # Heads are one after the other in the operators' products: keys and values of each together.
    keys = layer.memory.weight.view(2, 4, 8, 32).transpose(0, 1).reshape(64, 32)
    weights = (layer.query.weight, layer.query.bias, keys, torch.zeros(64))
    torch.nn.init.zeros_(layer.memory.bias)
    query, mixed, passed = found["dec-attention-qkv-2"].run(hidden, memory, *weights)
    assert passed.data_ptr() == memory.data_ptr()
    shapes = found["dec-attention-score-2"].inputs
    scores, value = found["dec-attention-score-2"].run(query.view(shapes[0]), mixed.view(shapes[1]))
    (share,) = found["dec-attention-softmax-2"].run(scores)
    (context,) = found["dec-attention-context-2"].run(share, value)
    (out,) = found["dec-attention-dense-2"].run(context, layer.dense.weight)
    expected = layer(hidden.transpose(0, 1), memory.transpose(0, 1))
    torch.testing.assert_close(out.transpose(0, 1), expected)


@pytest.mark.parametrize("name", ["block-0-0", "block-0-1", "block-1-0"])
def test_operators_of_a_block_together_are_the_block(name):
    torch.manual_seed(4)
    model = replace(IMAGES, blocks=(2, 2))
    job = shard(model)
    found = job.operators(0)
    block = next(one for one in model.each_block() if one.name == name)
    layer = Bottleneck(job, block)
    for parameter in layer.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, 0.0, 0.1)
    maps = torch.randn(found[f"{name}-conv1"].inputs[0])
    residual, hidden = maps, maps
    for number, step in enumerate(layer.steps, 1):
        hidden, *rest = found[f"{name}-conv{number}"].run(hidden, step.weight)
        residual = rest[0] if rest else residual
        (hidden,) = found[f"{name}-bn{number}"].run(hidden, step.norm.weight, step.norm.bias)
    weights = (layer.projection.weight,) if block.projects else ()
    (merged,) = found[f"{name}-downsample"].run(hidden, residual, *weights)
    (out,) = found[f"{name}-relu"].run(merged)
    torch.testing.assert_close(out, layer((), maps))
