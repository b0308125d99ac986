"""`solve --runtime megatron`: solved, saved, judged, proved again, compared; and bad usage."""

import json
from pathlib import Path

import pytest

from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model_reader import read_model
from tests.examples import often

MODEL = """\
name = "short"
family = "gpt"
precision = "fp16"

[architecture]
layers = 6
hidden = 512
heads = 8
sequence = 512
vocab = 4000
"""
UNEVEN = """\
name = "uneven"

[[nodes]]
device = "v100-sxm2-32gb"
devices = 2

[[nodes]]
device = "v100-sxm2-32gb"
devices = 1
"""


@pytest.fixture
def asked(folder: Path) -> list[str]:
    (folder / "short.toml").write_text(MODEL)
    return [
        "--runtime", "megatron", "--model", "short.toml", "--cluster", "v100-32gb-1x4",
        "--global-batch-size", "16",
    ]  # fmt: skip


def test_a_plan_is_solved_saved_judged_and_proved_again(ilp_plan, asked, folder):
    solved = ilp_plan("solve", *asked, "--output", "plan.json", "--verbose")
    assert solved.code == 0
    assert "plans           space megatron" in solved.out
    assert "gap             0 % (proved optimal)" in solved.out
    assert "training        " in solved.out
    judged = ilp_plan("evaluate", "plan.json", "--check-certificate", "--json")
    assert judged.code == 0
    found = json.loads(judged.out)
    assert found["legal"]
    assert found["certificate"]["holds"]
    assert found["settings"]["optimizer"]["sharding"] == "optimizer"
    saved = read_saved(folder / "plan.json")
    assert saved.inputs.space == "megatron"
    assert saved.plan.settings.kernels.attention == "unfused"  # a V100 has no other


def test_the_plan_is_a_training_job(ilp_plan, asked, folder, request):
    assert ilp_plan("solve", *asked, "--output", "plan.json").code == 0
    saved = read_saved(folder / "plan.json")
    cluster = read_cluster(request.config.rootpath / "clusters" / "v100-32gb-1x4.toml")
    job = job_of_plan(saved.plan, read_model(folder / "short.toml"), cluster)
    assert job.world == 4
    assert job.global_batch == 16


def test_the_best_plans_and_the_json(ilp_plan, asked):
    done = ilp_plan("solve", *asked, "--top", "3", "--json")
    found = json.loads(done.out)
    assert found["space"] == "megatron"
    assert found["gap"] == 0
    times = [entry["objective_s"] for entry in found["ranking"]]
    assert times == sorted(times)
    assert len(times) == 3


def test_plans_are_compared(ilp_plan, asked):
    assert ilp_plan("solve", *asked, "--output", "best.json").code == 0
    assert ilp_plan("solve", *asked, "--max-tp", "1", "--max-stages", "1",
                    "--output", "plain.json").code == 0  # fmt: skip
    done = ilp_plan("compare", "best.json", "plain.json", "--solvers", "cp-sat")
    assert done.code == 0
    assert "best.json" in done.out
    assert "plain.json" in done.out


@pytest.mark.slow
def test_a_tampered_certificate_is_refuted(ilp_plan, asked, folder):
    assert ilp_plan("solve", *asked, "--output", "plan.json").code == 0
    value = json.loads((folder / "plan.json").read_text())
    for part in value["certificate"]["parts"]:
        if part["bound_s"] is not None:
            part["bound_s"] *= 1.5
    (folder / "plan.json").write_text(json.dumps(value))
    done = ilp_plan("evaluate", "plan.json", "--check-certificate")
    assert done.code != 0
    assert "NO" in done.out


def test_what_does_not_fit_is_proved(ilp_plan, asked):
    done = ilp_plan("solve", *asked, "--memory-limit", "900MiB")
    assert done.code == 3
    assert "more memory than it has" in done.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--space", "groups"], "--space: found groups with --runtime megatron"),
        (["--profile", "amp:x"], "--profile: found amp with --runtime megatron"),
        (["--cost-model", "amp"], "--runtime megatron: expected --cost-model native, "),
        (["--hidden-size", "64"], "--hidden-size: expected --profile metis:FOLDER"),
    ],
)
def test_options_that_contradict_each_other(ilp_plan, asked, more, message):
    done = ilp_plan("solve", *asked, *more)
    assert done.code == 2
    assert message in done.err


def test_context_parallelism_is_of_this_runtime_only(ilp_plan, tiny):
    done = ilp_plan("solve", *tiny, "--space", "groups", "--max-cp", "2")
    assert done.code == 2
    assert "--max-cp 2: expected --runtime megatron, found groups" in done.err
    done = ilp_plan("solve", *tiny, "--space", "operators", "--max-cp", "2")
    assert done.code == 2
    assert ilp_plan("solve", *tiny, "--max-cp", "2").code == 0


def test_decoders_are_planned_for_megatron(ilp_plan, folder):
    text = MODEL.replace('family = "gpt"', 'family = "decoder"')
    (folder / "short.toml").write_text(text)
    done = ilp_plan("solve", "--model", "short.toml", "--cluster", "v100-32gb-1x4",
                    "--global-batch-size", "16")  # fmt: skip
    assert done.code == 0
    assert "no Megatron plan" in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "runtime", often(["torchtitan", "torchtitan@0.2.2", "deepspeed"], "torchtitan", "deepspeed")
)
def test_other_runtimes_get_plans_that_are_exported_to_them(ilp_plan, folder, runtime):
    """And proved again from the saved file."""
    asked = ("llama2-7b", "--gpus", "4xH100", "--global-batch-size", "8", "--runtime", runtime)
    solved = ilp_plan("solve", *asked, "--output", "plan.json", "--verbose")
    assert solved.code == 0, solved.err
    assert f"plans           space {runtime}" in solved.out
    assert "of Megatron-LM's kernels, buffers and schedules" in solved.out
    assert read_saved(folder / "plan.json").inputs.space == runtime
    assert ilp_plan("evaluate", "plan.json", "--check-certificate").code == 0
    exported = ilp_plan("export", "plan.json", "--to", runtime, "--output", "run")
    assert exported.code == 0, exported.err
    assert ilp_plan("solve", *asked, "--space", "megatron").code == 2


def test_a_model_that_torchtitan_does_not_have(ilp_plan):
    for runtime, title in (("torchtitan", "0.3.0"), ("torchtitan@0.2.2", "0.2.2")):
        done = ilp_plan("solve", "gpt3-1.3b", "--gpus", "8xH100", "--runtime", runtime)
        assert done.code == 1
        said = f"model 'gpt3-1.3b': model.norm: found layernorm, but torchtitan {title}'s"
        assert said in done.err
