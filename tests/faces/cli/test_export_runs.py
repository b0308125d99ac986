"""`ilp-plan export --to torchtitan | deepspeed | nemo`: files that belong together, or one line."""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.base.units import format_seconds
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.formats.saved_json import write_saved
from ilp_planner.formats.saved_plan import SavedPlan
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.plan import GroupPlan, Replica
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import OptimizerSettings, Settings, TrainingJob
from tests.faces.cli.conftest import Done

Command = Callable[..., Done]

ROOT = Path(__file__).parents[3]
MODEL, CLUSTER = ROOT / "models" / "llama3-8b.toml", ROOT / "clusters" / "b200-1x8.toml"
LAYERS = [15, 17]


def save(job: TrainingJob, file: Path) -> None:
    """Save the plan of a job on the eight devices."""
    save_plan(plan_of_job(job, read_cluster(CLUSTER), model="llama3-8b"), file)


def save_plan(plan: GroupPlan, file: Path) -> None:
    files = {
        "model": Reference(name=str(MODEL)),
        "cluster": Reference(name=str(CLUSTER)),
        "profile": Reference(name="analytic"),
    }
    inputs = Request(files=files, space="megatron", global_batch=plan.global_batch)
    write_saved(file, SavedPlan(plan=plan, inputs=inputs))


@pytest.fixture
def job() -> TrainingJob:
    model = read_model(MODEL).architecture
    assert isinstance(model, Decoder)
    return TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=16,
        tp=2,
        pp=2,
        dp=2,
        layout=split_layout(LAYERS),
        settings=Settings(
            sequence_parallel=True, optimizer=OptimizerSettings(sharding="optimizer")
        ),
    )


def export(ilp_plan: Command, to: str, output: str) -> Done:
    return ilp_plan("export", "plan.json", "--to", to, "--output", output, "--accept-changed")


def test_torchtitan(ilp_plan: Command, job: TrainingJob) -> None:
    save(job, Path("plan.json"))
    done = export(ilp_plan, "torchtitan@0.2.2", "run.toml")
    assert done.code == 0, done.err
    assert "note: settings.optimizer.sharding" in done.err
    tables = tomllib.loads(Path("run.toml").read_text())
    assert tables["model"] == {"name": "llama3", "flavor": "8B"}
    parts = tables["parallelism"]["module_fqns_per_model_part"]
    assert [sum(name.startswith("layers.") for name in part) for part in parts] == LAYERS
    assert not Path("run_model.py").exists()


def test_torchtitan_is_its_newest_release(ilp_plan: Command, job: TrainingJob) -> None:
    save(job, Path("plan.json"))
    texts = []
    for to in ("torchtitan", "torchtitan@0.3", "torchtitan@0.3.0"):
        done = export(ilp_plan, to, "run.py")
        assert done.code == 0, done.err
        assert "2 pipeline ranks of llama3-8b for torchtitan@0.3.0" in done.err
        texts.append(Path("run.py").read_text())
    assert len(set(texts)) == 1
    assert "tensor_parallel_degree=2" in texts[0]
    assert export(ilp_plan, "torchtitan", "my-run").code == 0
    assert Path("my_run.py").exists()


