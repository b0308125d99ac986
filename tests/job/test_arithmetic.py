"""What recomputation adds to the arithmetic of a job, by hand."""

from dataclasses import replace

import pytest

from ilp_planner.job.arithmetic import arithmetic, extra_flops, recomputed_flops
from ilp_planner.job.work import layer_work, output_work, prediction_work
from ilp_planner.spaces.training.enumerate.recomputations import FULL
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, Recompute, TrainingJob
from tests.training_jobs import gpt, job, settings

PARTS = ("core_attn", "mlp")


def again(*modules: str, full: bool = False, prediction_layers: int = 0) -> TrainingJob:
    """Return a job of two samples on two ranks of tensor parallelism that computes something again,
    with attention whose backward pass is two products for each one."""
    recompute = Recompute(granularity="selective", modules=modules) if modules else Recompute()
    model = gpt(prediction_layers=prediction_layers)
    return job(
        model,
        layout=split_layout([1, 2, 3, 2], prediction_layers=prediction_layers),
        settings=settings(
            recompute=FULL if full else recompute, kernels=Kernels(attention="unfused")
        ),
    )


def forward(case: TrainingJob) -> float:
    """Return the FLOPs of a layer's forward pass on one rank, of two samples."""
    return case.model.flops["mlp-layer"] * case.micro_batch / case.tp


@pytest.mark.parametrize("predicted", [0, 2])
def test_a_job_that_computes_all_layers_again_runs_their_forward_passes_twice(
    predicted: int,
) -> None:
    """Beside three times the forward passes of 8 layers and of the output, and what predicts
    further tokens, which is not computed again."""
    case = again(full=True, prediction_layers=predicted)
    model = case.model
    output = 2 * model.sequence * model.hidden * case.padded_vocab * case.micro_batch / case.tp
    every = 3 * (8 * forward(case) + output)
    if predicted:
        every += predicted * arithmetic(prediction_work(case))
        assert arithmetic(prediction_work(case)) > 3 * output
    assert extra_flops(case) == pytest.approx(8 * forward(case) / every, rel=1e-12)
    assert extra_flops(again(prediction_layers=predicted)) == 0


def test_flops_of_a_sample_that_are_computed_again_are_of_all_ranks() -> None:
    """Without the half of the scores that a causal mask makes needless."""
    case = again(full=True)
    model = case.model
    layer = model.flops["mlp-layer"] - 2 * model.sequence**2 * model.hidden
    assert recomputed_flops(case) == pytest.approx(8 * layer, rel=1e-12)
    assert recomputed_flops(again()) == 0
    more = replace(case, micro_batch=1, dp=4)
    assert recomputed_flops(more) == pytest.approx(recomputed_flops(case), rel=1e-12)


def test_parts_of_layers_that_are_named_are_each_computed_again() -> None:
    """Attention multiplies scores and values, the MLP has two products."""
    core, mlp = (recomputed_flops(again(name)) for name in PARTS)
    model = again().model
    assert core == pytest.approx(8 * 4 * model.sequence**2 * model.hidden / 2, rel=1e-12)
    assert mlp == pytest.approx(8 * 4 * model.sequence * model.hidden * model.ffn, rel=1e-12)
    assert recomputed_flops(again(*PARTS)) == pytest.approx(core + mlp, rel=1e-12)


def test_arithmetic_is_of_both_passes_unless_one_is_asked_for() -> None:
    case = again()
    layer = layer_work(case, kind=0)
    assert arithmetic(layer, backward=False) == pytest.approx(forward(case), rel=1e-12)
    assert arithmetic(layer) == pytest.approx(3 * forward(case), rel=1e-12)
    assert arithmetic([]) == 0
    assert arithmetic(output_work(case)) == 3 * arithmetic(output_work(case), backward=False)
