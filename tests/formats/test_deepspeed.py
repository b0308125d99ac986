"""DeepSpeed's JSON and boundaries: what they say, and what is refused with the nearest."""

import ast
import json
from dataclasses import replace

import pytest
from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.deepspeed import export_deepspeed
from ilp_planner.specs.pipeline_layout import read_layout, split_layout, write_layout
from ilp_planner.specs.training import Kernels, Offload, OptimizerSettings, Recompute, TrainingJob
from tests.examples import examples, for_each
from tests.formats.titan_cases import check_refusal
from tests.training_jobs import deepseek, gpt, job, jobs, llama
from tests.training_jobs import settings as usual

FULL = Recompute(granularity="full", method="uniform", layers=1)
WHOLE = usual(sequence_parallel=False)
ALONE = {"pp": 1, "layout": None}


def config(case: TrainingJob) -> dict:
    return json.loads(export_deepspeed(case, "run").files[".json"])


def boundaries(case: TrainingJob) -> dict:
    return json.loads(export_deepspeed(case, "run").files["_boundaries.json"])


def with_optimizer(sharding: str, **changes: object) -> TrainingJob:
    optimizer = OptimizerSettings(sharding=sharding, **changes)
    return job(tp=1, settings=usual(optimizer=optimizer), **ALONE)


def test_batches_multiply_to_the_global_batch() -> None:
    found = config(job())
    assert found["train_batch_size"] == 64
    assert found["train_micro_batch_size_per_gpu"] == 2
    assert found["gradient_accumulation_steps"] == 16


def test_boundaries_say_which_layers_a_stage_has() -> None:
    found = boundaries(job(gpt()))
    assert found["parts"] == [0, 2, 4, 7, 11]
    assert found["stages"][2] == {
        "modules": ["layer.3", "layer.4", "layer.5"],
        "first_layer": 3,
        "layers": 3,
    }
    assert found["topology"] == {"pipe": 4, "data": 2, "model": 2}
    assert found["tied"] == ["embedding", "output"]


def test_without_a_pipeline_there_are_no_boundaries() -> None:
    exported = export_deepspeed(job(settings=WHOLE, **ALONE), "run")
    assert set(exported.files) == {".json"}
    assert json.loads(exported.files[".json"])["tensor_parallel"] == {"autotp_size": 2}


def test_the_pipelines_class_is_python() -> None:
    text = export_deepspeed(job(), "run").files["_pipeline.py"]
    names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    assert names == ["PlannedPipeline"]


@for_each(
    ("sharding", "stage"), [("none", 0), ("optimizer", 1), ("gradients", 2), ("parameters", 3)]
)
def test_sharding_is_a_zero_stage(sharding: str, stage: int) -> None:
    assert config(with_optimizer(sharding))["zero_optimization"]["stage"] == stage


def test_offload_is_the_optimizers() -> None:
    half = config(with_optimizer("parameters", offload=0.5))["zero_optimization"]
    assert half["offload_optimizer"] == {"device": "cpu", "ratio": 0.5}
    whole = config(with_optimizer("optimizer", offload=1.0))["zero_optimization"]
    assert whole["offload_optimizer"] == {"device": "cpu"}
    notes = export_deepspeed(with_optimizer("optimizer", offload=1.0, overlap_offload=True), "run")
    assert any("overlap_offload: true; not written" in note for note in notes.notes)


def test_recomputation_is_an_interval() -> None:
    assert boundaries(job())["activation_checkpoint_interval"] == 0
    full = job(settings=usual(recompute=FULL))
    assert boundaries(full)["activation_checkpoint_interval"] == 1
    assert config(full)["activation_checkpointing"] == {"partition_activations": False}
    divided = job(settings=usual(recompute=replace(FULL, distribute=True)))
    assert config(divided)["activation_checkpointing"] == {"partition_activations": True}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_precision(precision: str) -> None:
    found = config(job(settings=usual(precision=precision)))
    assert found[precision] == {"enabled": True}
    assert found["data_types"] == {"grad_accum_dtype": "fp32"}


def test_another_order_is_no_matter_in_one_node_or_without_replicas() -> None:
    other = usual(order="tp-cp-ep-pp-dp")
    same = export_deepspeed(job(dp=1, tp=1, settings=replace(other, precision="fp32")), "run")
    assert not any("order" in note for note in same.notes)
    near = export_deepspeed(job(dp=2, tp=1, pp=2, layout=None, settings=other), "run")
    assert any("alike in one node" in note for note in near.notes)


