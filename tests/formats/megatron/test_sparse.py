"""Attention to keys that an indexer chooses, in Megatron-LM's arguments and in other systems'."""

from dataclasses import replace
from functools import partial

import pytest

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.formats.megatron.arguments import (
    arguments_of_job,
    job_of_arguments,
    read_arguments,
)
from ilp_planner.formats.megatron.launch import check_release, runnable_arguments
from ilp_planner.formats.megatron.notes import unmodelled
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.nemo import export_nemo
from ilp_planner.formats.versions import CORES
from ilp_planner.spaces.runtimes.deepspeed import check_deepspeed
from ilp_planner.spaces.runtimes.torchtitan_models import titan_model
from ilp_planner.spaces.training.enumerate.unfit import misfits
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, Settings, TrainingJob
from tests.training_jobs import without_flag

LINE = (
    "--num-layers 4 --hidden-size 1024 --num-attention-heads 32 --seq-length 1024 --vocab-size 999 "
    "--max-position-embeddings 4096 --micro-batch-size 1 --disable-bias-linear --swiglu --bf16 "
    "--normalization RMSNorm --position-embedding-type rope --hidden-dropout 0 --qk-layernorm "
    "--attention-dropout 0 --multi-latent-attention --q-lora-rank 256 --kv-lora-rank 512 "
    "--qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --no-rope-fusion "
    "--experimental-attention-variant dsa --dsa-indexer-n-heads 16 --dsa-indexer-head-dim 128 "
    "--dsa-indexer-topk 512 --dsa-kernel-backend tilelang "
)


def read(line=LINE, world=4):
    return read_arguments(line.split(), world=world)


def case(name, **changes):
    model = read_model(f"models/{name}.toml").architecture
    settings = Settings(
        kernels=Kernels(grouped_experts=True), ep=8, cp=2, cp_comm="all_gather", **changes
    )
    return TrainingJob(model=model, micro_batch=1, global_batch=16, dp=8, settings=settings)


@pytest.mark.parametrize("name", ["glm5", "deepseek-v3.2"])
@pytest.mark.parametrize("loss", ["sparse", "none"])
def test_there_and_back(name, loss):
    job = case(name)
    model = replace(job.model, sparse=replace(job.model.sparse, loss=loss))
    job = replace(job, model=model)
    args = arguments_of_job(job)
    again = job_of_arguments(args)
    assert again.model == model
    assert again.settings.cp_comm == "all_gather"
    assert not check_arguments(args)
    assert args.values["experimental_attention_variant"] == "dsa"
    assert args.values["dsa_kernel_backend"] == "tilelang"
    assert ("dsa_indexer_use_sparse_loss" in args.values) is (loss == "sparse")


def test_layers_that_share_keys_there_and_back():
    """In stages that begin with a layer that has an indexer, and not in others."""
    job = replace(case("glm5.2"), pp=2, layout=split_layout([38, 40], prediction_layers=1))
    again = job_of_arguments(arguments_of_job(job))
    assert (again.model, again.pipeline) == (job.model, job.pipeline)
    other = replace(job, layout=split_layout([39, 39], prediction_layers=1))
    with pytest.raises(SpecError, match="found a stage that begins with layer 40, expected stage"):
        job_of_arguments(arguments_of_job(other))


@pytest.mark.parametrize("core", CORES)
def test_releases_before_its_kernels_are_refused(core):
    job = case("glm5")
    if core == "0.19.0":
        check_release(job, core)
        return
    with pytest.raises(PlanError, match=r"--dsa-kernel-backend, which 0\.19\.0 has"):
        check_release(job, core)


def test_an_indexer_learns_where_its_loss_has_a_weight():
    assert job_of_arguments(read()).model.sparse.loss == "none"
    learns = f"{LINE} --dsa-indexer-loss-coeff 0.01 --dsa-indexer-use-sparse-loss"
    assert job_of_arguments(read(learns)).model.sparse.loss == "sparse"


without = partial(without_flag, LINE)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (without("--dsa-indexer-n-heads"), "--dsa-indexer-n-heads: found none, expected a whole"),
        (without("--dsa-indexer-topk"), "--dsa-indexer-topk: found none, expected a whole number"),
        (without("--dsa-kernel-backend"), "--dsa-kernel-backend: found none, whose copies of eve"),
        (f"{LINE} --dsa-indexer-loss-coeff 0.01", "--dsa-indexer-loss-coeff: found 0.01 over all"),
        (without("--multi-latent-attention", 0), "no --multi-latent-attention"),
        (without("--disable-bias-linear", 0), "dsa with biases"),
        (without("--no-rope-fusion", 0), "with fused rotary positions"),
        (f"{LINE} --tensor-model-parallel-size 2", "2 with dsa, expected --sequence-parallel"),
        (f"{LINE} --context-parallel-size 2", "p2p with dsa, expected all_gather"),
        (without("--q-lora-rank"), "latent.query_rank must be given with an indexer"),
        (f"{LINE} --linear-attention-freq 2", "found dsa, expected gated_delta_net"),
    ],
)
def test_other_lines_are_refused(line, message):
    with pytest.raises(SpecError, match=message):
        job_of_arguments(read(line))


def test_other_kernels_are_counted_as_those_of_tilelang():
    args = read(LINE.replace("tilelang", "cudnn"))
    assert "--dsa-kernel-backend: not counted: its kernels; counted as TileLang's" in unmodelled(
        args
    )
    assert not any("dsa" in note for note in unmodelled(read()))


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"latent.key_value_rank": 256}, "latent.key_value_rank"),
        ({"latent.rotary": 32}, "latent.rotary"),
        ({"sparse.top_k": 100}, "sparse.top_k"),
        ({"sparse.heads": 12}, "sparse.heads"),
        ({"sparse.heads": 72}, "sparse.heads"),
    ],
)
def test_sizes_without_kernels_are_refused(changes, key):
    model = read_model("models/glm5.toml").architecture
    assert not list(misfits(model))
    for name, value in changes.items():
        part, field = name.split(".")
        model = replace(model, **{part: replace(getattr(model, part), **{field: value})})
    assert [found for found, _, _ in misfits(model)] == [key]


def test_systems_without_it_say_so():
    settings = Settings(ep=8, kernels=Kernels(grouped_experts=True))
    job = replace(case("glm5"), settings=settings)
    job = replace(job, model=replace(job.model, prediction_layers=0))
    runnable_arguments(job)
    for check in (check_deepspeed, titan_model, lambda job: export_nemo(job, "run")):
        with pytest.raises(PlanError, match=r"model\.sparse: found 2048 keys that an indexer ch"):
            check(job)
