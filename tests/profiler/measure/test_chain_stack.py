"""Stacks of T5 and Wide ResNet: shapes of one rank, marks, memory, whole steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.profiler.measure.layers import LayerBench, layer_values
from ilp_planner.profiler.measure.target import MemoryTrace, Target
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from tests.benchmarks.training_step import StepBench, chain_of, predict_step
from tests.profiler.measure.small_chains import CHAINS, IMAGES, SIDES, shard

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
from ilp_planner.profiler.measure.convolution import Gathered, Sliced, convolved  # noqa: E402
from ilp_planner.profiler.measure.layers import Stack  # noqa: E402
from ilp_planner.profiler.measure.modules import parameter_count  # noqa: E402
from ilp_planner.profiler.measure.t5_job import Attention  # noqa: E402
from tests.examples import examples  # noqa: E402

CPU = Target(kind="cpu", name="CPU", dtype="fp32")

MODELS = st.one_of(
    st.builds(
        lambda heads, channels, ffn, positions: T5(
            layers=1,
            hidden=24,
            heads=4 * heads,
            kv_channels=channels,
            ffn=4 * ffn,
            encoder_sequence=8,
            decoder_sequence=4,
            vocab=64,
            max_position_embeddings=8 + positions,
        ),
        st.integers(1, 3),
        st.integers(1, 9),
        st.integers(1, 30),
        st.integers(0, 9),
    ),
    st.builds(
        lambda blocks, base, factor, classes: WideResNet(
            blocks=blocks, in_channels=4 * base, width_factor=factor, image=16, classes=classes
        ),
        st.lists(st.integers(1, 2), min_size=1, max_size=3).map(tuple),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(1, 9),
    ),
)


@examples(5)
@given(model=MODELS, tp=st.sampled_from((1, 2, 4)))
def test_parts_learn_what_the_model_says(model, tp):
    job = shard(model, tp, micro_batch=1)
    for kind in job.kinds:
        part = job.build(kind, device="meta", dtype=torch.float32)
        assert parameter_count(part) == job.parameters(kind), kind


def chained(model, **options):
    job = shard(model)
    return Stack(chain_of(job), job, CPU, **options)


@pytest.mark.parametrize("name", CHAINS)
def test_the_marks_are_where_parts_begin_and_end(name):
    """A part's gradients are complete at the mark after it, and not at the one before."""
    made = chained(CHAINS[name])
    count = len(made.parts)
    names = {id(p): i for i, part in enumerate(made.parts) for p in part.parameters()}
    events = []
    for parameter in (p for part in made.parts for p in part.parameters()):
        parameter.register_post_accumulate_grad_hook(lambda p: events.append(names[id(p)]))
    made.run(made.load(), lambda: events.append("mark"))
    spans = [set()]
    for event in events[count + 1 :]:
        if event == "mark":
            spans.append(set())
        else:
            spans[-1].add(event)
    assert spans == [{place} for place in reversed(range(count))] + [set()]


@pytest.mark.parametrize("name", CHAINS)
def test_every_part_runs_by_itself(name):
    """So it is measured where all of them together do not fit."""
    job = shard(CHAINS[name], tp=2)
    together = LayerBench(job.kinds, job, CPU, copies=2).memory()
    for kind in job.kinds:
        alone = LayerBench([kind], job, CPU, copies=1)
        alone.sample(1)
        ours, theirs = alone.memory()[kind].activation, together[kind].activation
        assert ours == pytest.approx(theirs, abs=64), kind


@pytest.mark.parametrize("name", CHAINS)
def test_the_estimate_of_memory_is_about_what_is_needed(name):
    models = {
        "t5": T5(
            layers=2,
            hidden=64,
            heads=4,
            kv_channels=16,
            encoder_sequence=64,
            decoder_sequence=32,
            vocab=1000,
        ),
        "resnet": WideResNet(blocks=(2, 2), in_channels=16, width_factor=2, image=64, classes=10),
    }
    job = shard(models[name], micro_batch=4)
    with MemoryTrace(CPU) as trace:
        LayerBench(job.kinds, job, CPU, copies=2)
    peak = max(level.peak for level in trace.levels)
    assert peak < job.need(job.kinds, 2) < 3.0 * peak


