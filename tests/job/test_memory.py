"""Peaks against measurements, and what must hold for any job."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.job.decoder import rank_modules
from ilp_planner.job.memory import (
    MOMENTS,
    kept_bytes,
    memory_parts,
    rank_memory,
    stage_memory,
    stage_of_rank,
)
from ilp_planner.job.overheads import MIB, workspace
from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.gpu_architectures import AMPERE, BLACKWELL, HOPPER
from ilp_planner.specs.pipeline_layout import even_layout, read_layout, split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.benchmarks import memory as study
from tests.examples import for_each
from tests.training_jobs import deepseek, gpt, jobs, llama
from tests.training_jobs import job as a_job

ROOT = Path(__file__).parents[2]
MEASURED = pytest.mark.skipif(not study.DATA.exists(), reason="no ../shared/data/measured")


# ---- measured -----------------------------------------------------------------------------------


@pytest.mark.slow
@MEASURED
def test_analysis_tool_runs():
    """Four peaks of a 7B GPT on H800: each within one per cent."""
    rows = study.tool_rows()
    assert len(rows) == 4
    for row in rows:
        assert abs(row.error) <= 0.01, row


@MEASURED
def test_b200_runs():
    """Dense, with experts, with context parallelism: every rank."""
    rows = study.b200_rows()
    errors = [abs(row.error) for row in rows]
    assert np.mean(errors) <= 0.005
    assert max(errors) <= 0.01


@MEASURED
@for_each("what", ["tp", "pp", "layers", "sequence"])
def test_errors_have_no_trend(what):
    """A term that is wrong, made up for elsewhere, would show as a trend."""
    rows = study.b200_rows()
    by_value = {}
    for row in rows:
        by_value.setdefault(row.dimensions[what], []).append(row.error)
    means = [np.mean(errors) for errors in by_value.values()]
    assert max(means) - min(means) <= 0.004


OFFLOADING = (
    "fine_grained_offloading"  # its activations are mostly those of one layer's backward pass
)
ROUTED_UNEVENLY = "deepseekv3_proxy"  # its peak is that of 2.1 times as many tokens as even ones


def test_megatrons_own_tests():
    """Runs that the model was not developed on: no mean or row may become worse."""
    rows = study.ci_rows(experts=False)
    assert len(rows) >= 20
    assert np.mean([abs(row.error) for row in rows]) <= 0.004
    assert all(abs(row.error) <= 0.021 for row in rows)
    rows = study.ci_rows(experts=True)
    assert len(rows) >= 9
    errors = {row.case: abs(row.error) for row in rows}
    moved = [error for case, error in errors.items() if OFFLOADING in case]
    assert len(moved) == 1
    assert moved[0] <= 0.065
    others = (case for case in errors if OFFLOADING not in case)
    assert all(errors[case] <= 0.03 for case in others if not case.startswith(ROUTED_UNEVENLY))


def test_megatrons_own_tests_between_steps():
    """What is there after a step is states and what libraries hold."""
    rows = study.ci_rest_rows()
    assert len(rows) >= 28
    assert np.mean([abs(row.error) for row in rows]) <= 0.01
    assert all(abs(row.error) <= 0.055 for row in rows)


# ---- any job ------------------------------------------------------------------------------------


def peak(job, rank=0):
    return rank_memory(job, rank).peak


def change(job, **settings):
    return replace(job, settings=replace(job.settings, **settings))


@given(jobs(), st.data())
def test_terms_are_positive_and_named(job, data):
    memory = rank_memory(job, data.draw(st.integers(0, job.pp - 1)))
    assert all(size >= 0 for size in memory.terms.values())
    assert memory.moment in MOMENTS
    assert memory.needed > memory.peak > 0


@given(jobs())
def test_parameters_are_the_modules_own(job):
    parts = memory_parts(job)
    for rank in range(job.pp):
        memory, modules = stage_of_rank(parts, rank), rank_modules(job, rank)
        assert memory.parameters == sum(m.parameters for m in modules)
        assert memory.expert_parameters == sum(m.expert_parameters for m in modules)


@for_each("layout", ["Et*4|t*4|m|L", "Et*2|t*3|t*3|mL", "Et*2|t*2|t*3|tmL"])
def test_the_last_norm_of_what_predicts_is_kept_with_the_last_layer(layout):
    """`tests/runtimes/test_megatron_core.py` asks Megatron where it is."""
    job = a_job(deepseek(prediction_layers=1), layout=read_layout(layout))
    parts = memory_parts(job)
    norm = next(m for r in range(4) for m in rank_modules(job, r) if "final" in m.name)
    holders = []
    for rank in range(job.pp):
        memory, modules = stage_of_rank(parts, rank), rank_modules(job, rank)
        assert memory.parameters == sum(m.parameters for m in modules)
        holders += [rank] * (norm in modules)
        if memory.moment == "a layer" and not job.stages[rank].loss:
            kept = sum(m.activations for m in modules)
            assert memory.terms["activations"] == pytest.approx(kept * memory.in_flight)
    assert holders == [max(rank for rank, stage in enumerate(job.stages) if stage.layers)]


@given(jobs())
def test_activations_are_the_modules_own(job):
    """Without the output part, which is kept for a moment only."""
    assume(job.virtual == 1)
    assume(job.settings.recompute.method != "uniform" or job.settings.recompute.layers == 1)
    experts = job.model.experts
    assume(experts is None or experts.every == 1 or job.settings.recompute.granularity != "full")
    parts = memory_parts(job)
    for rank in range(job.pp):
        memory = stage_of_rank(parts, rank)
        if memory.moment in ("a layer", "the loss"):
            kept = sum(m.activations for m in rank_modules(job, rank) if m.name != "output")
            assert memory.terms["activations"] == pytest.approx(kept * memory.in_flight)


@given(jobs())
def test_distributed_optimizer_never_needs_more_in_training(job):
    def terms(sharding):
        changed = change(job, optimizer=replace(job.settings.optimizer, sharding=sharding))
        found = rank_memory(changed, 0).terms
        return found["parameters"] + found["gradients"] + found["optimizer"]

    sizes = [terms(s) for s in ("none", "optimizer", "gradients", "parameters")]
    assert sizes == sorted(sizes, reverse=True)


@given(jobs())
def test_more_samples_need_more(job):
    more = replace(job, micro_batch=job.micro_batch + 1)
    more = replace(more, global_batch=job.global_batch // job.micro_batch * more.micro_batch)
    assert more.micro_batches == job.micro_batches
    assert all(peak(more, r) >= peak(job, r) for r in range(job.pp))


@given(jobs())
def test_tensor_parallelism_never_adds_parameters(job):
    assume(job.model.experts is None)
    wide = replace(job, tp=2 * job.tp)
    # Padding of the vocabulary may add words: compare without.
    wide, narrow = (change(j, vocab_multiple=1) for j in (wide, job))
    slack = job.model.hidden * 2 * wide.tp
    for rank in range(job.pp):
        assert rank_memory(wide, rank).parameters <= rank_memory(narrow, rank).parameters + slack


@given(jobs())
def test_full_recomputation_keeps_least(job):
    def activations(recompute):
        parts = memory_parts(change(job, recompute=recompute))
        kinds = job.model.expert_layers
        return kept_bytes(parts, layers=3 * (False in kinds), expert_layers=2 * (True in kinds))

    nothing = activations(Recompute())
    one_by_one = activations(Recompute(granularity="full", method="uniform", layers=1))
    in_twos = activations(Recompute(granularity="full", method="uniform", layers=2))
    block = activations(Recompute(granularity="full", method="block", layers=1))
    assert in_twos <= one_by_one <= block <= nothing


@given(jobs(), st.data())
def test_arrays_are_as_numbers(job, data):
    """A planner asks about all stages at once, `rank_memory` about one: same answer."""
    parts = memory_parts(job)
    count = data.draw(st.integers(1, 6))

    def numbers(low, high):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    kinds = set(job.model.expert_layers)
    columns = {
        "layers": numbers(0, 9 if False in kinds else 0),
        "expert_layers": numbers(0, 9 if True in kinds else 0),
        "embedding": [bool(x) for x in numbers(0, 1)],
        "output": [bool(x) for x in numbers(0, 1)],
        "in_flight": numbers(1, 5),
    }
    together = stage_memory(parts, **{k: np.array(v) for k, v in columns.items()})
    for i in range(count):
        alone = stage_memory(parts, **{k: v[i] for k, v in columns.items()})
        assert float(alone.peak) == pytest.approx(float(together.peak[i]), rel=1e-12)
        assert int(alone.moment) == int(np.broadcast_to(together.moment, count)[i])
        for name, sizes in together.terms.items():
            assert np.broadcast_to(sizes, count)[i] == pytest.approx(float(alone.terms[name]))


@given(jobs())
def test_stages_are_ranks(job):
    assume(job.virtual == 1)
    parts = memory_parts(job)
    for rank in range(job.pp):
        memory = stage_of_rank(parts, rank)
        (number,) = job.stages_of(rank)
        stage, start = job.stages[number], job.pipeline.starts[number]
        experts = sum(job.model.expert_layers[start : start + stage.layers])
        same = stage_memory(
            parts,
            layers=stage.layers - experts,
            expert_layers=experts,
            embedding=stage.embedding,
            output=stage.loss,
            in_flight=memory.in_flight,
        )
        assert float(same.peak) == pytest.approx(memory.peak, rel=1e-12)


# ---- single facts -------------------------------------------------------------------------------


def test_recomputation_of_attention_pays_where_scores_are_kept():
    job = a_job(gpt(sequence=4096), pp=1, dp=1, settings=Settings(kernels=study.UNFUSED))
    selective = change(job, recompute=Recompute(granularity="selective"))
    assert peak(selective) < 0.6 * peak(job)
    parts = memory_parts(selective)
    # One layer's scores come back for a moment.
    scores = 5 * 2 * 8 * 4096 * 4096
    assert parts.parts["layer"].moment > scores - parts.parts["layer"].kept


def test_a_layer_computed_again_is_there_once():
    job = a_job(pp=1, dp=1)
    kept = memory_parts(job).parts["layer"].kept
    full = change(job, recompute=Recompute(granularity="full", method="uniform", layers=1))
    memory = rank_memory(full, 0)
    parts = memory_parts(full)
    assert memory.terms["activations"] == pytest.approx(
        8 * parts.checkpoint + parts.parts["embedding"].kept
    )
    again = parts.parts["layer"].again
    assert kept < again < 2 * kept + parts.parts["layer"].moment
    chunks = change(job, recompute=Recompute(granularity="full", method="uniform", layers=4))
    assert memory_parts(chunks).parts["layer"].chunk == kept


def test_distributed_checkpoints_are_shares():
    recompute = Recompute(granularity="full", method="uniform", layers=1)
    job = a_job(settings=Settings(recompute=recompute))
    shared = change(job, recompute=replace(recompute, distribute=True))
    assert memory_parts(shared).checkpoint == memory_parts(job).checkpoint / 2


def test_fsdp_gathers_a_layer_at_a_time():
    job = a_job(pp=1, dp=8)
    sharded = change(job, optimizer=OptimizerSettings(sharding="parameters"))
    parts = memory_parts(sharded).parts
    always = parts["embedding"].parameters + parts["output"].parameters
    gathered = rank_memory(sharded, 0).terms["gathered"]
    assert gathered == 2 * (2 * parts["layer"].parameters + always)
    assert rank_memory(job, 0).terms["gathered"] == 0
    only_gradients = change(job, optimizer=OptimizerSettings(sharding="gradients"))
    assert rank_memory(only_gradients, 0).terms["gathered"] == 0


def kernels_of(job, **kernels):
    return change(job, kernels=replace(job.settings.kernels, **kernels))


def test_the_loaders_mask():
    """A byte for every pair of tokens: beside the loss, or kept by what is computed again."""
    job = a_job(pp=1)
    mask = 2 * 512 * 512
    assert peak(kernels_of(job, loader_mask=True)) - peak(job) == mask
    again = change(a_job(), recompute=Recompute(granularity="full", method="uniform", layers=1))
    plain, masked = (memory_parts(kernels_of(again, loader_mask=on)).parts for on in (False, True))
    assert masked["embedding"].kept - plain["embedding"].kept == mask
    assert masked["layer"].kept == plain["layer"].kept
    cut = a_job(llama(sequence=65536), pp=1, settings=Settings(cp=4))
    arrives = memory_parts(kernels_of(cut, loader_mask=True)).parts["embedding"].moment
    assert arrives == 2 * 65536**2 * (1 + 1 / 4)


def test_a_compiled_loss_writes_over_nothing():
    """Megatron's fused loss has the logits in fp32 beside the softmax; so does no other."""
    job = a_job(pp=1)
    fused = kernels_of(job, fused_loss=True, loss_kernel="native")
    logits = 2 * 512 * 1024 // 2
    assert peak(fused) - peak(job) == 4 * logits


