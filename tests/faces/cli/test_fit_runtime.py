"""A model that Megatron-LM cannot train has its verdict, and the training systems that can."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import ilp_planner as ilp
from ilp_planner.base.library import known_names
from ilp_planner.faces.cli.wording import option_of
from ilp_planner.inputs.files import find_model
from ilp_planner.settings.job_options import BY_NAME, JOB_OPTIONS
from ilp_planner.spaces.training.enumerate.unfit import misfits
from ilp_planner.specs.decoder import as_decoder
from tests.examples import thinned
from tests.faces.cli.conftest import Done

Command = Callable[..., Done]


def test_every_model_that_is_a_decoder_has_a_verdict(ilp_plan: Command) -> None:
    unfit = 0
    for name in known_names("models"):
        decoder = as_decoder(find_model(name).architecture)
        if decoder is None:
            continue
        done = ilp_plan("fit", name, "--gpus", "8xH100", "--verdict")
        assert done.code in (0, 6), (name, done.err)
        found = re.search(r"^note +Megatron-LM cannot train the model .*", done.out, re.M)
        assert bool(found) == any(misfits(decoder)), name
        unfit += bool(found)
    assert unfit > 3


@pytest.mark.parametrize("model", ["gemma2-9b", "falcon-7b", "phi2", "gemma3-27b-text"])
def test_what_is_named_plans_the_model(ilp_plan: Command, model: str) -> None:
    done = ilp_plan("fit", model, "--gpus", "8xH100", "--verdict")
    runtimes = re.findall(r"--runtime (\w+)", done.out)
    assert runtimes
    for runtime in runtimes:
        ilp.problem(model, "8xH100", space=runtime, global_batch=64)


OPTION_JOBS = [
    "llama2-13b --sequence-length 2048 --qlora on --gpus 1xRTX4090 --micro-batch-size 8",
    "llama3-8b --gpus 1xA100-80GB --qlora on",
    "llama3-8b --gpus 4xA100-40GB --lora 8 --lora-targets q_proj,v_proj --global-batch-size 16",
    "qwen3-4b --gpus 2xA100-40GB --moments 8bit --global-batch-size 8",
    "gemma2-9b --gpus 8xA100-80GB --global-batch-size 16",
]


@pytest.mark.slow
def test_changes_of_options_are_options_for_any_system(ilp_plan: Command) -> None:
    """Which say the job that is promised: the same command with them takes as long."""
    for text in OPTION_JOBS:
        words = ["fit", *text.split(), "--time-limit", "0.1", "--json"]
        done = ilp_plan(*words)
        assert done.code in (0, 6), done.err
        found = json.loads(done.out)
        assert any("judged as" in note for note in found["notes"])
        assert found["changes"]
        for change in found["changes"]:
            assert not change["fields"], change
            assert change["add"] or change["drop"], change
            assert "--recompute-method" not in change["add"] or "block" in change["add"], change
        for change in thinned(found["changes"], 7):
            if not change["drop"]:
                again = json.loads(ilp_plan(*words, *change["add"], "--verdict").out)
                left = again["decides"]["left"]
                assert left == pytest.approx(change["left"], rel=1e-9), change


def test_a_refusal_of_the_own_system_is_told(ilp_plan: Command) -> None:
    job = ["fit", "gemma2-2b", "--gpus", "8xA100-80GB", "--global-batch-size", "8", "--time-limit"]
    done = ilp_plan(*job, "0.1")
    assert done.code == 0, done.err
    assert "judged as DeepSpeed runs it" in done.out
    assert "(settings.vocab_multiple 1 instead of 128)" in done.out
    asked = ilp_plan(*job, "0.1", "--fused-loss")
    assert asked.code == 0, asked.err
    said = " ".join(asked.out.split())
    assert "does not run this job: settings.kernels.loss_kernel: found native, but" in said


def test_a_job_that_none_runs_has_a_verdict_without_times(ilp_plan: Command) -> None:
    done = ilp_plan("fit", "gemma2-2b", "--gpus", "8xH100", "--cp", "2")
    assert done.code == 0, done.err
    assert "DeepSpeed can, but does not run this job: settings.cp: found 2" in done.out
    assert "takes  " not in done.out


def test_layers_of_transformers_have_a_verdict(ilp_plan: Command, tmp_path: Path) -> None:
    """Frozen ones of LLaMA-Factory: no adapters, and no layers of Megatron-LM."""
    text = {"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft", "finetuning_type": "freeze"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**text, "cutoff_len": 512, "bf16": True}))
    done = ilp_plan("fit", tmp_path / "run.yaml", "--gpus", "2xH100", "--time-limit", "0.1")
    assert done.code == 0, done.err
    assert "Megatron-LM has not layers as transformers has them: judged as" in done.out
    assert "takes  " in done.out


@pytest.mark.parametrize(("shares", "who"), [(True, "DeepSpeed"), (False, "torchtitan")])
def test_moments_in_pages_are_judged_by_who_shares_states(
    ilp_plan: Command, tmp_path: Path, shares: bool, who: str
) -> None:
    """ZeRO has them, FSDP does not, and where nothing is shared both do."""
    text = {"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft", "finetuning_type": "full"}
    text |= {"cutoff_len": 512, "bf16": True, "optim": "paged_adamw_8bit"}
    file, zero = tmp_path / "run.yaml", tmp_path / "zero.json"
    zero.write_text('{"zero_optimization": {"stage": 3}}')
    file.write_text(yaml.safe_dump(text | ({"deepspeed": zero.name} if shares else {})))
    done = ilp_plan("fit", file, "--gpus", "2xH100", "--time-limit", "0.1")
    assert done.code == 0, done.err
    assert f"Megatron-LM has not moments paged-8bit: judged as {who}" in " ".join(done.out.split())
    assert "takes  " in done.out
    file.write_text(yaml.safe_dump(text | {"fsdp": "full_shard"}))
    done = ilp_plan("fit", file, "--gpus", "2xH100", "--time-limit", "0.1")
    assert "bitsandbytes steps no shards of FSDP" in " ".join(done.out.split())


# Files of jobs that do not fit and say no batch; what changes of them are said in, and a change.
OWN_WORDS = {
    "run.toml": (
        '[model]\nname = "llama3"\nflavor = "70B"\n'
        "[training]\nlocal_batch_size = 1\nseq_len = 8192\n"
        '[activation_checkpoint]\nmode = "none"\n',
        r"(parallelism|training|activation_checkpoint)\.\w+ .* instead of ",
        r"tensor_parallel_degree 8 instead of 1, training\.global_batch_size 64 ",
    ),
    "run.yaml": (
        "model_name_or_path: Qwen/Qwen3-32B\nstage: sft\nfinetuning_type: full\n"
        "cutoff_len: 4096\nbf16: true\nper_device_train_batch_size: 1\n"
        "gradient_accumulation_steps: 8\n",
        r"(deepspeed\.|per_device|gradient_|use_liger)\w+.* = ",
        r"autotp_size = 8, gradient_accumulation_steps = 64",
    ),
    "run.sh": (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
        "--micro-batch-size 1 --swiglu --disable-bias-linear --normalization RMSNorm "
        "--position-embedding-type rope --bf16 --untie-embeddings-and-output-weights "
        "--vocab-size 128256 --train-iters 10 --lr 1e-4 --ffn-hidden-size 14336\n",
        r"--",
        r"--global-batch-size 8 .*--tensor-model-parallel-size 4",
    ),
}


@pytest.mark.parametrize("name", OWN_WORDS)
def test_changes_of_a_file_are_said_in_its_own_keys(
    ilp_plan: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With the samples that follow from degrees where the file does not say how many."""
    monkeypatch.setattr("ilp_planner.analysis.fit.fit.Changes.pairs", lambda *_: None)
    text, own, change = OWN_WORDS[name]
    (folder / name).write_text(text)
    gpus = "64xH100" if name == "run.toml" else "8xH100"
    done = ilp_plan("fit", name, "--gpus", gpus, "--json", "--time-limit", "0.1")
    assert done.code == 0, done.err
    said = json.loads(done.out)["changes"]
    words = [", ".join(one["fields"]) or " ".join(one["add"]) for one in said]
    assert words
    assert [text for text in words if not re.match(own, text)] == []
    assert any(re.search(change, text) for text in words)


