"""Liger's loss: the output layer and the cross-entropy in chunks of tokens, by hand."""

import math
from dataclasses import replace
from typing import Any

from ilp_planner.job.decoder import output_module
from ilp_planner.job.memory import memory_parts, stage_of_rank
from ilp_planner.job.overheads import loader_batch, loss_moment
from ilp_planner.job.shard import loss_chunk
from ilp_planner.job.work import output_work
from ilp_planner.settings.values import FUSED_LOSS, as_transformers
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.training import LIGER, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning
from tests.examples import for_each
from tests.training_jobs import LLAMA_LIKE

FULL = Recompute(granularity="full", method="uniform", layers=1)
LORA = Tuning(rank=8, targets=("q_proj",), adapters="fp32")


def job_of(kernel: str, tuning: Tuning = LORA, micro_batch: int = 4, **sizes: Any) -> TrainingJob:
    own = {"layers": 2, "hidden": 4096, "sequence": 4096, "heads": 32, "ffn": 8192, "vocab": 32000}
    settings = Settings(vocab_multiple=1, tuning=tuning, recompute=FULL)
    found = FUSED_LOSS.write(as_transformers(settings), kernel)
    assert found is not None
    model = Decoder(**{**own, **sizes}, **LLAMA_LIKE)
    return TrainingJob(model=model, micro_batch=micro_batch, global_batch=4, settings=found)


@for_each(
    ("micro_batch", "hidden", "vocab", "chunk"),
    [
        (4, 4096, 32000, 2048),  # the example of Liger's source
        (1, 4096, 128256, 128),
        (1, 4096, 4096, 4096),  # as many words as channels: all tokens at once
        (3, 4096, 32000, 2048),  # of 12288 tokens an eighth is 1536: the next power of two
    ],
)
def test_a_chunk_s_logits_take_about_the_memory_of_the_hidden_states(
    micro_batch: int, hidden: int, vocab: int, chunk: int
) -> None:
    job = job_of(LIGER, micro_batch=micro_batch, hidden=hidden, vocab=vocab)
    assert loss_chunk(job) == chunk


def test_gradients_are_kept_instead_of_logits() -> None:
    def kept(job: TrainingJob) -> float:
        return sum(one.size for part in output_module(job).children for one in part.kept)

    tokens, states, table = 4 * 4096, 2 * 4 * 4096 * 4096, 2 * 32000 * 4096
    frozen, trained = job_of(LIGER), job_of(LIGER, Tuning())
    assert kept(frozen) == kept(job_of("none")) - 4 * tokens * 32000 + states
    assert kept(trained) == kept(job_of("none", Tuning())) - 4 * tokens * 32000 + table
    assert loss_moment(frozen) == 2 * 2048 * 32000 + 4 * tokens + loader_batch(frozen)


def test_a_fine_tuning_job_needs_less_than_with_logits() -> None:
    def needed(job: TrainingJob) -> float:
        return stage_of_rank(memory_parts(job), 0).needed

    assert needed(job_of(LIGER)) < needed(job_of("none")) - 4 * 4 * 4096 * 32000


@for_each("tuning", [LORA, Tuning()])
@for_each("sequence", [4096, 4097])
def test_all_products_run_in_the_forward_pass_and_are_as_many(
    sequence: int, tuning: Tuning
) -> None:
    def flops(kernel: str, *ways: str) -> float:
        work = output_work(job_of(kernel, tuning, sequence=sequence))
        return sum(k.flops for one in work for way in ways for k in getattr(one, way))

    assert flops(LIGER, "backward") == 0
    assert math.isclose(flops(LIGER, "forward"), flops("none", "forward", "backward"))


def test_the_trainer_runs_it_without_adapters() -> None:
    job = job_of(LIGER, Tuning())
    assert job.settings.by_trainer
    assert not replace(job, settings=as_transformers(Settings())).settings.by_trainer
