"""Jobs that no release of torchtitan runs, and what refusals of exports are held to."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.exported import Exported
from ilp_planner.specs.pipeline_layout import read_layout, split_layout
from ilp_planner.specs.training import Kernels, Offload, OptimizerSettings, Recompute, TrainingJob
from tests.training_jobs import deepseek, gpt, job, llama
from tests.training_jobs import settings as usual

Refusal = tuple[TrainingJob, str, dict[str, object]]

FULL = Recompute(granularity="full", method="uniform", layers=1)


def with_optimizer(**changes: object) -> TrainingJob:
    """Return a job with an optimizer of its own."""
    optimizer = OptimizerSettings(**{"sharding": "optimizer", **changes})
    return job(settings=usual(optimizer=optimizer))


# By what is refused: a job, the field that the refusal names, and what repairs the job.
REFUSED_BY_BOTH: dict[str, Refusal] = {
    "experts beside products": (job(settings=usual(overlap_experts=True)), "overlap_experts",
     {"settings": usual()}),
    "activations of modules": (job(settings=usual(offload=Offload(modules=("core_attn",)))),
     "settings.offload.modules", {"settings": usual()}),
    "batch": (job(global_batch=63), "global_batch", {"global_batch": 64}),
    "heads": (job(tp=3), "heads", {"tp": 1}),
    "key-value heads": (job(llama(kv_heads=2), tp=4), "kv_heads", {"tp": 2}),
    "learned positions": (job(gpt()), "model.norm", {"model": llama()}),
    "dropout": (job(llama(dropout=0.1)), "model.dropout", {"model": llama()}),
    "more tokens": (job(llama(prediction_layers=1)), "model.prediction_layers",
     {"model": llama(), "layout": None}),
    "order": (job(settings=usual(order="tp-cp-ep-pp-dp")), "settings.order", {"settings": usual()}),
    "share of states": (with_optimizer(offload=0.3), "offload", {"settings": usual()}),
    "sgd": (with_optimizer(name="sgd"), "name", {"settings": usual()}),
    "fp16": (job(settings=usual(precision="fp16")), "precision", {"settings": usual()}),
    "instances": (with_optimizer(instances=3), "instances", {"settings": usual()}),
    "first layers": (
        job(settings=usual(recompute=Recompute(granularity="full", method="block", layers=1))),
        "settings.recompute.layers",
        {"settings": usual()},
    ),
    "chunks": (
        job(settings=usual(recompute=Recompute(granularity="full", method="uniform", layers=2))),
        "settings.recompute.layers",
        {"settings": usual(recompute=FULL)},
    ),
    "parts": (job(settings=usual(recompute=Recompute(granularity="selective", modules=("mlp",)))),
     "settings.recompute.modules", {"settings": usual()}),
    "divided inputs": (job(settings=usual(recompute=replace(FULL, distribute=True))),
     "settings.recompute.distribute", {"settings": usual(recompute=FULL)}),
    "few micro-batches": (job(global_batch=8), "global_batch", {"global_batch": 16}),
    "uneven rounds": (job(pp=2, layout=split_layout([2] * 4), global_batch=20), "interleaved",
     {"global_batch": 16}),
    "empty stage": (job(layout=read_layout("Et|tttt||tttL")), "layout, stage 2", {"layout": None}),
    "no experts": (job(settings=usual(ep=2)), "settings.ep", {"settings": usual()}),
    "dropped tokens": (job(deepseek(), settings=usual(kernels=Kernels(capacity=1.0))), "capacity",
     {"settings": usual()}),
}  # fmt: skip


def check_refusal(export: Callable[[TrainingJob, str], Exported], refusal: Refusal) -> None:
    """The refusal names the field in one line, and the repaired job is exported."""
    case, field, repair = refusal
    with pytest.raises(PlanError, match=field) as caught:
        export(case, "run")
    assert "\n" not in str(caught.value)
    export(replace(case, **repair), "run")