@pytest.mark.parametrize("name", CHAINS)
def test_memory_of_rows_is_that_of_a_step(name):
    """Also of a model with more layers than were measured; a recomputed layer keeps the state of
    the random numbers besides, 5 KiB."""
    job = shard(CHAINS[name])
    bench = LayerBench(job.kinds, job, CPU, copies=2)
    bench.sample(1)
    values = layer_values(bench, bench.memory())
    rows = []
    for kind in job.kinds:
        taken, left = job.handed(kind)
        row = {"name": kind, "optimizer_s": 0.0, **values[kind]}
        rows.append(row | {"input_bytes": taken, "output_bytes": left})
    for recompute in (False, True):
        step = StepBench(job, CPU, micro_batches=2, recompute=recompute)
        step.sample(1)
        chain = chain_of(job)
        predicted = predict_step(rows, layers=chain, micro_batches=2, recompute=recompute)
        unknown = 1000 + (5600 * len(chain) if recompute else 0)
        assert predicted.peak == pytest.approx(step.figures().peak, abs=unknown), recompute


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_step_lowers_the_loss(name, dtype):
    torch.manual_seed(5)
    target = Target(kind="cpu", name="CPU", dtype=dtype)
    job = shard(CHAINS[name], dtype=dtype)
    made = Stack(chain_of(job), job, target, stepped=True)
    for group in made.optimizer.adam.param_groups:
        group["lr"] = 1e-2

    def loss():
        batch, state = made.load(), ()
        with torch.no_grad():
            for part in made.parts:
                out = part(batch, *state)
                state = out if isinstance(out, tuple) else (out,)
        return float(state[0])

    before = loss()
    for _ in range(6):
        made.run(made.load())
        made.optimizer.step()
    assert loss() < 0.9 * before


@pytest.mark.parametrize("across", [False, True])
def test_the_ranks_attention_adds_up(across):
    """Every rank has its heads: their sums are what one device would have computed."""
    torch.manual_seed(1)
    whole = Attention(shard(SIDES), across=across)
    hidden, memory = torch.randn(2, 8, 32), torch.randn(2, 16, 32)
    total = torch.zeros(2, 8, 32)
    for rank in range(2):
        part = Attention(shard(SIDES, tp=2), across=across)
        with torch.no_grad():
            for ours, theirs, pieces in (
                (part.query, whole.query, 1 if across else 3),
                *(((part.memory, whole.memory, 2),) if across else ()),
            ):
                for name in ("weight", "bias"):
                    rows = [x.chunk(2)[rank] for x in getattr(theirs, name).chunk(pieces)]
                    getattr(ours, name).copy_(torch.cat(rows))
            part.dense.weight.copy_(whole.dense.weight.chunk(2, dim=1)[rank])
        total += part(hidden, memory if across else None)
    torch.testing.assert_close(total, whole(hidden, memory if across else None))


@examples(6)
@given(ranks=st.sampled_from((1, 2, 4)), stride=st.sampled_from((1, 2)), seed=st.integers(0, 9))
def test_the_ranks_convolutions_are_one(ranks, stride, seed):
    """Output channels one after the other, or the sum over input channels."""
    torch.manual_seed(seed)
    block = next(b for b in IMAGES.each_block() if b.stride == stride)
    convolution = block.convolutions[f"{block.name}-conv2"]
    edge = convolution.size * stride
    maps = torch.randn(2, convolution.inputs, edge, edge)
    weight = torch.randn(convolution.outputs, convolution.inputs, 3, 3)
    whole = convolved(maps, weight, convolution, 1)
    assert whole.shape == (2, convolution.outputs, convolution.size, convolution.size)
    shares = [
        convolved(maps, rows, convolution, ranks).chunk(ranks, dim=1)[0]
        for rows in weight.chunk(ranks)
    ]
    torch.testing.assert_close(torch.cat(shares, dim=1), whole, rtol=1e-4, atol=1e-4)
    each = zip(maps.chunk(ranks, dim=1), weight.chunk(ranks, dim=1), strict=True)
    summands = [
        convolved(torch.cat([some] * ranks, dim=1), columns, convolution, ranks, 1)
        for some, columns in each
    ]
    torch.testing.assert_close(sum(summands), whole, rtol=1e-4, atol=1e-4)


def test_gradients_of_gathered_and_sliced_channels():
    share = torch.randn(1, 2, 3, 3, requires_grad=True)
    gradient = torch.randn(1, 4, 3, 3)
    Gathered.apply(share, 2).backward(gradient)
    torch.testing.assert_close(share.grad, gradient[:, :2])
    whole = torch.randn(1, 4, 3, 3, requires_grad=True)
    Sliced.apply(whole, 2).backward(gradient[:, :2])
    torch.testing.assert_close(whole.grad, torch.cat([gradient[:, :2]] * 2, dim=1))
