"""Every kind of file, given to every command that reads one: what it is, and what reads it."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.base.file_kinds import EXPECTED, LAUNCHES, FileKind, file_kind
from ilp_planner.faces.cli.wording import as_typed
from tests import amp_cases
from tests.faces.cli.conftest import Done
from tests.mixed_cases import write_room
from tests.small import MODEL

Command = Callable[..., Done]

SAVED = Path(__file__).parents[2] / "formats" / "saved"
GPUS = ("--gpus", "8xH100")
SAMPLES: dict[FileKind, str | bytes] = {
    FileKind.PLAN: (SAVED / "megatron-v4.json").read_text(),
    FileKind.JOB: '{"schema": "ilp-planner job", "version": 1}\n',
    FileKind.OUTPUT: '{"schema": "ilp-planner/solve", "version": 1}\n',
    FileKind.PROFILE: "# machine: x\nrecord,tp,layers\nlayer,1,2\n",
    FileKind.RUNS: "run,seconds\nrun.sh,1.5\n",
    FileKind.SPEC: MODEL,
    FileKind.CONSTRAINTS: '# what I want\n[constraints]\ntp = "2"\n',
    FileKind.LAUNCH: "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 2\n",
    FileKind.ACESO: '{"model_name": "gpt", "num_ops_in_each_stage": [3]}\n',
    FileKind.HUGGING_FACE: '{"architectures": ["LlamaForCausalLM"], "hidden_size": 8}\n',
    FileKind.METIS: '{"model": {}, "execution_time": {"total_time_ms": 3}}\n',
    FileKind.AMP: json.dumps(amp_cases.content()),
    FileKind.HOSTFILE: "# two\nnode0 slots=8\nnode1 slots=8\n",
    FileKind.CLUSTERFILE: '{"10.0.0.1": {"instance_type": "T4", "inter_bandwidth": 10}}\n',
    FileKind.PROGRAM: "\\ a plan\nMinimize\n obj: x\nEnd\n",
    FileKind.PAGE: "<!DOCTYPE html>\n<html></html>\n",
    FileKind.NANOTRON: "model: {hidden: 8}\nparallelism: {dp: 8, tp: 1}\ntokens: {micro: 3}\n",
    FileKind.NEOX: '{\n  "pipe_parallel_size": 1,\n  "hidden-size": 8,\n}\n',
    FileKind.NEMO: "name: run\ntrainer:\n  devices: 8\nmodel:\n  hidden_size: 8\n",
    FileKind.PRIMUS: "modules:\n  pre_trainer:\n    framework: megatron\n",
    FileKind.TRAINER: "model_name_or_path: me/mine\nfinetuning_type: full\n",
    FileKind.TITAN: '[job]\ndump_folder = "x"\n\n[training]\nsteps = 3\n',
    FileKind.TITAN_PYTHON: "def run() -> Trainer.Config:\n    return Trainer.Config()\n",
    FileKind.DEEPSPEED: '{"train_batch_size": 8, "zero_optimization": {"stage": 1}}\n',
    FileKind.KUBERNETES: "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  a: 1\n",
    FileKind.PYTHON: '"""Trains."""\nimport os, torch\n\nprint(torch)\n',
    FileKind.YAML: "# my run\nlayers: 8\nhidden: 64\n",
    FileKind.JSON: '{"layers": 8}\n',
    FileKind.PICKLE: pickle.dumps({"a": 1}, protocol=4),
    FileKind.ZIP: b"PK\x03\x04\xff\xfe",
    FileKind.GZIP: b"\x1f\x8b\x08\x00",
    FileKind.PARQUET: b"PAR1\xff\xfe",
    FileKind.PICTURE: b"\x89PNG\r\n\x1a\n",
}
# Commands, each with the kinds that it takes, or says itself what is wrong with.
JSON = FileKind.JSON
TAKES_JOBS = (FileKind.PLAN, JSON, FileKind.SPEC, FileKind.HUGGING_FACE, *LAUNCHES)
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[FileKind, ...]]] = {
    "evaluate": (("evaluate", "FILE"), (FileKind.PLAN, JSON)),
    "show": (("show", "FILE", "--html", "o.html"), (FileKind.PLAN, JSON)),
    "why": (("why", "FILE"), (FileKind.PLAN, JSON)),
    "simulate": (("simulate", "FILE"), (FileKind.PLAN, JSON)),
    "replan": (("replan", "FILE", "--without", "0"), (FileKind.PLAN, JSON)),
    "export": (("export", "FILE", "--to", "megatron", "--output", "o.sh"), (FileKind.PLAN, JSON)),
    "fit": (("fit", "FILE", *GPUS), TAKES_JOBS),
    "analyze": (("analyze", "FILE"), TAKES_JOBS),
    "model": (("solve", "--model", "FILE", *GPUS), (FileKind.SPEC, FileKind.HUGGING_FACE, JSON)),
    "cluster": (("solve", "--model", "tiny.toml", "--cluster", "FILE"), (FileKind.SPEC,)),
    "table": (("solve", "--cluster", "room.toml", "--profile", "table:FILE"),
              (FileKind.PROFILE, FileKind.RUNS)),
    "amp": (("solve", "--profile", "amp:FILE", "--space", "amp", "--cost-model", "amp"),
            (FileKind.AMP, JSON)),
    "hostfile": (("solve", "--hostfile", "FILE", "--clusterfile", "clusterfile.json",
                  "--profile", "metis:profile"),
                 (FileKind.HOSTFILE,)),
    "clusterfile": (("solve", "--hostfile", "hostfile", "--clusterfile", "FILE",
                     "--profile", "metis:profile"), (FileKind.CLUSTERFILE, JSON)),
    "constraints": (("solve", "--model", "tiny.toml", *GPUS, "--space", "megatron",
                     "--constraints", "FILE"), (FileKind.CONSTRAINTS,)),
    "import megatron": (("import", "megatron", "FILE", *GPUS, "--output", "o.json"),
                        (*LAUNCHES, JSON)),
    "import aceso": (("import", "aceso", "FILE", "--model", "tiny.toml", "--output", "o.json"),
                     (FileKind.ACESO, JSON)),
    "calibrate": (("calibrate", "FILE", "--cluster", "a100-4x8"),
                  (FileKind.RUNS, FileKind.PROFILE)),
    "profile check": (("profile", "check", "FILE"), (FileKind.PROFILE, FileKind.RUNS)),
}  # fmt: skip


def write(folder: Path, kind: FileKind) -> None:
    content = SAMPLES[kind]
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "FILE").write_bytes(data)


def test_every_kind_has_a_sample(tmp_path: Path) -> None:
    assert SAMPLES.keys() == set(FileKind)
    for kind in FileKind:
        write(tmp_path, kind)
        assert file_kind(tmp_path / "FILE") is kind


@pytest.mark.few(10)
@pytest.mark.parametrize("command", COMMANDS)
def test_another_kind_is_named(ilp_plan: Command, folder: Path, command: str) -> None:
    """In one line, with what reads it, and what was expected."""
    write_room(folder)
    words, taken = COMMANDS[command]
    for kind in FileKind:
        if kind in taken:
            continue
        write(folder, kind)
        done = ilp_plan(*words)
        assert done.code in (1, 2), (kind, done.out)
        assert f"found {as_typed(kind.value)}" in done.err, kind
        assert "expected" in done.err, kind
        assert done.err.count("\n") == 1, done.err
        assert "not valid" not in done.err
    assert not list(folder.glob("o.*"))


def test_what_is_expected_is_said_of_all_that_is_read() -> None:
    assert {kind for _, taken in COMMANDS.values() for kind in taken[:1]} <= EXPECTED.keys()


@pytest.mark.parametrize(
    ("line", "system"),
    [
        ("python -m axolotl.cli.train a.yaml", "Axolotl"),
        ("NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B", "ms-swift"),
        ("deepspeed --module openrlhf.cli.train_sft --max_len 2048", "OpenRLHF"),
    ],
)
def test_launches_of_other_systems_are_named(
    ilp_plan: Command, folder: Path, line: str, system: str
) -> None:
    (folder / "run.sh").write_text(f"#!/bin/bash\nset -x\n{line}\n")
    for words in (("fit", "run.sh", *GPUS), ("analyze", "--megatron-script", "run.sh")):
        done = ilp_plan(*words)
        assert done.code == 1
        assert f"run.sh: line 3: found a launch of {system}, which no command reads" in done.err
        assert "`ilp-plan fit MODEL --tp N --pp N --gpus 8xH100`" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("fit", "pair.toml", *GPUS),
            "pair.toml: found a cluster, which --cluster takes, expected a",
        ),
        (("solve", "--model", "pair.toml", *GPUS), "found a cluster, .* expected a model"),
        (
            ("solve", "--model", "tiny.toml", "--cluster", "tiny.toml"),
            "found a model, .* a cluster",
        ),
    ],
)
def test_models_and_clusters_are_told_apart(
    ilp_plan: Command, folder: Path, words: tuple[str, ...], message: str
) -> None:
    done = ilp_plan(*words)
    assert done.code == 1
    assert re.search(message, done.err), done.err
