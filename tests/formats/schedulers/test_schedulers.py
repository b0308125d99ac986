"""Slurm and Kubernetes around every export: read by bash and by schemas, run with stand-ins of the
programs, and read back as the job that the export alone is."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ilp_planner.base.errors import PlanError, PlannerError, UsageError
from ilp_planner.faces.cli.completion import targets
from ilp_planner.formats.exported import Expected, Exported, file_name
from ilp_planner.formats.exports import EXPORTS, SCHEDULERS, Runtime, export_job, runtime_of
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.script import read_script
from ilp_planner.settings.values import as_transformers
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import OptimizerSettings, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning

HERE = Path(__file__).parent
MODEL = read_model(HERE.parents[2] / "models" / "llama3-8b.toml").architecture
assert isinstance(MODEL, Decoder)
NODES, DEVICES = 2, 4
RUNTIMES = [
    Runtime(name, release)
    for name, releases in EXPORTS.items()
    for release in releases
    if name != "autoparallel"  # has no pipelines, which the plan here has
]
READABLE = {"megatron", "torchtitan@0.3.0", "torchtitan@0.2.2", "nemo@0.3.1"}
NAMES = ("run", "a plan's $(touch owned) 9")
# Slurm's stand-ins: the ranks are started one after the other, and torchrun says its words.
STAND_INS = {
    "scontrol": 'echo "host0\nhost1"',
    "srun": "while [[ $1 == -* ]]; do shift; done\n"
    'for k in 0 1; do SLURM_PROCID=$k "$@" || exit; done',
    "torchrun": 'printf "%s|" "$@"; echo',
    "megatron": 'printf "%s|" --nnodes "$NNODES" --nproc-per-node "$NPROC_PER_NODE" '
    '--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" "$@"; echo',
}


def job(**changes: object) -> TrainingJob:
    values = {
        "model": MODEL,
        "micro_batch": 1,
        "global_batch": 16,
        "tp": 2,
        "pp": 2,
        "dp": 2,
        "layout": split_layout([15, 17]),
        "settings": Settings(
            sequence_parallel=True, optimizer=OptimizerSettings(sharding="gradients")
        ),
        "devices_per_node": DEVICES,
    }
    return TrainingJob(**{**values, **changes})


def job_for(runtime: Runtime) -> TrainingJob:
    """Return a job that a training system runs: with other shards where it must be."""
    if runtime.system == "peft":
        tuning = Tuning(rank=8, targets=("q_proj",), adapters="fp32")
        return job(tp=1, pp=1, dp=8, layout=None, settings=as_transformers(Settings(tuning=tuning)))
    for sharding in ("optimizer", "gradients", "none"):
        optimizer = OptimizerSettings(sharding=sharding)
        tried = job(settings=replace(job().settings, optimizer=optimizer))
        try:
            export_job(runtime, tried, "run", Expected())
        except PlanError:
            continue
        return tried
    raise AssertionError(runtime)


def wrapped(runtime: Runtime, scheduler: str, name: str = "run", **expected: Any) -> Exported:
    around = runtime._replace(scheduler=scheduler)
    return export_job(around, job_for(runtime), name, Expected(vendor="NVIDIA", **expected))


def write(exported: Exported, folder: Path, name: str = "run") -> Path:
    """Return the main file, written with the others."""
    files = [folder / file_name(name, suffix) for suffix in exported.files]
    for file, text in zip(files, exported.files.values(), strict=True):
        file.write_text(text)
    return files[0]


@pytest.fixture
def bash(tmp_path: Path) -> Callable[..., str]:
    """Return what runs a script in an empty folder, with the stand-ins first in PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)

    def run(*words: str, fails: bool = False, **environment: str) -> str:
        path = f"{programs}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", *words], cwd=tmp_path, env={"PATH": path, **environment}, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