def test_bit_for_bit():
    """Bigger workspaces, and index_add_ keeps what the experts give."""
    job = a_job(deepseek(), tp=1, pp=1, dp=4, settings=Settings(ep=4))
    plain, same = (memory_parts(kernels_of(job, deterministic=on)) for on in (False, True))
    tokens = 2 * 512 * 2
    kept = [parts.parts["expert layer"].kept for parts in (plain, same)]
    assert kept[1] - kept[0] == tokens * 256 * 2
    fused = memory_parts(kernels_of(job, deterministic=True, fused_permute=True))
    assert fused.parts["expert layer"].kept < kept[1]
    older = replace(job, gpu_architecture=AMPERE)
    before = [memory_parts(kernels_of(older, deterministic=on)) for on in (False, True)]
    assert before[1].handles[0] - before[0].handles[0] == 2 * (32 - 8.125) * MIB


def test_which_flash_attention():
    """Before Hopper samples come first, and the output is copied; with one sample it need not."""
    latent = a_job(deepseek(), tp=1, pp=1, dp=1)
    for job, copied in ((a_job(pp=1), 1), (a_job(pp=1, micro_batch=1), 0), (latent, 0)):
        jobs = (replace(job, gpu_architecture=gpu) for gpu in (AMPERE, HOPPER))
        before, after = (memory_parts(one).parts["layer"].kept for one in jobs)
        assert before - after == copied * 512 * 2 * 256 // 2 * 2
        same = kernels_of(job, deterministic=True, fused_permute=True)
        blackwell = memory_parts(replace(same, gpu_architecture=BLACKWELL)).parts["layer"].kept
        assert blackwell == before


