"""Files of AMD's Primus: overrides of Megatron-LM's arguments, and the models that it names."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.imports import read, recognise_words
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.inputs.files import find_model
from ilp_planner.settings.values import FUSED_LOSS
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.training import TrainingJob
from tests.examples import for_each
from tests.imported_cases import PRIMUS, arguments_of, job_of, nested, recognised

OVERRIDES = "modules__pre_trainer__overrides__"
MODEL = "modules__pre_trainer__model"


def job(**overrides: Any) -> TrainingJob:
    return job_of("primus", **{f"{OVERRIDES}{key}": value for key, value in overrides.items()})


@for_each(
    ("theirs", "ours"),
    [
        ("llama2_7B.yaml", "llama2-7b"),
        ("llama3_70B.yaml", "llama3-70b"),
        ("llama3.1_405B.yaml", "llama3-405b"),
        ("llama3.3_70B.yaml", "llama3.1-70b"),
        ("mixtral_8x7B_v0.1.yaml", "mixtral-8x7b"),
        ("deepseek_v2_lite.yaml", "deepseek-v2-lite"),
        ("qwen3_30B_A3B.yaml", "qwen3-30b-a3b"),
        ("gpt_oss_20B.yaml", "gpt-oss-20b"),
    ],
)
def test_models_are_those_of_the_library(theirs: str, ours: str) -> None:
    found = job_of("primus", **{MODEL: theirs, f"{OVERRIDES}tensor_model_parallel_size": 1})
    model = as_decoder(find_model(ours).architecture)
    assert model is not None
    assert (found.model.layers, found.model.hidden) == (model.layers, model.hidden)


def test_defaults_are_primus_s() -> None:
    found = job()
    assert found.settings.sequence_parallel
    assert found.settings.optimizer.sharding == "optimizer"
    assert found.settings.precision == "bf16"
    assert job(micro_batch_size=None, global_batch_size=None).micro_batch == 2


@for_each(
    ("fused", "kernel", "loss"),
    [(True, "te", "te"), (True, "native", "native"), (False, "te", "none")],
)
def test_the_loss_is_the_one_of_its_release(fused: bool, kernel: str, loss: str) -> None:
    found = job(cross_entropy_loss_fusion=fused, cross_entropy_fusion_impl=kernel)
    assert FUSED_LOSS.read(found.settings) == loss


def test_adapters_of_its_fine_tuning_are_read() -> None:
    found = job(**{"lora__enabled": True, "lora__dim": 16, "lora__target_modules": ["linear_qkv"]})
    assert (found.settings.tuning.rank, found.settings.tuning.targets) == (16, ("linear_qkv",))
    assert not job(**{"lora__enabled": False, "lora__dim": 16}).settings.tuning


def test_variables_have_their_defaults(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    changed = {
        "modules.post_trainer.model": "${PRIMUS_MODEL:llama3.1_8B}.yaml",
        "modules.post_trainer.overrides.tensor_model_parallel_size": "${PRIMUS_TP:4}",
    }
    own = {key.replace("pre_trainer", "post_trainer"): value for key, value in PRIMUS.items()}
    file.write_text(yaml.safe_dump(nested({**own, **changed})))
    assert job_of_arguments(read(recognised(file), 8)).tp == 4
    changed["modules.post_trainer.framework"] = "torchtitan"
    file.write_text(yaml.safe_dump(nested({**own, **changed})))
    with pytest.raises(SpecError, match="framework: found 'torchtitan', expected megatron"):
        read(recognised(file), 8)


def test_what_is_not_modelled_is_refused_or_said() -> None:
    with pytest.raises(SpecError, match="enable_zero_bubble: found true, expected false"):
        job(enable_zero_bubble=True)
    said = arguments_of("primus", **{f"{OVERRIDES}use_turbo_attention": True}).remarks
    assert any(one.startswith("use_turbo_attention: not counted") for one in said)


def test_a_line_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(nested(PRIMUS)))
    line = "./primus-cli slurm srun -N 2 -- train pretrain --config run.yaml --micro_batch_size 2"
    found = recognise_words(line.split(), folder=tmp_path)
    assert found is not None
    assert job_of_arguments(read(found, 8)).micro_batch == 2
