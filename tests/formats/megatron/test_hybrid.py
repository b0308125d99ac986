"""Hybrids in Megatron-LM's arguments, there and back."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import (
    arguments_of_job,
    job_of_arguments,
    read_arguments,
)
from ilp_planner.formats.megatron.hybrid import program_of
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, Settings, TrainingJob

LINE = (
    "--hidden-size 256 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 "
    "--micro-batch-size 1 --vocab-size 1000 --disable-bias-linear --normalization RMSNorm "
    "--position-embedding-type none --hidden-dropout 0 --attention-dropout 0 --mamba-num-heads 8 "
    "--spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec "
)


def job_of(line, world=4):
    return job_of_arguments(read_arguments(line.split(), world=world))


def case(name, **changes):
    model = replace(read_model(f"models/{name}.toml").architecture, **changes)
    settings = Settings(
        sequence_parallel=True,
        kernels=Kernels(attention="flash", grouped_experts=model.experts is not None),
    )
    return TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=8,
        tp=2,
        pp=2,
        dp=1,
        layout=split_layout([20, model.layers - 20], prediction_layers=model.prediction_layers),
        settings=settings,
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("nemotron-h-56b", {}),
        ("nemotron3-nano-30b-a3b", {}),
        ("nemotron3-nano-30b-a3b", {"prediction_layers": 2}),
        ("qwen3-next-80b-a3b", {}),
    ],
)
def test_there_and_back(name, changes):
    job = case(name, **changes)
    again = job_of_arguments(arguments_of_job(job))
    assert again.model.layer_kinds == job.model.layer_kinds
    assert (again.model.mamba, again.model.delta) == (job.model.mamba, job.model.delta)
    assert again.model.prediction_layers == job.model.prediction_layers
    assert again.pipeline == job.pipeline


def test_the_pattern_has_the_stages():
    values = arguments_of_job(case("nemotron-h-56b")).values
    main = values["hybrid_layer_pattern"]
    assert [len(stage) for stage in main.split("|")] == [20, 98]
    assert "num_layers" not in values
    assert "pipeline_model_parallel_layout" not in values


def test_its_program_is_another():
    names = ("nemotron-h-56b", "qwen3-next-80b-a3b")
    found = [program_of(arguments_of_job(case(name))) for name in names]
    assert found == ["pretrain_hybrid.py", "pretrain_gpt.py"]


def test_pipes_and_earlier_names_are_read():
    job = job_of(
        f"{LINE} --pipeline-model-parallel-size 2 --global-batch-size 4 "
        "--hybrid-layer-pattern M-M*|-M|*-|M"
    )
    assert [stage.layers for stage in job.stages] == [4, 2, 2, 1]
    assert job.virtual == 2
    assert job_of(f"{LINE} --hybrid-override-pattern MM*-").model.layers == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--hybrid-layer-pattern MX",
         r"--hybrid-layer-pattern: found layers X, expected \* - E G M"),
        ("--hybrid-layer-pattern ME", r"--num-experts: found none, and layers of experts \(E\) in"),
        ("--hybrid-override-pattern M- --num-experts 4",
         "--num-experts: found 4, and none in M- of --hybrid-override-pattern"),
        ("--hybrid-layer-pattern M- --num-layers 3", "found 2 layers, expected --num-layers"),
        ("--hybrid-layer-pattern M-/M", "found prediction by M"),
        ("--num-layers 4 --linear-attention-freq 2", "found none, expected"),
        ("--num-layers 4 --experimental-attention-variant gated_delta_net",
         "--linear-attention-freq: found none"),
    ],
)  # fmt: skip
def test_other_patterns_are_refused(more, message):
    line = LINE.replace("--spec megatron.core.models.hybrid.hybrid_layer_specs", "")
    line = line.replace("hybrid_stack_spec", "")
    with pytest.raises(SpecError, match=message):
        job_of(f"{line} {more}")