def test_queries_stay_in_the_products_output_around_a_ring():
    job = a_job(gpt(), pp=1, settings=Settings(cp=2, cp_comm="p2p"))
    moved = a_job(gpt(positions="rope"), pp=1, settings=Settings(cp=2, cp_comm="p2p"))
    kept = [memory_parts(j).parts["layer"].kept for j in (job, moved)]
    assert kept[0] - kept[1] == 2 * (256 * 2 * 256 // 2 * 2)


def test_whose_kernel_the_loss_is():
    """Megatron's own fused loss copies the logits to fp32 as the unfused one does."""

    def logits(**kernels):
        return memory_parts(change(a_job(pp=1), kernels=Kernels(**kernels))).parts["output"].kept

    assert logits(fused_loss=True, loss_kernel="native") == logits()
    assert logits(fused_loss=True, loss_kernel="te") < logits()


def test_a_long_ring_holds_every_step():
    """Keys and values go around cp ranks; all-to-all needs a second copy of the output instead."""
    model = llama(sequence=8192, ffn=64)
    settings = {"cp": 16, "sequence_parallel": True}
    ring = memory_parts(a_job(model, pp=1, settings=Settings(cp_comm="p2p", **settings)))
    sent = memory_parts(a_job(model, pp=1, settings=Settings(cp_comm="a2a", **settings)))
    output = 8192 // 16 * 2 * 256 // 2 * 2
    assert sent.parts["layer"].kept - ring.parts["layer"].kept == output
    assert ring.parts["layer"].moment > sent.parts["layer"].moment


def test_the_start_can_be_the_peak():
    """With states shared among many ranks, old and new parameters and gradients weigh more."""
    model = llama(hidden=1024, ffn=4096, sequence=64, heads=16, kv_heads=16)
    job = TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=64,
        dp=64,
        settings=Settings(
            kernels=Kernels(accumulation_fusion=False),
            optimizer=OptimizerSettings(sharding="optimizer"),
        ),
    )
    memory = rank_memory(job, 0)
    assert memory.moment == "the start"
    assert memory.peak == memory.parameters * (2 + 2 + 4)


