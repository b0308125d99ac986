"""Arguments of Megatron-DeepSpeed and of earlier releases, in the words of today."""

from pathlib import Path

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
from ilp_planner.formats.megatron.script import read_script
from ilp_planner.specs.training import TrainingJob

MODEL = (
    "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 512 --vocab-size 1024 "
    "--max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 32 --bf16 --deepspeed"
)


def job_of(words: str, world: int = 8) -> TrainingJob:
    """Return the job of a line of Megatron-DeepSpeed."""
    return job_of_arguments(read_arguments(f"{MODEL} {words}", world, strict=False))


@pytest.mark.parametrize(
    ("stage", "sharding"), [(0, "optimizer"), (1, "optimizer"), (2, "gradients"), (3, "parameters")]
)
def test_stages_of_zero(stage: int, sharding: str) -> None:
    """Its optimizer of bf16 divides states at stage 0 too."""
    job = job_of(f"--zero-stage {stage} --use-flash-attn-v2")
    assert job.settings.optimizer.sharding == sharding


def test_ulysses_divides_sequences() -> None:
    job = job_of("--ds-sequence-parallel-size 4 --use-flash-attn-v2")
    assert (job.settings.cp, job.settings.cp_comm, job.dp) == (4, "a2a", 2)


def test_experts_of_every_second_layer() -> None:
    job = job_of("--num-experts 16 --moe-expert-parallel-size 8 --disable-bias-linear")
    experts = job.model.experts
    assert experts is not None
    assert (experts.count, experts.top_k, experts.every, job.settings.ep) == (16, 1, 2, 8)
    assert job_of("--num-experts 1 --mlp-type standard").model.experts is None
    job = job_of("--num-experts 16 --topk 2 --expert-interval 1 --disable-bias-linear")
    assert job.model.experts is not None
    assert (job.model.experts.top_k, job.model.experts.every) == (2, 1)


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_names_of_norms(norm: str) -> None:
    assert job_of(f"--normalization {norm}").model == job_of("").model or norm == "rmsnorm"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--num-experts 16 32", "--num-experts: found 16 32, expected one number: layers with"),
        ("--num-experts 16 --mlp-type residual", "--mlp-type: found residual, expected standard"),
    ],
)
def test_layers_that_are_not_modelled(words: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        job_of(words)


@pytest.mark.parametrize("flag", ["--moe-expert-parallel-size", "--ds-sequence-parallel-size"])
def test_a_degree_that_is_not_known_is_asked_for(tmp_path: Path, flag: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} {flag} $DEGREE\n")
    with pytest.raises(SpecError, match=rf"DEGREE is not set \(in the value of {flag}\)"):
        read_script(script, strict=False)


@pytest.mark.parametrize("words", ["--disable-vision-class-token", "--vision-tower clip"])
def test_an_encoder_of_images_is_named(words: str) -> None:
    """By Pai-Megatron-Patch's scripts, of which the decoder is judged."""
    args = read_arguments(f"{MODEL} {words}", 8, strict=False)
    said = f"{words.split()[0]}: not counted: an encoder of images, whose decoder alone is judged"
    assert said in args.remarks
    assert job_of_arguments(args) == job_of("")


@pytest.mark.parametrize(
    ("program", "does"),
    [
        ("tasks/main.py", "evaluates, or trains classifiers"),
        ("tools/generate_samples_gpt.py", "answers"),
        ("tools/run_text_generation_server.py", "answers"),
        ("tools/preprocess_data.py", "prepares data"),
        ("tasks/eval_harness/evaluate.py", "evaluates"),
        ("pretrain_t5.py", "trains T5"),
    ],
)
def test_programs_that_train_no_decoder(program: str, does: str) -> None:
    with pytest.raises(SpecError, match=f"found a program that {does}, expected one that trains"):
        read_arguments(f"python {program} {MODEL}", strict=False)
    read_arguments(f"python my_{program.rpartition('/')[2]} {MODEL}", strict=False)