@pytest.mark.parametrize(("moments", "bytes_of"), [("fp32", 8), ("bf16", 4), ("fp8", 2)])
def test_moments_of_megatron_lm_are_counted_by_their_width(
    ilp_plan: Command, moments: str, bytes_of: int
) -> None:
    """Of 8.03e9 numbers over 8 replicas; narrow ones step a copy of 2 bytes in place of 4."""
    job = ["fit", "llama3-8b", "--gpus", "8xH100", "--sharding", "optimizer", "--moments", moments]
    done = ilp_plan(*job, "--verdict", "--json")
    states = json.loads(done.out)["decides"]["terms"]["optimizer"]
    copy = 4 if moments == "fp32" else 2
    assert states == pytest.approx(8.03e9 / 8 * (bytes_of + copy), rel=0.01)
    refused = ilp_plan(*job, "--precision", "fp16", "--verdict")
    assert (refused.code in (0, 6)) == (moments == "fp32")
    said = (
        f"--moments: found {moments} without --precision bf16, expected fp32, or --precision bf16"
    )
    assert moments == "fp32" or said in refused.err


SHARD = "data_parallel_shard_degree"


@pytest.mark.parametrize("said", ["", f"{SHARD} = -1", f"{SHARD} = 2"])
def test_a_degree_that_torchtitan_takes_from_the_ranks_is_not_changed(
    ilp_plan: Command, folder: Path, said: str
) -> None:
    (folder / "a.toml").write_text(
        '[model]\nname = "llama3"\nflavor = "8B"\n'
        "[training]\nlocal_batch_size = 8\nseq_len = 2048\n"
        f"[parallelism]\npipeline_parallel_degree = 4\n{said}\n"
        'pipeline_parallel_schedule = "Interleaved1F1B"\n'
    )
    done = ilp_plan("fit", "--megatron-script", "a.toml", "--gpus", "8xH100")
    assert done.out.startswith("FITS"), done.err
    assert "parallelism.pipeline_parallel_degree 2 instead of 4" in done.out
    assert (f"{SHARD} 4 instead of 2" in done.out) == ("2" in said)
    assert (SHARD in done.out) == ("2" in said)