def test_capacity_and_imbalance():
    """Padded, experts take what they may; without a capacity, what is assumed to come."""

    def kept(**kernels):
        job = a_job(
            deepseek(), tp=1, pp=1, dp=4, settings=Settings(ep=4, kernels=Kernels(**kernels))
        )
        return memory_parts(job).parts["expert layer"].kept

    even = kept()
    assert kept(capacity=1.0, pad_to_capacity=True) == even
    assert kept(capacity=0.5) < even == kept(capacity=2.0)
    assert kept(capacity=2.0, pad_to_capacity=True) > even
    assert kept(imbalance=1.5) > even


@for_each(("gpu", "engine", "own"), [(AMPERE, 4, 16.25), (HOPPER, 32, 64), (BLACKWELL, 32, 16.25)])
def test_workspace_depends_on_the_device(gpu, engine, own):
    """PyTorch's own is only where PyTorch multiplies: not between the ends of a dense model."""
    job = a_job(pp=4)
    assert workspace(replace(job, gpu_architecture=gpu)) == engine * MIB
    first, last = (rank_memory(replace(job, gpu_architecture=gpu), rank).terms for rank in (0, 3))
    assert first["workspace"] == engine * MIB
    assert last["workspace"] == (engine + own) * MIB
    local = change(job, kernels=study.UNFUSED)
    scores = 2 * 8 * 512 * 512 * 2
    assert workspace(replace(local, gpu_architecture=gpu)) == own * MIB + scores


