"""Attention to pooled keys and streams, in Megatron-LM's arguments and in other systems'."""

from dataclasses import replace
from functools import partial

import pytest

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.formats.exported import Expected
from ilp_planner.formats.megatron.arguments import (
    arguments_of_job,
    job_of_arguments,
    read_arguments,
)
from ilp_planner.formats.megatron.launch import check_release
from ilp_planner.formats.megatron.notes import unmodelled
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.nemo import export_nemo
from ilp_planner.formats.swift import export_swift
from ilp_planner.formats.versions import CORES
from ilp_planner.spaces.runtimes.deepspeed import check_deepspeed
from ilp_planner.spaces.runtimes.torchtitan_models import titan_model
from ilp_planner.spaces.training.enumerate.unfit import misfits
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, Recompute, Settings, TrainingJob
from tests.training_jobs import without_flag

NAMES = ("deepseek-v4-flash", "deepseek-v4-pro")
LINE = (
    "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --vocab-size 999 "
    "--max-position-embeddings 4096 --micro-batch-size 1 --disable-bias-linear --swiglu --bf16 "
    "--normalization RMSNorm --position-embedding-type rope --hidden-dropout 0 --qk-layernorm "
    "--attention-dropout 0 --multi-latent-attention --q-lora-rank 256 --qk-head-dim 192 "
    "--qk-pos-emb-head-dim 64 --v-head-dim 256 --kv-channels 256 --num-experts 8 "
    "--moe-router-topk 2 --moe-ffn-hidden-size 512 --moe-n-hash-layers 2 "
    "--untie-embeddings-and-output-weights --moe-grouped-gemm "
    "--experimental-attention-variant dsv4_hybrid --csa-compress-ratios [0,4,128,4] "
    "--csa-window-size 64 --csa-compress-rotary-base 160000 --output-projection-groups 4 "
    "--output-projection-lora-rank 128 --dsa-indexer-n-heads 16 --dsa-indexer-head-dim 64 "
    "--dsa-indexer-topk 128 --dsa-kernel-backend cudnn --dsa-indexer-loss-coeff 0.01 "
    "--dsa-indexer-use-sparse-loss --enable-hyper-connections --num-residual-streams 2 "
)


AGAIN = "--recompute-granularity selective --recompute-modules mhc"


def read(line=LINE, world=4):
    return read_arguments(line.split(), world=world)


def case(name, **changes):
    model = read_model(f"models/{name}.toml").architecture
    settings = Settings(kernels=Kernels(grouped_experts=True), ep=8, etp=1, **changes)
    return TrainingJob(model=model, micro_batch=1, global_batch=16, dp=8, settings=settings)


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name):
    job = case(name)
    args = arguments_of_job(job)
    assert job_of_arguments(args).model == job.model
    assert not check_arguments(args)
    assert args.values["experimental_attention_variant"] == "dsv4_hybrid"
    assert len(args.values["csa_compress_ratios"]) == job.model.layers + 1


def test_a_line_says_sizes():
    model = job_of_arguments(read()).model
    assert model.pattern == "WE CE HE CE"
    assert (model.streams, model.head, model.kv_heads, model.experts.hashed) == (2, 256, 1, 2)
    assert (model.compressed.window, model.compressed.top_k) == (64, 128)
    assert (model.rotary.base, model.rotary.windowed_base) == (160000.0, 10000.0)
    one = job_of_arguments(read(LINE.replace("--enable-hyper-connections", ""))).model
    assert one.streams == 1


def test_layers_that_a_table_of_words_routes_are_with_the_embedding():
    """In stages that begin after them, and not in others."""
    job = replace(case(NAMES[0]), pp=2, layout=split_layout([3, 40], prediction_layers=1))
    again = job_of_arguments(arguments_of_job(job))
    assert (again.model, again.pipeline) == (job.model, job.pipeline)
    other = replace(job, layout=split_layout([2, 41], prediction_layers=1))
    with pytest.raises(SpecError, match="a stage that begins with layer 3, expected the first 3"):
        job_of_arguments(arguments_of_job(other))


@pytest.mark.parametrize("core", CORES)
def test_no_release_has_them(core):
    with pytest.raises(PlanError, match="which the main branch after"):
        check_release(case(NAMES[0]), core)


