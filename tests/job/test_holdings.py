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
    STATES,
    WEIGHTS,
    Holdings,
    Span,
    chain_holdings,
    job_holdings,
)
from ilp_planner.job.memory import memory_parts, rank_memory, stage_of_rank
from ilp_planner.settings.rules import same_pipelines
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import ORDERS, SHARDINGS, OptimizerSettings, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning
from tests.examples import examples
from tests.training_jobs import TUNINGS, deepseek, gpt, llama

MODELS = {
    "llama": llama(vocab=1024),
    "gpt": gpt(vocab=1024),
    "experts": llama(vocab=1024, experts=Experts(count=8, top_k=2, ffn=96, shared_ffn=64)),
    "latent": replace(deepseek(vocab=1024), layers=8),
    "predicts": replace(deepseek(vocab=1024), prediction_layers=1),
}
OPTIMIZERS = {
    "mixed precision": OptimizerSettings(),
    "plain": OptimizerSettings(moments=0),
    "8 bits": OptimizerSettings(moments=2, moment_format="8bit"),
    "Muon": OptimizerSettings(name="muon", moments=4),
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
    # Blocks of 8 bits are those of bitsandbytes, whose systems have no tensor parallelism.
    names = sorted(OPTIMIZERS.keys() - ({"8 bits"} if tp > 1 else {}))
    optimizer = replace(
        OPTIMIZERS[draw(st.sampled_from(names))],
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
        tuning=TUNINGS[draw(st.sampled_from(sorted(TUNINGS)))],
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


def kept_in_memory(job: TrainingJob) -> list[float]:
    """Return the bytes of parameters and of the optimizer that memory has for each pipeline rank,
    from one iteration to the next: those that `fully_shard` has gathered are gone by then."""
    optimizer = job.settings.optimizer
    if optimizer.from_master:
        optimizer = replace(optimizer, sharding=SHARDINGS[-1])
    # So many samples that activations make the peak: at the start there are no states yet.
    batch = {"micro_batch": 64, "global_batch": 64 * job.dp}
    job = replace(job, settings=replace(job.settings, optimizer=optimizer), **batch)
    parts = memory_parts(job)
    each = [stage_of_rank(parts, rank).terms for rank in range(job.pp)]
    return [terms["parameters"] + terms["optimizer"] for terms in each]


def check_memory(job: TrainingJob) -> None:
    """See that ranks hold the parameters and states of their memory. The norm behind the last layer
    is held with the output, also where Megatron has it a rank earlier: of models that predict
    further tokens. Of norms a shard has its own count of blocks of 8 bits."""
    held, expected = job_holdings(job), np.array(kept_in_memory(job))
    norm = 16 * job.model.hidden
    elsewhere = norm if job.model.prediction_layers else 0
    np.testing.assert_allclose(held.bytes, expected[held.stage], rtol=2e-3, atol=elsewhere)


@given(job=held_jobs())
@examples(60)
def test_ranks_hold_what_their_memory_holds(job: TrainingJob) -> None:
    check_memory(job)


@pytest.mark.few(7)
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("tuned", TUNINGS)
def test_ranks_hold_what_is_trained_with_states_and_the_rest_without(
    tuned: str, sharding: str
) -> None:
    """Of every model, without tensor parallelism, as adapters have it."""
    for name, model in MODELS.items():
        for by_fsdp in {False, sharding in SHARDINGS[2:]}:
            optimizer = OptimizerSettings(sharding=sharding, from_master=by_fsdp)
            settings = Settings(vocab_multiple=1, optimizer=optimizer, tuning=TUNINGS[tuned])
            job = TrainingJob(
                model=model, micro_batch=1, global_batch=8, dp=4, pp=2, settings=settings
            )
            check_memory(job)
            states = job_holdings(job).sizes[..., STATES].sum()
            whole = replace(job, settings=replace(settings, tuning=Tuning()))
            less = states / job_holdings(whole).sizes[..., STATES].sum()
            assert less == 1 if not settings.tuning else less < 1, name
            assert less < 0.2 or not settings.tuning.rank, name


@given(job=held_jobs())
@examples(40)
def test_ranks_of_a_stage_hold_every_tensor_equally_often(job: TrainingJob) -> None:
    """Shares cover each kind of tensor of a stage, each point as often as any other."""
    held = job_holdings(job)
    for stage, part in np.ndindex(job.pp, 2):
        boxes = held.boxes[held.stage == stage, :, part]
        for kind in range(len(KINDS)):
            if not (held.has[stage, :, kind] & (held.sizes[:, kind, part] > 0)).any():
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


def test_parameters_are_those_of_the_model() -> None:
    job = TrainingJob(model=llama(), micro_batch=1, global_batch=8)
    held = job_holdings(job)
    shared = llama().vocab * llama().hidden
    words = held.sizes[:, [kind.words for kind in KINDS]]
    assert words.sum(axis=(0, 1)).tolist() == [2 * 2 * shared, 12 * 2 * shared]
    tied = job_holdings(replace(job, model=gpt(), pp=2, dp=1, layout=None))
    words = [kind.words for kind in KINDS]
    assert tied.has[1, 0, words].all()  # a copy on the last rank
    assert not tied.sizes[-1, words].any()


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
    model = llama(vocab=1024)
    job = TrainingJob(model=model, micro_batch=1, global_batch=8, settings=settings)
    weights, states = {"bf16": (2, 12), "fp32": (4, 8)}[precision]
    held = job_holdings(job).sizes
    np.testing.assert_allclose(held[..., STATES], held[..., WEIGHTS] * states / weights)
    assert held[..., WEIGHTS].sum() == weights * rank_memory(job, 0).parameters