def held(ranks: list[str], master: str) -> None:
    """Hold the words of the launchers to the nodes and devices of the job."""
    assert len(ranks) == NODES
    for rank, line in enumerate(ranks):
        words = line.split("|")
        said = dict(pairwise(words))
        assert said["--nnodes"] == str(NODES)
        assert said["--nproc-per-node"] == str(DEVICES)
        assert said["--node-rank"] == str(rank)
        assert said["--master-addr"] == master
        assert words[-3:-1] == ["--more", "a b"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
def test_slurm_starts_one_launcher_on_each_node(
    bash: Callable[..., str], tmp_path: Path, runtime: Runtime, name: str
) -> None:
    exported = wrapped(runtime, "slurm", name)
    script = write(exported, tmp_path, name)
    text = script.read_text()
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", text, re.MULTILINE))
    assert asked.pop("job-name") in ("run", "a-plan-s-touch-owned-9")
    each = {"nodes": str(NODES), "ntasks-per-node": "1", "gpus-per-node": str(DEVICES)}
    assert asked == {**each, "mem": "0"}
    assert not bash("-n", script.name)
    needed = re.findall(r"^(\w+): set it where sbatch", "\n".join(exported.notes), re.MULTILINE)
    given = dict.fromkeys(needed, "program.py")
    words = ("--more", "a b")
    said = bash(script.name, *words, SLURM_JOB_NODELIST="host[0-1]", **given)
    held(said.splitlines(), "host0")
    for one in needed:  # what only the user knows is asked for, and nothing starts
        left = {key: value for key, value in given.items() if key != one}
        assert f"{one}: " in bash(script.name, SLURM_JOB_NODELIST="x", fails=True, **left)
    assert not (tmp_path / "owned").exists()


def objects(exported: Exported) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ConfigMap and the JobSet of the only file."""
    (text,) = exported.files.values()
    held, started = yaml.safe_load(text)["items"]
    return held, started


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
def test_kubernetes_has_a_pod_for_each_node(
    bash: Callable[..., str], tmp_path: Path, runtime: Runtime, name: str
) -> None:
    exported = wrapped(runtime, "kubernetes", name)
    config, started = objects(exported)
    schema = json.loads((HERE / "jobset.json").read_text())["schema"]
    jsonschema.Draft202012Validator(schema).validate(started)
    assert (started["apiVersion"], started["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert (config["apiVersion"], config["kind"]) == ("v1", "ConfigMap")
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", key) for key in config["data"])
    own = started["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", own)
    assert len(own) + len("-nodes-0-0") <= 63
    (nodes,) = started["spec"]["replicatedJobs"]
    batch = nodes["template"]["spec"]
    assert batch["completions"] == batch["parallelism"] == NODES
    (trainer,) = batch["template"]["spec"]["containers"]
    assert trainer["resources"]["limits"] == {"nvidia.com/gpu": DEVICES}
    volume = batch["template"]["spec"]["volumes"][0]["configMap"]
    assert volume["name"] == config["metadata"]["name"]
    for item in volume["items"]:  # as the kubelet puts them into the folder
        (tmp_path / item["path"]).write_text(config["data"][item["key"]])
    given = {one["name"]: one.get("value", "") for one in trainer["env"]}
    folder = trainer["volumeMounts"][0]["mountPath"]
    command = [word.replace(folder, ".") for word in trainer["command"]]
    lines = []
    for rank in range(NODES):
        given["NODE_RANK"] = str(rank)
        lines += bash(*command[1:], "--more", "a b", **given).splitlines()
    held(lines, f"{own}-nodes-0-0.{own}")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
def test_it_reads_back_as_the_export_alone(
    tmp_path: Path, runtime: Runtime, scheduler: str
) -> None:
    def job_in(path: Path) -> TrainingJob | None:
        try:
            return job_of_arguments(read_script(path, NODES * DEVICES, environment={}))
        except PlannerError:
            return None

    alone = tmp_path / "alone"
    alone.mkdir()
    inner = job_in(write(export_job(runtime, job_for(runtime), "run", Expected()), alone))
    assert (str(runtime) in READABLE) == (inner is not None)
    told = inner and replace(inner, devices_per_node=DEVICES)  # which a launch says
    assert job_in(write(wrapped(runtime, scheduler), tmp_path)) == told


def test_nodes_that_differ_are_named(bash: Callable[..., str], tmp_path: Path) -> None:
    """Slurm asks for their names by rank; pods run anywhere, so that there is no such export."""
    hosts = {"hosts": ("fast 0", "slow\n0"), "ordered": True}
    script = write(wrapped(RUNTIMES[0], "slurm", **hosts), tmp_path)
    assert "# NODE_RANK 1: slow 0\n" in script.read_text()
    assert "HOSTS: names of the nodes" in bash(script.name, fails=True)
    held(bash(script.name, "--more", "a b", HOSTS="n7 n3").splitlines(), "n7")
    with pytest.raises(PlanError, match=r"^nodes: found fast 0, .* expected nodes that are alike"):
        wrapped(RUNTIMES[0], "kubernetes", **hosts)


def test_a_part_of_a_node_is_not_all_of_it() -> None:
    one = job(dp=1, pp=1, layout=split_layout([32]), global_batch=8)
    exported = export_job(runtime_of("slurm:megatron"), one, "run", Expected())
    assert "--exclusive" not in exported.files[".sbatch"]
    assert "cpus-per-task" in exported.notes[1]


@pytest.mark.parametrize(("vendor", "resource"), [("AMD", "amd.com/gpu"), ("", "${RESOURCE}")])
def test_gpus_are_asked_for_by_their_vendor(vendor: str, resource: str) -> None:
    around = RUNTIMES[0]._replace(scheduler="kubernetes")
    exported = export_job(around, job(), "run", Expected(vendor=vendor))
    (nodes,) = objects(exported)[1]["spec"]["replicatedJobs"]
    (trainer,) = nodes["template"]["spec"]["template"]["spec"]["containers"]
    assert trainer["resources"]["limits"] == {resource: DEVICES}
    assert ("RESOURCE" in " ".join(exported.notes)) == (not vendor)


def test_names_of_targets() -> None:
    assert str(runtime_of("slurm", own="torchtitan@0.2.2")) == "slurm:torchtitan@0.2.2"
    assert str(runtime_of("kubernetes:torchtitan", own="megatron")) == "kubernetes:torchtitan@0.3.0"
    with pytest.raises(UsageError, match="found 'slurm' and a plan of groups, expected slurm: and"):
        runtime_of("slurm", own="groups")
    for wrong in ("slurm:lp", "slurm:", "slurm:slurm:megatron"):
        with pytest.raises(UsageError, match=f"found '{wrong}', expected slurm: and the training"):
            runtime_of(wrong)
    with pytest.raises(UsageError, match=r"found 'pbs:megatron', expected one of .*slurm"):
        runtime_of("pbs:megatron")
    assert targets("slurm:torchtitan@") == [f"slurm:torchtitan@{r}" for r in EXPORTS["torchtitan"]]
    assert targets("sl") == ["slurm"]
    assert targets("pbs:") == []


def test_a_job_that_somebody_wrote_is_read_by_its_command(tmp_path: Path) -> None:
    line = (
        "torchrun --nnodes=$(NODES) --nproc-per-node=8 pretrain_gpt.py --num-layers 4 "
        "--hidden-size 64 --num-attention-heads 4 --micro-batch-size $MICRO --seq-length 128 "
        "--max-position-embeddings 128 --vocab-size 999"
    )
    variables = [{"name": "NODES", "value": "2"}, {"name": "MICRO", "value": "3"}]
    container = {"name": "x", "env": variables, "command": ["bash", "-c"], "args": [line]}
    master = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    args = read_script(path, environment={})
    assert (args.world, args.whole("micro_batch_size")) == (16, 3)
    container.pop("args")
    container.pop("command")
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    with pytest.raises(PlannerError, match="found no container with a command, expected one that"):
        read_script(path, environment={})