REFUSED = {
    **{
        kernels.quantised or kernels.graphs: (
            job(settings=usual(kernels=kernels)),
            "quantised" if kernels.quantised else "graphs",
            {"settings": usual()},
        )
        for kernels in (Kernels(quantised="fp8-current"), Kernels(graphs="local"))
    },
    "overlap": (job(settings=usual(overlap_tensor=True)), "settings.overlap_tensor",
     {"settings": usual()}),
    "batch": (job(global_batch=63), "global_batch", {"global_batch": 64}),
    "heads": (job(tp=3), "heads", {"tp": 1}),
    "context": (job(settings=usual(cp=2)), "settings.cp", {"settings": usual()}),
    "virtual stages": (job(pp=2, layout=split_layout([2, 1, 3, 2])), r"layout = Et\*5\|t\*3L",
     {"layout": split_layout([5, 3])}),
    "stage 2 in a pipeline": (
        job(settings=usual(optimizer=OptimizerSettings(sharding="gradients"))),
        "sharding = optimizer",
        {"settings": usual()},
    ),
    "order": (job(settings=usual(order="tp-cp-ep-pp-dp")), "order", {"settings": usual()}),
    "divided sequence": (job(**ALONE), "sequence_parallel", {"settings": WHOLE}),
    "experts in a pipeline": (job(deepseek(), tp=1, settings=usual(ep=2)), "settings.ep",
     {"settings": usual()}),
    "no experts": (job(settings=usual(ep=2)), "settings.ep", {"settings": usual()}),
    "odd experts": (job(deepseek(), tp=1, dp=3, global_batch=66, settings=usual(ep=3), **ALONE),
     "experts.count", {"settings": usual()}),
    "experts in pieces": (job(deepseek(), settings=usual(sequence_parallel=False, ep=2), **ALONE),
     "settings.etp", {"settings": usual(sequence_parallel=False, ep=2, etp=1)}),
    "instances": (
        job(settings=usual(optimizer=OptimizerSettings(sharding="optimizer", instances=2))),
        "instances",
        {"settings": usual()},
    ),
    "share of states": (with_optimizer("optimizer", offload=0.5), "offload",
     {"settings": usual(optimizer=OptimizerSettings(sharding="optimizer", offload=1.0))}),
    "states of split experts' model": (
        job(
            deepseek(),
            settings=usual(
                sequence_parallel=False,
                ep=2,
                etp=1,
                optimizer=OptimizerSettings(sharding="optimizer", offload=1.0),
            ),
            **ALONE,
        ),
        "both tp and ep",
        {"settings": usual(sequence_parallel=False, ep=2, etp=1)},
    ),
    "states of replicas": (with_optimizer("none", offload=1.0), "sharding = optimizer",
     {"settings": usual(optimizer=OptimizerSettings(sharding="optimizer", offload=1.0))}),
    "activations of layers": (job(settings=usual(offload=Offload(layers=2))),
     "settings.offload.layers", {"settings": usual()}),
    "first layers": (
        job(settings=usual(recompute=Recompute(granularity="full", method="block", layers=1))),
        "settings.recompute.method",
        {"settings": usual(recompute=FULL)},
    ),
    "parts": (job(settings=usual(recompute=Recompute(granularity="selective", modules=("mlp",)))),
     "settings.recompute.modules", {"settings": usual(recompute=FULL)}),
    "empty stage": (job(layout=read_layout("Et|tttt||tttL")), "layout, stage 2", {"layout": None}),
    "more tokens": (job(llama(prediction_layers=1), layout=None), "prediction_layers",
     {"model": llama(), "layout": None}),
}  # fmt: skip


@for_each("name", REFUSED)
def test_what_deepspeed_cannot_run_is_refused_and_repaired(name: str) -> None:
    check_refusal(export_deepspeed, REFUSED[name])


@examples(100)
@given(jobs())
def test_any_job_is_said_or_refused(case: TrainingJob) -> None:
    """The parts hold every module once, in order, as many layers as the plan says."""
    try:
        files = export_deepspeed(case, "run").files
    except PlanError:
        return
    if case.pp == 1:
        return
    found = json.loads(files["_boundaries.json"])
    assert [m for stage in found["stages"] for m in stage["modules"]] == found["modules"]
    layers = [stage["layers"] for stage in found["stages"]]
    assert write_layout(split_layout(layers)) == write_layout(case.pipeline)
    assert found["parts"][-1] == len(found["modules"]) == case.model.layers + 3