@pytest.mark.parametrize("virtual", [1, 2])
def test_prediction_layers_weigh_on_the_last_stage(virtual):
    model = deepseek(prediction_layers=1)
    layout = even_layout(8, 4, virtual, prediction_layers=1)
    job = a_job(model, layout=layout)
    without = a_job(deepseek(), layout=even_layout(8, 4, virtual))
    assert peak(job, 3) > peak(without, 3)
    for rank in range(3):
        assert peak(job, rank) == peak(without, rank)


def test_uneven_stages():
    model = Decoder(layers=8, hidden=256, heads=8, sequence=512, vocab=1000)
    job = TrainingJob(
        model=model, micro_batch=2, global_batch=32, pp=4, layout=split_layout([1, 2, 2, 3])
    )
    assert rank_memory(job, 0).terms["parameters"] < rank_memory(job, 3).terms["parameters"]
    assert [rank_memory(job, r).in_flight for r in range(4)] == [4, 3, 2, 1]


@for_each("model", [llama(), gpt(), llama(experts=Experts(count=4, top_k=2, ffn=96))])
@for_each(("pp", "virtual"), [(1, 1), (2, 1), (2, 2), (2, 4)])
def test_all_layers_again_is_the_same_by_blocks(model, pp, virtual):
    """The first n layers of every virtual stage, not of all that a rank has."""
    case = a_job(model, pp=pp, layout=even_layout(8, pp, virtual))
    for rank in range(pp):
        found = []
        for method, layers in (("uniform", 1), ("block", 8 // pp // virtual)):
            again = Recompute(granularity="full", method=method, layers=layers)
            settings = replace(case.settings, recompute=again)
            found.append(rank_memory(replace(case, settings=settings), rank))
        assert found[0] == found[1]
