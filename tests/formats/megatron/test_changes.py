"""What is to be changed in a line makes it say the other job, whatever words it says it in."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.formats.megatron.arguments import (
    arguments_of_job,
    job_of_arguments,
    read_arguments,
)
from ilp_planner.formats.megatron.changes import LineChange, as_said, job_change, line_change
from ilp_planner.formats.megatron.repairs import Repair
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.settings.rules import with_followed
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.pipeline_layout import even_layout, split_layout
from ilp_planner.specs.training import Offload, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning
from tests.examples import examples, for_each
from tests.training_jobs import job, jobs

LINE = (
    "--num-layers 8 --hidden-size 256 --num-attention-heads 16 --seq-length 512 "
    "--max-position-embeddings 512 --micro-batch-size 2 --global-batch-size 64 --vocab-size 1000 "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --bf16 --train-iters 10 "
    "--lr 1e-4"
)


def change_of(line: str, world: int = 8, **other: object) -> LineChange | None:
    """Return what to change in a line for a job with other fields, or other settings."""
    args = read_arguments(line, world)
    before = job_of_arguments(args)
    fields = {name for name in other if name in ("tp", "pp", "dp", "micro_batch", "layout")}
    settings = replace(before.settings, **{k: v for k, v in other.items() if k not in fields})
    after = replace(before, settings=settings, **{name: other[name] for name in fields})
    return line_change(args, before, after)


@given(st.data())
@examples(30, deadline=None)
def test_a_line_with_the_changes_says_the_other_job(data: st.DataObject) -> None:
    before, other = data.draw(jobs()), data.draw(jobs())
    settings = replace(
        other.settings,
        ep=before.settings.ep,
        vocab_multiple=before.settings.vocab_multiple,
        turn=0,
        overlap_sends=True,
        cp=1,
        sequence_parallel=other.tp > 1,
    )
    after = TrainingJob(
        model=before.model,
        micro_batch=other.micro_batch,
        global_batch=before.global_batch,
        tp=other.tp,
        dp=other.dp,
        settings=settings,
    )
    args = arguments_of_job(before)
    change = line_change(args, before, after)
    if change is None:
        assert check_arguments(arguments_of_job(after))
        return
    values: dict[str, tuple[str, ...]] = {}
    flag = ""
    for word in change.add:
        flag = word if word.startswith("--") else flag
        values[flag] = (*values.get(flag, ()), *(() if word == flag else (word,)))
    changed = Repair(values, change.drop, change.gpus).on(args)
    assert as_said(job_of_arguments(changed)) == as_said(replace(after, devices_per_node=8))


@for_each(
    ("line", "other", "text"),
    [
        ("", {"micro_batch": 4}, "--micro-batch-size 4"),
        ("--recompute-activations",
         {"recompute": Recompute(granularity="full", method="uniform", layers=1)},
         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1, "
         "without --recompute-activations"),
        ("--recompute-activations", {"recompute": Recompute()}, "without --recompute-activations"),
        ("--num-layers-per-virtual-pipeline-stage 1", {"layout": even_layout(8, 2, 2)},
         "--num-virtual-stages-per-pipeline-rank 2, without "
         "--num-layers-per-virtual-pipeline-stage"),
        ("--decoder-first-pipeline-num-layers 3", {"layout": split_layout([5, 3])},
         "--pipeline-model-parallel-layout 'Et*5|t*3L', without "
         "--decoder-first-pipeline-num-layers"),
        ("", {"dp": 4}, "16 GPUs"),
        ("", {"offload": Offload(modules=("core_attn",))},
         "--fine-grained-activation-offloading --offload-modules core_attn, with "
         "NVTE_CPU_OFFLOAD_V1=1 set"),
    ],
)  # fmt: skip
def test_words_that_say_the_same_go(line: str, other: dict[str, object], text: str) -> None:
    assert str(change_of(f"{LINE} {line}", **other)) == text


def test_what_megatron_refuses_is_not_offered() -> None:
    assert change_of(LINE, offload=Offload(layers=2)) is None  # only without a pipeline
    assert change_of(LINE, tp=8, dp=1, pp=1, layout=even_layout(8, 1)) is not None
    assert change_of(LINE, cp=3) is None  # samples of 512 tokens are not divisible by it


# Settings and parts of a model that no argument says.
SEES = Encoder(layers=2, hidden=64, heads=4, ffn=128, patch=14, image_size=56)
UNSAID: dict[str, Callable[[TrainingJob], TrainingJob]] = {
    "adapters": lambda job: with_settings(job, tuning=Tuning(rank=8, targets=("linear_qkv",))),
    "attention in 8 bits": lambda job: with_settings(
        job, kernels=replace(job.settings.kernels, quantised="fp8-delayed", fp8_attention=True)
    ),
    "an encoder": lambda job: replace(job, model=replace(job.model, encoder=SEES)),
    "an encoder recomputed as the decoder": lambda job: replace(
        job, model=replace(job.model, encoder=replace(SEES, as_decoder=True))
    ),
}


def with_settings(one: TrainingJob, **changed: Any) -> TrainingJob:
    return replace(one, settings=replace(one.settings, **changed))


@pytest.mark.parametrize("kind", UNSAID)
def test_what_no_argument_says_stays_and_hides_no_change(kind: str) -> None:
    """Also of settings that stand beside it in the same part, or that it follows."""
    before = UNSAID[kind](job(tp=1, pp=1, dp=2, layout=None, settings=Settings()))
    again = Recompute(granularity="full", method="uniform", layers=1)
    settings = replace(before.settings, recompute=again)
    after = replace(before, settings=with_followed(settings, before.model))
    change = job_change(before, after)
    assert change is not None
    assert "--recompute-granularity" in change.add
    grouped = replace(before.settings.kernels, accumulation_fusion=False)
    assert job_change(before, with_settings(before, kernels=grouped)) is not None
    other = with_settings(before, tuning=Tuning(rank=16, targets=("linear_qkv",)))
    assert job_change(before, other) is None