@pytest.mark.parametrize(
    ("to", "output", "found", "fixed"),
    [
        ("torchtitan@0.4", "run.py", "torchtitan@0.4", "torchtitan@0.3.0"),
        ("torchtitan@0.2.20", "run.toml", "torchtitan@0.2.20", "torchtitan@0.2.2"),
        ("torchtitan@", "run.py", "torchtitan@", "torchtitan@0.3.0"),
        ("torchtitn", "run.py", "torchtitn", "torchtitan"),
        ("megatron@0.15", "run.sh", "megatron@0.15", "megatron@0.16.1"),
        ("torchtitan", "my-run.py", "my-run.py", "my_run.py"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(
    ilp_plan: Command, job: TrainingJob, to: str, output: str, found: str, fixed: str
) -> None:
    save(job, Path("plan.json"))
    done = export(ilp_plan, to, output)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert f"found {found}" in done.err.replace("'", "")
    assert fixed in done.err.partition("expected")[2]
    fix = (fixed, output) if found == to else (to, fixed)
    assert export(ilp_plan, *fix).code == 0


def test_the_release_that_runs_a_plan_is_named(ilp_plan: Command, job: TrainingJob) -> None:
    """Whole sequences on tensor-parallel ranks are new in 0.3.0; so many more things are."""
    settings = replace(job.settings, sequence_parallel=False)
    save(replace(job, settings=settings), Path("plan.json"))
    done = export(ilp_plan, "torchtitan@0.2.2", "run.toml")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert done.err.startswith("ilp-plan: plan.json: settings.sequence_parallel: found false")
    assert "`torchtitan@0.3.0` runs it as it is" in done.err
    assert export(ilp_plan, "torchtitan@0.3.0", "run.py").code == 0


def test_deepspeed_writes_its_boundaries_beside(ilp_plan: Command, job: TrainingJob) -> None:
    save(job, Path("plan.json"))
    done = export(ilp_plan, "deepspeed", "my-run.json")
    assert done.code == 0, done.err
    assert json.loads(Path("my-run.json").read_text())["train_batch_size"] == 16
    boundaries = json.loads(Path("my-run_boundaries.json").read_text())
    assert [stage["layers"] for stage in boundaries["stages"]] == LAYERS
    assert Path("my_run_pipeline.py").exists()


def test_nemo(ilp_plan: Command, job: TrainingJob) -> None:
    save(job, Path("plan.json"))
    done = export(ilp_plan, "nemo", "run.yaml")
    assert done.code == 0, done.err
    assert 'pipeline_model_parallel_layout: "Et*15|t*17L"' in Path("run.yaml").read_text()


def test_a_refusal_names_the_plan_and_writes_nothing(ilp_plan: Command, job: TrainingJob) -> None:
    virtual = replace(job, layout=split_layout([8, 8, 8, 8]))
    save(virtual, Path("plan.json"))
    done = export(ilp_plan, "deepspeed", "run.json")
    assert done.code == 1
    assert done.err.startswith("ilp-plan: plan.json: layout: found 2 virtual stages per rank")
    assert "nearest it can run: layout = Et*16|t*16L" in done.err
    assert done.err.count("\n") == 1
    assert not Path("run.json").exists()


def test_a_refusal_offers_the_nearest_plan_with_its_time(
    ilp_plan: Command, job: TrainingJob
) -> None:
    """What differs, the seconds of both, and an option that writes it."""
    virtual = replace(job, layout=split_layout([8, 8, 8, 8]))
    save(virtual, Path("plan.json"))
    done = export(ilp_plan, "deepspeed", "run.json")
    offer = re.search(
        r"; nearest plan that it runs: layout Et\*16\|t\*16L instead of Et\*8\|t\*8\|t\*8\|t\*8L; "
        r"(\S+ m?s) per iteration, (\S+ %) slower than (\S+ m?s); --nearest writes it$",
        done.err.strip(),
    )
    assert offer, done.err
    written = ilp_plan(
        *("export", "plan.json", "--to", "deepspeed", "--output", "run.json", "--nearest"),
        "--accept-changed",
    )
    assert written.code == 0, written.err
    said = "note: not the plan, but the nearest that deepspeed@0.19.8 runs: layout Et*16|t*16L"
    assert said in written.err
    parts = json.loads(Path("run_boundaries.json").read_text())["stages"]
    assert [part["layers"] for part in parts] == [16, 16]
    before = ilp_plan("evaluate", "plan.json", "--accept-changed", "--json")
    assert format_seconds(json.loads(before.out)["iteration_time_s"]) == offer[3]
    save(replace(job, layout=split_layout([16, 16])), Path("other.json"))
    after = ilp_plan("evaluate", "other.json", "--accept-changed", "--json")
    assert format_seconds(json.loads(after.out)["iteration_time_s"]) == offer[1]


def test_what_no_training_job_says_has_a_nearest_plan_too(
    ilp_plan: Command, job: TrainingJob
) -> None:
    """Stages of other degrees: no runtime has them."""
    plan = plan_of_job(job, read_cluster(CLUSTER), model="llama3-8b")
    first, second = plan.stages
    whole = Replica(devices=tuple(d for r in second.replicas for d in r.devices), samples=2)
    other = replace(plan, stages=(first, replace(second, replicas=(whole,))), settings=None)
    save_plan(other, Path("plan.json"))
    done = export(ilp_plan, "torchtitan", "run.py")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "stages[1].tp: found 4, but Megatron-LM has one" in done.err
    offer = re.search(
        r"; --nearest writes what torchtitan@0.3.0 runs: (tp .* iteration)$", done.err
    )
    assert offer, done.err
    options = ("--to", "torchtitan", "--output", "run.py", "--nearest", "--accept-changed")
    written = ilp_plan("export", "plan.json", *options)
    assert written.code == 0, written.err
    assert f"the nearest that torchtitan@0.3.0 runs: {offer[1]}" in written.err
    degree = re.match(r"tp (\d+)", offer[1])
    assert degree
    assert f"tensor_parallel_degree={degree[1]}" in Path("run.py").read_text()


def test_a_plan_that_is_run_is_its_own_nearest(ilp_plan: Command, job: TrainingJob) -> None:
    save(job, Path("plan.json"))
    for option in ((), ("--nearest",)):
        done = ilp_plan(
            *("export", "plan.json", "--to", "torchtitan", "--output", "run.py"),
            *("--accept-changed", *option),
        )
        assert done.code == 0
        assert "not the plan" not in done.err


def test_another_model_of_torchtitan_can_be_imported(ilp_plan: Command, job: TrainingJob) -> None:
    """The module has the name that the configuration imports."""
    Path("my-model.toml").write_text(MODEL.read_text().replace("ffn = 14336", "ffn = 14848"))
    save(job, Path("plan.json"))
    data = json.loads(Path("plan.json").read_text())
    data["inputs"]["model"]["name"] = "my-model.toml"
    Path("plan.json").write_text(json.dumps(data))
    done = export(ilp_plan, "torchtitan@0.2.2", "my-run.toml")
    assert done.code == 0, done.err
    name = tomllib.loads(Path("my-run.toml").read_text())["experimental"]["custom_import"]
    assert Path(f"{name}.py").exists()


def test_settings_for_a_system_that_takes_none_are_noted(
    ilp_plan: Command, job: TrainingJob
) -> None:
    save(job, Path("plan.json"))
    mine = Path("mine.toml")
    mine.write_text(f"{MODEL.read_text()}\n[export.deepspeed]\nzero = 3\n")
    value = json.loads(Path("plan.json").read_text())
    value["inputs"]["model"]["name"] = str(mine)
    Path("plan.json").write_text(json.dumps(value))
    note = "note: [export.deepspeed] of llama3-8b: without effect, only Aceso's files take settings"
    assert note in export(ilp_plan, "deepspeed", "run.json").err
    assert "without effect" not in export(ilp_plan, "nemo", "run.yaml").err
