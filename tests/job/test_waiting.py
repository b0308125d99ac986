"""What waits for gradients of weights, counted product by product."""

from dataclasses import replace

import pytest

from ilp_planner.job.parts import deferred_output, memory_parts
from ilp_planner.settings.rules import of_degrees
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, TrainingJob
from tests.training_jobs import gpt, job, llama, settings

ROWS = 512 * 2


def divided(case: TrainingJob, schedule: str = "zb-v") -> TrainingJob:
    """Return the job with two stages on each of two ranks."""
    own = replace(case.settings, schedule=schedule)
    return replace(case, settings=own, pp=2, layout=split_layout([2, 2, 2, 2]))


def test_outputs_of_products_and_norms_have_gradients_that_wait() -> None:
    """On each of two ranks: queries, keys and values, the projection, gate and up, and down; and
    two norms of its share of tokens. Of the output: logits, and the last norm."""
    parts = memory_parts(divided(job(llama()))).parts
    columns = (128 + 64 + 64) + 256 + 704 + 256
    assert parts["layer"].waiting == 2 * (ROWS * columns + 2 * ROWS * 256 // 2)
    assert parts["output"].waiting == 2 * (ROWS * 512 + ROWS * 256 // 2)
    assert parts["embedding"].waiting == 0


def test_scores_wait_for_no_gradient_and_experts_for_that_of_each_token() -> None:
    """Unfused attention multiplies scores, which have no weights. Each token goes to two experts,
    half of whose products a rank has; the router sees its own tokens."""
    plain = divided(job(llama()))
    kernels = replace(plain.settings.kernels, attention="unfused")
    unfused = replace(plain, settings=replace(plain.settings, kernels=kernels))
    both = [memory_parts(case).parts["layer"].waiting for case in (plain, unfused)]
    assert both[0] == both[1]
    model = llama(experts=Experts(count=8, top_k=2, ffn=96))
    kernels = replace(plain.settings.kernels, grouped_experts=True)
    case = divided(job(model, settings=settings(kernels=kernels)))
    waiting = memory_parts(case).parts["expert layer"].waiting
    attention = ROWS * (256 + 256) + 2 * ROWS * 256 // 2
    routed = 2 * ROWS * (2 * 48 + 256)
    assert waiting == 2 * (attention + ROWS // 2 * 8 + routed)


@pytest.mark.parametrize("model", [llama(), gpt()])
def test_nothing_waits_where_no_pass_is_divided(model: object) -> None:
    case = divided(job(model), "1f1b")  # type: ignore[arg-type]
    assert {part.waiting for part in memory_parts(case).parts.values()} == {0}


def test_deferred_gradients_of_the_output_keep_its_input_and_the_gradient_of_its_logits() -> None:
    """By hand: of every micro-batch that is deferred, 2 bytes of a rank's share of both."""
    plain = job(dp=1, global_batch=6)

    def deferred(limit: int) -> float:
        kernels = Kernels(deferred_output=True, deferral_limit=limit)
        other = replace(plain, settings=replace(plain.settings, kernels=kernels))
        parts = [memory_parts(one).parts for one in (plain, other)]
        assert parts[0]["layer"] == parts[1]["layer"]
        return parts[1]["output"].gradients - parts[0]["output"].gradients

    tokens, model = plain.micro_batch * plain.model.tokens, plain.model
    each = 2 * tokens * (plain.padded_vocab + model.hidden) // plain.tp
    assert plain.micro_batches > 2
    assert [deferred(limit) for limit in (1, 2)] == [each, 2 * each]
    assert deferred(0) == deferred(10**6) == plain.micro_batches * each


def test_nothing_is_deferred_without_a_pipeline() -> None:
    alone = job(pp=1, settings=settings(kernels=Kernels(deferred_output=True)))
    assert any(violation.rule == "deferred gradients" for violation in of_degrees(alone))
    assert deferred_output(alone) == 0


def test_a_limit_of_nothing_that_is_deferred_says_nothing() -> None:
    """Megatron looks at `--wgrad-deferral-limit` with `--defer-embedding-wgrad-compute` alone."""
    assert Kernels(deferral_limit=-1) != Kernels()
    with pytest.raises(ValueError, match="deferral_limit must be at least 0, got -1"):
        Kernels(deferred_output=True, deferral_limit=-1)
