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
    "a part that an argument names": "change(what=config.parallelism)",
    "a part in a list": "change([1, (config.parallelism,)])",
    "the result of a change": "done = change(config.parallelism)",
    "mapped arguments": "config.parallelism = ParallelismConfig(**os.environ)",
    "arguments by place": "config.parallelism = ParallelismConfig(2, 4)",
    "listed arguments": "config.parallelism = ParallelismConfig(*os.environ)",
    "a branch in a loop": "for k in f():\n    if k:\n"
    "        config.parallelism.tensor_parallel_degree = 1",
    "a deletion": "del config.parallelism",
    "a condition": "os.environ and change(config.parallelism)",
    "nothing after a return": "for k in range(3):\n    return config.parallelism",
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


READ = {
    "names by their module": "config.parallelism = ParallelismConfig(tensor_parallel_degree=4)",
    "a mapping": "config.parallelism = ParallelismConfig(**{'tensor_parallel_degree': 4})",
    "a call of dict": "config.parallelism = ParallelismConfig(**dict(tensor_parallel_degree=4))",
    "signs": "config.parallelism.tensor_parallel_degree = +4 - -0",
    "names that were set before": "a = 2\nb = a\nconfig.parallelism.tensor_parallel_degree = a * b",
    "several names": "a, (b, c) = 1, (4, 5)\nconfig.parallelism.tensor_parallel_degree = b",
    "a copy": "import copy\nother = copy.deepcopy(config)\n"
    "other.parallelism.tensor_parallel_degree = 8\nconfig.parallelism.tensor_parallel_degree = 4",
    "a function": "config = with_tp(config, 4)",
    "a function, by name": "config = with_tp(degree=4, config=config)",
    "defaults of a function": "config = with_tp(config)",
    "printing": "print(config.parallelism)\nconfig.parallelism.tensor_parallel_degree = 4",
}
HELPER = """

def with_tp(config, degree=4, *, BATCH=0):
    config.parallelism.tensor_parallel_degree = degree + BATCH
    return config
"""


@pytest.mark.parametrize("case", READ)
def test_what_the_text_says_is_read(tmp_path: Path, case: str) -> None:
    path = registry(tmp_path, READ[case])
    path.write_text(path.read_text() + HELPER)
    found = read(path)
    assert (found.tp, found.micro_batch) == (4, 4)


def test_arguments_of_a_registry_are_read_or_named(tmp_path: Path) -> None:
    """None is dropped in silence."""
    for said, message in (
        ("'8B', num_mtp_layers=1", "num_mtp_layers: found 1, expected 0"),
        ("flavor='8B', moe_comm_backend='deepep'", "moe_comm_backend: found 'deepep', expected"),
        ("'8B', 'flex', 'x'", "model.flavor: found .*model_registry.'flex', .*, which only"),
        ("'8B', **os.environ", "model.flavor: found .*os.environ.*, which only running"),
        (
            "'8B', converters=[MXFP8LinearConverter.Config(B)]",
            "converters: found MXFP8LinearConverter.Config.B, ...",
        ),
    ):
        path = registry(tmp_path, f"config.model_spec = model_registry({said})")
        with pytest.raises(SpecError, match=message):
            read(path)
    same = registry(
        tmp_path, "config.model_spec = model_registry(flavor='8B', attn_backend='flex')"
    )
    assert read(same).model.layers == 32


def test_parts_of_parts_are_set(tmp_path: Path) -> None:
    path = registry(tmp_path, "config.a.b.c = 3\nconfig.model_spec.model.layers.n_layers = 4")
    file = PythonFile(Document(str(path), path.read_text()))
    made = file.result("changed")
    assert made.values["a"].values["b"].values == {"c": 3}
    assert made.values["model_spec"].values["model"].values["layers"].values == {"n_layers": 4}


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
    said = "--training.local-batch-size=2 --parallelism.tensor-parallel-degree 4"
    (tmp_path / "run.sh").write_text(
        f"#!/bin/bash\n{line} {said} --training.no-disable-cuda-graphs --compile.enable\n"
    )
    found = job_of_arguments(read_script(tmp_path / "run.sh", environment={}))
    assert (found.micro_batch, found.tp) == (2, 4)
    assert found.settings.kernels.graphs == "full_iteration"
    assert found.settings.kernels.compiled
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
