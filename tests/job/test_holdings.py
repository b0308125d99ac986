"""What ranks hold of each parameter adds up to what their memory is said to hold."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.holdings import (
    KINDS,
    NOBODY,
    WEIGHTS,
    Holdings,
    Span,
    chain_holdings,
    job_holdings,
)
from ilp_planner.job.memory import memory_parts, stage_of_rank
from ilp_planner.job.states import StateWidths, state_widths
from ilp_planner.settings.rules import same_pipelines
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import ORDERS, SHARDINGS, OptimizerSettings, Settings, TrainingJob
from tests.examples import examples
from tests.training_jobs import deepseek, gpt, llama

MODELS = {
    "llama": llama(vocab=1024),
    "gpt": gpt(vocab=1024),
    "experts": llama(vocab=1024, experts=Experts(count=8, top_k=2, ffn=96, shared_ffn=64)),
    "latent": replace(deepseek(vocab=1024), layers=8),
    "predicts": replace(deepseek(vocab=1024), prediction_layers=1),
}


@st.composite
def held_jobs(draw: st.DrawFn) -> TrainingJob:
    """Draw a job whose degrees divide everything."""
    model = MODELS[draw(st.sampled_from(sorted(MODELS)))]
    tp, cp, pp, dp = (draw(st.sampled_from((1, 2, 4))) for _ in range(4))
    experts = model.experts is not None
    etp = draw(st.sampled_from(sorted({1, tp}))) if experts else 0
    ep = draw(st.sampled_from((1, 2, 4))) if experts else 1
    if experts and tp * cp * dp % (ep * etp):
        ep = 1
    replicas = tp * cp * dp // (ep * (etp or tp))
    several = [n for n in (1, 2) if dp * cp % n == 0 and replicas % n == 0]
    sharding = draw(st.sampled_from(SHARDINGS))
    optimizer = OptimizerSettings(
        sharding=sharding,
        from_master=sharding in SHARDINGS[2:] and draw(st.booleans()),
        instances=draw(st.sampled_from(several)),
    )
    order = draw(st.sampled_from(ORDERS))
    if experts and not same_pipelines(tp, cp, ep, etp):
        order = ORDERS[0]  # the others would give experts pipelines of their own
    settings = Settings(
        cp=cp, ep=ep, etp=etp, vocab_multiple=1, order=order,
        sequence_parallel=tp > 1, optimizer=optimizer,
    )  # fmt: skip
    virtual = draw(st.sampled_from((1, 2))) if pp > 1 else 1
    count = pp * virtual - 1
    cuts = sorted(draw(st.lists(st.integers(0, 8), min_size=count, max_size=count)))
    sizes = np.diff([0, *cuts, 8]).tolist()
    layout = split_layout(sizes, prediction_layers=model.prediction_layers)
    return TrainingJob(
        model=model, micro_batch=1, global_batch=64, tp=tp, pp=pp, dp=dp, layout=layout,
        settings=settings,
    )  # fmt: skip


def kept_widths(job: TrainingJob, *, expert: bool) -> StateWidths:
    """Return the widths of what a rank keeps: parameters that it gathers are gone afterwards."""
    widths = state_widths(job, expert=expert)
    gathered = job.settings.width if job.settings.optimizer.from_master else 0
    if job.settings.optimizer.sharding == "parameters":
        gathered = 0
    return replace(widths, parameter=widths.parameter - gathered)


@given(job=held_jobs())
@examples(60)
def test_ranks_hold_what_their_memory_holds(job: TrainingJob) -> None:
    """Of every pipeline rank, by another count of parameters and by the widths of states. The norm
    behind the last layer is held with the output, also where Megatron has it a rank earlier: of
    models that predict further tokens."""
    held = job_holdings(job)
    parts = memory_parts(job)
    expected = np.zeros(job.pp)
    for rank in range(job.pp):
        memory = stage_of_rank(parts, rank)
        counts = (memory.parameters - memory.expert_parameters, memory.expert_parameters)
        for count, expert in zip(counts, (False, True), strict=True):
            widths = kept_widths(job, expert=expert)
            expected[rank] += count * (widths.parameter + widths.optimizer)
    widths = kept_widths(job, expert=False)
    norm = job.model.hidden * (widths.parameter + widths.optimizer)
    elsewhere = norm if job.model.prediction_layers else 0
    np.testing.assert_allclose(held.bytes, expected[held.stage], rtol=1e-3, atol=elsewhere)


@given(job=held_jobs())
@examples(40)
def test_ranks_of_a_stage_hold_every_tensor_equally_often(job: TrainingJob) -> None:
    """Shares cover each kind of tensor of a stage, each point as often as any other."""
    held = job_holdings(job)
    for stage, part in np.ndindex(job.pp, 2):
        boxes = held.boxes[held.stage == stage, :, part]
        for kind in range(len(KINDS)):
            if not (held.has[stage] & (held.sizes > 0))[:, kind].any():
                continue
            points = np.random.default_rng(0).random((64, 3))
            inside = (boxes[:, kind, None, :, 0] <= points) & (points < boxes[:, kind, None, :, 1])
            assert len(set(inside.all(axis=2).sum(axis=0).tolist())) == 1


@given(job=held_jobs())
@examples(20)
def test_stages_of_equal_degrees_hold_what_those_of_a_job_do(job: TrainingJob) -> None:
    """Of a job whose replicas share nothing, without context parallelism and experts."""
    if job.model.experts is not None:
        job = replace(job, model=MODELS["llama"])
    settings = Settings(vocab_multiple=1)
    sizes = [2, *([1] * (job.pp - 2)), 8 - job.pp] if job.pp > 1 else [8]
    job = replace(job, settings=settings, layout=split_layout(sizes))
    ends = np.cumsum([0, *sizes]) + 1
    ends[0], ends[-1] = 0, 10
    spans = [Span(a, b, job.tp, job.dp) for a, b in itertools.pairwise(ends.tolist())]
    found, expected = chain_holdings(job, spans), job_holdings(job)
    for name in ("sizes", "has", "stage", "boxes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.widths == expected.widths


def test_parameters_are_those_of_the_model() -> None:
    job = TrainingJob(model=llama(), micro_batch=1, global_batch=8)
    held = job_holdings(job)
    shared = llama().vocab * llama().hidden
    assert held.sizes[:, [kind.words for kind in KINDS]].sum() == 2 * shared
    tied = job_holdings(replace(job, model=gpt(), pp=2, dp=1, layout=None))
    words = [kind.words for kind in KINDS]
    assert tied.has[1, 0, words].all()  # a copy on the last rank
    assert tied.sizes[-1, words] == 0.0


def test_devices_outside_of_all_stages_hold_nothing() -> None:
    job = TrainingJob(model=llama(), micro_batch=1, global_batch=8, dp=2)
    held = job_holdings(job).on([2, 1], 4)
    assert held.stage.tolist() == [NOBODY, 0, 0, NOBODY]
    assert held.bytes[0] == held.bytes[3] == 0.0
    assert held.bytes[1] > 0


def test_padding_of_the_vocabulary_is_held_by_nobody() -> None:
    model = llama(vocab=1000)
    job = TrainingJob(
        model=model, micro_batch=1, global_batch=8, tp=2, settings=Settings(vocab_multiple=512)
    )
    held: Holdings = job_holdings(job)
    (words,) = np.flatnonzero([kind.words for kind in KINDS])
    rows = held.boxes[:, words, WEIGHTS, 1] * model.vocab
    np.testing.assert_allclose(rows, [[0, 512], [512, 1000]])


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_widths_are_those_of_the_precision(precision: str) -> None:
    optimizer = OptimizerSettings(master=0 if precision == "fp32" else 4)
    settings = Settings(precision=precision, optimizer=optimizer)
    job = TrainingJob(model=llama(), micro_batch=1, global_batch=8, settings=settings)
    assert job_holdings(job).widths == {"bf16": (2, 12), "fp32": (4, 8)}[precision]
