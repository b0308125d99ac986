"""Whole steps: the walk that predicts the peak, and rows that add up to what is measured."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.profiler.measure.decoder_job import job_of
from ilp_planner.profiler.measure.layers import LayerBench, layer_values, optimizer_seconds
from ilp_planner.profiler.measure.target import MemoryTrace, Target
from tests.benchmarks.training_step import StepBench, predict_step
from tests.profiler.measure.small_decoders import DECODERS, LLAMA

CPU = Target(kind="cpu", name="CPU", dtype="fp32")


def row(name, **values):
    return {
        "name": name,
        "forward_s": 1.0,
        "backward_s": 2.0,
        "optimizer_s": 0.5,
        "state_bytes": 100.0,
        "activation_bytes": 50.0,
        "forward_workspace_bytes": 5.0,
        "backward_workspace_bytes": 7.0,
        "input_bytes": 10.0,
        "output_bytes": 10.0,
        **values,
    }


ROWS = (
    row("embedding", activation_bytes=0.0, input_bytes=0.0),
    row("layer", forward_s=3.0, backward_s=4.0),
    row("head", activation_bytes=40.0, backward_workspace_bytes=30.0, output_bytes=0.0),
)


def test_seconds_add_up():
    plain = predict_step(ROWS, layers=3, micro_batches=2, generator=0.25)
    assert plain.seconds == 2 * (0.25 + 3 + 3 * 7 + 3) + 5 * 0.5
    again = predict_step(ROWS, layers=3, micro_batches=2, generator=0.25, recompute=True)
    assert again.seconds == plain.seconds + 2 * 3 * 3.0


def test_the_peak_is_the_worst_moment():
    """Without recomputation the head's backward pass, on top of what all layers keep."""
    plain = predict_step(ROWS, layers=3, micro_batches=2, resident=1000.0)
    assert plain.peak == 1000 + 500 + 3 * 50 + 40 + 30
    # With it: the last layer again, beside the inputs of those before, or the head.
    again = predict_step(ROWS, layers=3, micro_batches=2, recompute=True)
    assert again.peak == 500 + max(3 * 10 + 40 + 30, 2 * 10 + 50 + 5 + 10)


@pytest.mark.parametrize("name", DECODERS)
def test_the_estimate_of_memory_is_about_what_is_needed(name):
    """More than that, so that a machine is not filled, but not so much more that nothing is
    tried."""
    model = replace(DECODERS[name], sequence=64, vocab=2000, max_position_embeddings=64)
    job = job_of(model, tp=1, micro_batch=8, dtype="fp32")
    kinds = job.kinds
    with MemoryTrace(CPU) as trace:
        bench = LayerBench(kinds, job, CPU, copies=2)
        bench.sample(1)
    streams = 128 * 2**20 if model.experts else 0  # workspaces of a GPU's grouped products
    peak = max(level.peak for level in trace.levels)
    assert peak < job.need(kinds, 2) < 2.5 * peak + streams


def test_a_missing_kind_is_named():
    with pytest.raises(ProfileError, match="expected one of 'head', found none"):
        predict_step(ROWS[:2], layers=3, micro_batches=1)
    with pytest.raises(ProfileError, match="expected one kind of layer"):
        predict_step((*ROWS, row("layer with experts")), layers=3, micro_batches=1)


@pytest.mark.parametrize("name", ["plain", "llama", "qwen"])
def test_memory_of_rows_is_that_of_a_step(name):
    """More layers than were measured, with and without recomputation.

    Beside what the rows know, a recomputed layer keeps the state of the random numbers: 5 KiB.
    """
    model = DECODERS[name]
    job = job_of(model, tp=1, micro_batch=2, dtype="fp32")
    bench = LayerBench(job.kinds, job, CPU, copies=2)
    bench.sample(1)
    stepped = optimizer_seconds(job.kinds, job, CPU, 1)
    values = layer_values(bench, bench.memory())
    rows = [
        {"name": kind, "optimizer_s": stepped[kind], **values[kind], **job.known_values(kind)}
        for kind in job.kinds
    ]
    for recompute in (False, True):
        step = StepBench(job, CPU, micro_batches=2, recompute=recompute)
        step.sample(1)
        predicted = predict_step(rows, layers=model.layers, micro_batches=2, recompute=recompute)
        measured = step.figures()
        unknown = 5600 * model.layers if recompute else 0
        assert predicted.peak == pytest.approx(measured.peak, rel=0.001, abs=unknown), recompute
        assert measured.seconds > 0


def test_activations_grow_with_the_samples():
    found = {}
    for size in (1, 2, 4):
        job = job_of(LLAMA, tp=1, micro_batch=size, dtype="fp32")
        bench = LayerBench(("embedding", "layer", "head"), job, CPU, copies=3)
        found[size] = bench.memory()
    for kind in ("layer", "head"):
        once = found[2][kind].activation - found[1][kind].activation
        twice = found[4][kind].activation - found[2][kind].activation
        assert twice == pytest.approx(2 * once, rel=0.02)
        assert found[1][kind].activation == pytest.approx(once, rel=0.05)


def test_copies_of_a_layer_cost_the_same():
    """The first gets its input from the embedding and the last gives its to the head: neither may
    show."""
    job = job_of(LLAMA, tp=1, micro_batch=2, dtype="fp32")
    kinds = ("embedding", "layer", "head")
    few, many = (LayerBench(kinds, job, CPU, copies=n).memory() for n in (2, 5))
    assert few == many
