"""Configurations in Python are read as far as their text says, and never run."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.base.files import Document
from ilp_planner.formats.exported import Expected
from ilp_planner.formats.exports import export_job, runtime_of
from ilp_planner.formats.imported.python_config import Made, PythonFile, Unknown
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.script import read_script
from ilp_planner.specs.training import TrainingJob
from tests.formats.imported.test_torchtitan import MODEL, SETTINGS
from tests.training_jobs import job, llama

# A registry as torchtitan has them; what the file itself would do leaves a mark.
HEAD = """
import os
os.system("touch owned")
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

BATCH = 2

def base() -> Trainer.Config:
    spec = model_registry("8B")
    return Trainer.Config(
        model_spec=spec,
        training=TrainingConfig(local_batch_size=2 * BATCH, seq_len=4096, disable_cuda_graphs=True),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        activation_checkpoint=FullAC.Config(),
    )
"""


def registry(folder: Path, body: str = "", name: str = "config_registry.py") -> Path:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    more = f"\n\ndef changed() -> Trainer.Config:\n    config = base()\n{lines}    return config\n"
    path = folder / name
    path.write_text(HEAD + more)
    return path


def read(path: Path, config: str = "changed") -> TrainingJob:
    return job_of_arguments(read_script(path, 8, environment={}, supplied={"config": config}))


def test_a_function_of_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = read(registry(tmp_path), "base")
    assert (found.model.hidden, found.tp, found.dp, found.micro_batch) == (4096, 2, 4, 4)
    assert found.settings.recompute.granularity == "full"
    body = "config.parallelism.tensor_parallel_degree = BATCH * 4\nconfig.compile.enable = True"
    changed = read(registry(tmp_path, body))
    assert (changed.tp, changed.settings.kernels.compiled) == (8, True)
    assert not (tmp_path / "owned").exists()


UNKNOWN = {
    "a call": "config.parallelism.tensor_parallel_degree = int(os.environ['TP'])",
    "a branch": "if os.environ['TP']:\n    config.parallelism.tensor_parallel_degree = 4",
    "a part of it": "config.parallelism = f()\nconfig.parallelism.pipeline_parallel_degree = 1",
    "a method": "config.parallelism.update(tensor_parallel_degree=4)",
    "a loop": "for k in range(3):\n    config.parallelism.tensor_parallel_degree = k",
    "arithmetic": "config.parallelism.tensor_parallel_degree //= 2",
    "a function": "change(config.parallelism)",
    "an entry": "config.parallelism['tensor_parallel_degree'] = 4",
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_only_running_would_tell_is_named(tmp_path: Path, case: str) -> None:
    with pytest.raises(SpecError) as refused:
        read(registry(tmp_path, UNKNOWN[case]))
    assert "line 2" in str(refused.value)
    assert "parallelism" in str(refused.value)
    assert "which only running it would tell, expected" in str(refused.value)
    assert "\n" not in str(refused.value)
    (repair,) = re.findall(r"--set (parallelism\.[\w.]+=)VALUE", str(refused.value)) or [""]
    if repair:  # of one key; a whole section is said by the file alone
        supplied = {"config": "changed", repair.rstrip("="): "4"}
        args = read_script(registry(tmp_path), 8, environment={}, supplied=supplied)
        assert job_of_arguments(args).tp == 4


def test_configurations_are_named(tmp_path: Path) -> None:
    path = registry(tmp_path)
    with pytest.raises(SpecError, match=r"found 2 functions .*--set config=NAME: base, changed"):
        read_script(path, 8, environment={})
    with pytest.raises(SpecError, match=r"found nothing, expected one of them: .*base, changed"):
        read(path, "nothing")
    path.write_text(f"{HEAD}\ndef f(:")
    with pytest.raises(SpecError, match="line 19: not valid Python"):
        read(path)


@pytest.mark.parametrize("place", ["mine.py", "mine/config_registry.py"])
def test_a_launch_names_module_and_configuration(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    registry(tmp_path, name=place)
    line = "torchrun --nproc-per-node 8 -m torchtitan.train --module mine --config base"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{line} --training.local_batch_size 1\n")
    args = read_script(tmp_path / "run.sh", environment={})
    assert (args.world, job_of_arguments(args).micro_batch) == (8, 1)
    (tmp_path / "run.sh").write_text("#!/bin/bash\n" + line.replace("mine", "yours"))
    with pytest.raises(SpecError, match="--module: found yours, whose configurations are not here"):
        read_script(tmp_path / "run.sh", environment={})


@pytest.mark.parametrize("model", ["registered", "built"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("pp", [1, 2])
def test_what_is_exported_is_read_again(tmp_path: Path, name: str, model: str, pp: int) -> None:
    decoder = MODEL if model == "registered" else replace(llama(), layers=8)
    exported = job(decoder, tp=2, pp=pp, dp=8, layout=None, settings=SETTINGS[name])
    try:
        text = export_job(runtime_of("torchtitan"), exported, "run", Expected()).files[".py"]
    except PlanError:
        return
    path = tmp_path / "run.py"
    path.write_text(text)
    again = job_of_arguments(read_script(path, exported.world, environment={}))
    for key in ("tp", "pp", "dp", "micro_batch", "global_batch", "pipeline"):
        assert getattr(again, key) == getattr(exported, key), key
    for key in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "sequence", "tied"):
        assert getattr(again.model, key) == getattr(exported.model, key), key
    assert again.settings.recompute == exported.settings.recompute
    assert again.settings.kernels.graphs == exported.settings.kernels.graphs
    wanted = {"optimizer": "gradients"}.get(exported.settings.optimizer.sharding)
    found = again.settings.optimizer.sharding
    assert found == (wanted or exported.settings.optimizer.sharding)


def test_calls_of_themselves_end(tmp_path: Path) -> None:
    text = "def f() -> Trainer.Config:\n    return f()\n"
    found = PythonFile(Document("a.py", text)).result("f")
    assert isinstance(found, Unknown)
    deep = f"x = {'(' * 5000}1{')' * 5000}\n"
    with pytest.raises(SpecError, match="not valid Python"):
        PythonFile(Document("a.py", deep))
    wide = f"x = {'+'.join(['1'] * 20000)}\n{text}"
    with pytest.raises(SpecError, match=r"nested too deeply|not valid Python"):
        PythonFile(Document("a.py", wide))
    plain = PythonFile(Document("a.py", "def f():\n    return A.Config(b=-3, c=[1, 2.5])\n"))
    assert plain.result("f") == Made("A.Config", [], {"b": -3, "c": [1, 2.5]})