without = partial(without_flag, LINE)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (without("--csa-compress-ratios"), "--csa-compress-ratios: found none, expected 4 entries"),
        (LINE.replace("[0,4,128,4]", "[0,4]"), "--csa-compress-ratios: found 2, expected 4 entri"),
        (LINE.replace("[0,4,128,4]", "[0,4,8,4]"), "found 8, expected 0, 4, 128"),
        (without("--dsa-kernel-backend"), "--dsa-kernel-backend: found none, whose copies"),
        (without("--dsa-indexer-use-sparse-loss", 0), "over all pooled keys, expected a loss and"),
        (without("--dsa-indexer-loss-coeff"), "expected a loss and --dsa-indexer-use-sparse-loss"),
        (f"{LINE} --tensor-model-parallel-size 2 --sequence-parallel", "found tp 2, expected tp 1"),
        (f"{LINE} --context-parallel-size 2", "found cp 2, expected cp 1"),
        (
            f"{LINE} --recompute-granularity selective --recompute-modules core_attn",
            "recomputation of core_attn, expected of other parts",
        ),
        (
            without("--experimental-attention-variant"),
            "found compressed sparse attention, expected a",
        ),
    ],
)
def test_other_lines_are_refused(line, message):
    with pytest.raises(SpecError, match=message):
        job_of_arguments(read(line))


def test_sizes_that_the_branch_has_not_are_misfits():
    model = case(NAMES[0]).model
    assert not [*misfits(model)]
    other = replace(model, compressed=replace(model.compressed, near=8, far=64))
    assert [key for key, _, _ in misfits(other)] == ["compressed.near", "compressed.far"]


@pytest.mark.parametrize("name", NAMES)
def test_other_systems_refuse_them_by_name(name):
    job = case(name)
    for export in (export_nemo, export_swift):
        with pytest.raises(PlanError, match=r"model\.compressed: found a window of 128 tokens"):
            export(job, "run", Expected(model=name))
    with pytest.raises(PlanError, match="scores of every pair of tokens are not modelled"):
        check_deepspeed(replace(job, settings=replace(job.settings, ep=1)))
    with pytest.raises(PlanError, match=r"model\.\w+: found"):
        titan_model(job)


def test_mixtures_are_computed_again_layer_by_layer():
    """The norms that read them, too, whether a line names them or not."""
    job = case(NAMES[0], recompute=Recompute(granularity="selective", modules=("mhc",)))
    args = arguments_of_job(job)
    assert args.values["mhc_recompute_layer_num"] == 1
    assert not check_arguments(args)
    for more in ("", " layernorm"):
        found = job_of_arguments(read(f"{LINE} --use-fused-mhc {AGAIN}{more}"))
        assert found.settings.recompute.modules == ("mhc",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{LINE} {AGAIN} mlp", "found mhc and mlp, expected one of them"),
        (
            f"{LINE.replace('--enable-hyper-connections', '')} {AGAIN}",
            "found mhc, expected --enable-hyper-connections with it",
        ),
    ],
)
def test_what_mixtures_are_not_computed_again_with(line, message):
    found = [*map(str, check_arguments(read(line)))]
    assert any(message in one for one in found), found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{LINE} --use-fused-mhc", ()),
        (LINE, ("mixtures of streams by separate kernels; counted as fused",)),
        (
            f"{LINE} --use-fused-mhc {AGAIN}",
            ("all of a virtual stage's layers together; counted layer by layer",),
        ),
        (f"{LINE} --use-fused-mhc {AGAIN} --mhc-recompute-layer-num 2", ("of 2 layers together",)),
        (f"{LINE} --use-fused-mhc {AGAIN} --mhc-recompute-layer-num 1", ()),
    ],
)
def test_mixtures_that_are_counted_otherwise_are_said(line, said):
    notes = [note for note in unmodelled(read(line)) if "streams" in note or "kernel" in note]
    assert len(notes) == len(said)
    assert all(text in note for text, note in zip(said, notes, strict=True))


def test_names_of_the_branch_dev_are_read():
    """And said as those of the main branch."""
    own = LINE.replace("--output-projection-groups", "--o-groups")
    own = own.replace("--output-projection-lora-rank", "--o-lora-rank")
    assert own.count("--o-") == 2
    found = read_arguments(own.split(), world=4, strict=False)
    assert job_of_arguments(found).model == job_of_arguments(read()).model
    assert any("--o-groups" in one for one in found.remarks)
