"""Operators of a GPT: names, shapes, what crosses a cut, and what they compute."""

from itertools import pairwise

import pytest

from ilp_planner.profiler.measure.decoder_job import decoder_of, job_of
from ilp_planner.profiler.measure.target import Target
from tests.profiler.measure.small_decoders import GPT, spec

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
from ilp_planner.profiler.measure.layers import OperatorBench  # noqa: E402
from ilp_planner.profiler.measure.transformer_operators import sent_bytes  # noqa: E402

CPU = Target(kind="cpu", name="CPU", dtype="fp32")
SHARDS = [(tp, split) for tp in (1, 2, 4) for split in (0, 1)]


def shard(tp=1, micro_batch=2):
    return job_of(decoder_of(spec()), tp=tp, micro_batch=micro_batch, dtype="fp32")


def numbers(shape):
    return torch.Size(shape).numel()


@pytest.mark.parametrize(("tp", "split"), SHARDS)
def test_the_chain_is_that_of_the_model(tp, split):
    assert tuple(shard(tp).operators(split)) == tuple(dict.fromkeys(GPT.operators))


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_parameters_are_those_of_the_model(tp):
    for name, operator in shard(tp).operators(0).items():
        held = GPT.parameters.get(name)
        count = sum(map(numbers, operator.weights)) + operator.bias
        expected = 0 if held is None else held.split / tp + held.whole
        assert count == expected, name


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_what_leaves_one_operator_reaches_the_next(tp):
    """Of split 0, no layout changes between operators of one degree."""
    for before, after in pairwise(shard(tp).operators(0).values()):
        assert before.left == after.live


def test_sizes_by_hand():
    """Two samples of 16 tokens, 32 wide, 4 heads, on 2 ranks: hidden 1024, scores 2 x 2 x 256."""
    found = shard(2).operators(0)
    hidden, scores = 2 * 16 * 32, 2 * 2 * 16 * 16
    assert found["enc-attention-qkv"].left == hidden + 3 * hidden / 2
    assert found["enc-attention-score"].left == hidden + hidden / 2 + scores
    assert found["enc-attention-dense"].left == 2 * hidden + 32
    assert found["enc-MLP-GEMM-1"].left == hidden + 4 * hidden / 2 + 64
    other = shard(2).operators(1)
    assert other["enc-attention-qkv"].live == hidden + hidden / 2
    assert other["enc-attention-qkv"].left == hidden + 3 * hidden
    assert other["enc-MLP-GEMM-2"].left == hidden + hidden / 2 + 16


@pytest.mark.parametrize(("tp", "split"), SHARDS)
def test_a_pass_sends_what_its_layout_needs(tp, split):
    """Divided columns sum the input's gradient, divided rows the output."""
    job = shard(tp)
    hidden = 4 * 2 * 16 * 32
    sent = {n: sent_bytes(o, job) for n, o in job.operators(split).items()}
    if tp == 1:
        assert all(ways == ([], []) for ways in sent.values())
        return
    expected = {
        0: {"qkv": ([], [hidden]), "dense": ([hidden], [])},
        1: {"qkv": ([3 * hidden], []), "dense": ([], [hidden])},
    }[split]
    for name, ways in expected.items():
        assert sent[f"enc-attention-{name}"] == ways


@pytest.mark.parametrize(("tp", "split"), SHARDS)
def test_all_of_them_run(tp, split):
    job = shard(tp, micro_batch=1)
    for name, operator in job.operators(split).items():
        bench = OperatorBench(operator, job, CPU)
        bench.sample(1)
        values = bench.values()
        assert values["forward_s"] > 0, name
        assert values["backward_s"] > 0, name
        assert values["time_s"] == values["forward_s"] + values["backward_s"]
        assert len(bench.forward) == 1
        for weight, gradient in zip(bench.weights, bench.gradients.gradients, strict=True):
            assert weight.grad is None
            assert gradient.any(), name


def test_together_they_are_a_layer():
    """One after the other they attend as the fused kernel of whole layers does."""
    torch.manual_seed(3)
    found = shard(1).operators(0)
    mixed = torch.randn(found["enc-attention-score"].inputs[0])
    scores, value = found["enc-attention-score"].run(mixed)
    (share,) = found["enc-attention-softmax"].run(scores)
    (context,) = found["enc-attention-context"].run(share, value)
    parts = mixed.view(16, 2, 4, 3, 8).permute(3, 1, 2, 0, 4)
    expected = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
    torch.testing.assert_close(context, expected.permute(2, 0, 1, 3).reshape(16, 2, 32))


def test_memory_of_an_operator_is_what_it_makes():
    job = shard(1)
    bench = OperatorBench(job.operators(0)["enc-MLP-GEMM-1"], job, CPU)
    bench.sample(2)
    values = bench.values()
    inner = 4 * 2 * 16 * 128
    assert values["activation_bytes"] == inner
    assert values["forward_workspace_bytes"] < inner
    # Backward: the input's gradient and the weights', before they are added up.
    assert values["backward_workspace_bytes"] == 4 * (2 * 16 * 32 + 32 * 128)
    assert values["weight_bytes"] == 4 * (32 * 128 + 128)
