"""The stack: hooks mark every part once each way, and it trains as it should."""

import pytest

from ilp_planner.profiler.measure.decoder_job import job_of
from ilp_planner.profiler.measure.target import Target
from tests.profiler.measure.small_decoders import LLAMA

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
from ilp_planner.profiler.measure.layers import Stack  # noqa: E402
from ilp_planner.profiler.measure.operators import MixedAdam, state_bytes  # noqa: E402

CPU = Target(kind="cpu", name="CPU", dtype="fp32")
WHOLE = ("embedding", "layer", "layer", "head")


def stack(kinds=WHOLE, *, dtype="fp32", **options):
    torch.manual_seed(7)
    target = Target(kind="cpu", name="CPU", dtype=dtype)
    return Stack(kinds, job_of(LLAMA, tp=1, micro_batch=2, dtype=dtype), target, **options)


@pytest.mark.parametrize("kinds", [WHOLE, ("layer",), ("layer", "head"), ("embedding",), ("head",)])
def test_every_part_is_marked_once_each_way(kinds):
    made = stack(kinds)
    marks = []
    made.run(made.load(), lambda: marks.append(None))
    assert len(marks) == 2 * len(kinds) + 1
    made.run(made.load())
    assert len(marks) == 2 * len(kinds) + 1, "a pass without marks sets none"


def test_the_marks_are_where_parts_begin_and_end():
    """A part's gradients are complete at the mark after it, and not at the one before."""
    made = stack()
    names = {id(p): i for i, part in enumerate(made.parts) for p in part.parameters()}
    events = []
    for parameter in (p for part in made.parts for p in part.parameters()):
        parameter.register_post_accumulate_grad_hook(lambda p: events.append(names[id(p)]))
    made.run(made.load(), lambda: events.append("mark"))
    backward = events[len(WHOLE) + 1 :]
    spans, span = [], []
    for event in backward:
        if event == "mark":
            spans.append(set(span))
            span = []
        else:
            span.append(event)
    assert spans == [{3}, {2}, {1}, {0}]


def test_gradients_of_micro_batches_add_up_in_single_precision():
    made = stack(dtype="bf16")
    batch = made.load()
    made.run(batch)
    once = [g.clone() for g in made.optimizer.gradients]
    made.run(batch)
    for gradient, single in zip(made.optimizer.gradients, once, strict=True):
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, 2 * single)
    assert all(p.grad is None for p in made.optimizer.parameters)


def test_recomputation_gives_the_same_gradients():
    plain, again = stack(), stack(recompute=True)
    batch = plain.load()
    plain.run(batch)
    again.run(batch)
    for a, b in zip(plain.optimizer.gradients, again.optimizer.gradients, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_a_step_lowers_the_loss_and_begins_anew(dtype):
    made = stack(dtype=dtype, stepped=True)
    for group in made.optimizer.adam.param_groups:
        group["lr"] = 1e-2

    def loss():
        tokens, labels = made.load()
        with torch.no_grad():
            hidden = tokens
            for part in made.parts[:-1]:
                hidden = part(hidden)
            return float(made.parts[-1](hidden, labels))

    before = loss()
    for _ in range(5):
        made.run(made.load())
        made.optimizer.step()
    assert loss() < 0.9 * before
    assert not any(g.any() for g in made.optimizer.gradients)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_states_take_the_bytes_that_rows_say(dtype):
    made = stack(dtype=dtype, stepped=True)
    made.run(made.load())
    made.optimizer.step()
    optimizer = made.optimizer
    tensors = {t.data_ptr(): t for t in (*optimizer.parameters, *optimizer.gradients)}
    tensors |= {t.data_ptr(): t for t in optimizer.masters}
    for state in optimizer.adam.state.values():
        tensors |= {t.data_ptr(): t for t in (state["exp_avg"], state["exp_avg_sq"])}
    held = sum(t.numel() * t.element_size() for t in tensors.values())
    count = sum(p.numel() for p in optimizer.parameters)
    assert held == state_bytes(count, dtype)


def test_released_parameters_keep_no_gradients():
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = MixedAdam([parameter], stepped=False)
    optimizer.release()
    (2 * parameter).sum().backward()
    assert not optimizer.gradients[0].any()
    assert parameter.grad is not None