OF_OTHERS = [
    (name, value)
    for name in JOB_OPTIONS
    for value in BY_NAME[name].only
    if name != "schedule"  # needs a pipeline, for which others have no job of one GPU
]


def test_a_job_of_options_is_of_one_system_in_all_commands(ilp_plan: Command) -> None:
    """Whatever setting implies it: `fit` and `analyze` count the same bytes, and say whose."""
    for gpus in ("1xH100", "1xA100-80GB"):
        for name, value in OF_OTHERS:
            words = ["qwen3-0.6b", "--gpus", gpus, option_of(name), value.replace("+", ",")]
            fit, analyze = (
                json.loads(ilp_plan(command, *words, *more, "--json").out)
                for command, more in (("fit", ["--verdict"]), ("analyze", []))
            )
            assert fit["decides"]["needed"] == analyze["memory"][0]["needed_bytes"], words
            said = [note for note in fit["notes"] if note.startswith("Megatron-LM has not")]
            assert len(said) == 1
            assert said[0] in analyze["notes"]


def test_analyze_without_gpus_takes_the_same_system(ilp_plan: Command) -> None:
    for name, value in OF_OTHERS:
        words = ["qwen3-0.6b", option_of(name), value.replace("+", ",")]
        done = ilp_plan("analyze", *words)
        assert done.code == 0, done.err
        assert "Megatron-LM has not" in done.out, words
