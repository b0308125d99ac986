"""Models of long and odd names are planned, saved, judged, drawn and written for every runtime."""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from ilp_planner.faces.cli.main import run
from ilp_planner.formats.exports import EXPORTS
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.formats.saved_json import write_saved
from ilp_planner.formats.saved_plan import SavedPlan
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import OptimizerSettings, Settings, TrainingJob

ROOT = Path(__file__).parents[2]
MODEL, CLUSTER = ROOT / "models" / "llama3-8b.toml", ROOT / "clusters" / "b200-1x8.toml"
NAMES = {
    "long": "x" * 5000,
    "long and wide": "名" * 2000,
    "shell": """a'b"c $(touch owned) `touch owned` ; touch owned #\\ ${HOME} !x *""",
    "markup": """<script>alert(1)</script> {{ 7 * 7 }} {% x %} %s %(a)s {0}""",
    "lines": "a\nb: c\r\n- d\n\"\"\"\n'''\n]\n[x]\n",
    "controls": "a\x00b\x1b[2Jc\x07\u202ed\u2028e\u0085f",
}
OWN = ("peft", "autoparallel")  # plans of another space, or without a pipeline: their own tests
RUNTIMES = [
    f"{to}@{one}" if one else to
    for to, releases in EXPORTS.items()
    for one in releases
    if to not in OWN
]
CHANGED = "--accept-changed"  # the plan was saved without hashes


@pytest.fixture(params=NAMES)
def saved(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a saved plan for a model of an odd name, in the current folder."""
    monkeypatch.chdir(tmp_path)
    name = NAMES[request.param]
    text = MODEL.read_text().replace('"llama3-8b"', json.dumps(name), 1)
    (tmp_path / "model.toml").write_text(text)
    shutil.copy(CLUSTER, tmp_path / "cluster.toml")
    spec = read_model(tmp_path / "model.toml")
    assert isinstance(spec.architecture, Decoder)
    job = TrainingJob(
        model=spec.architecture,
        micro_batch=1,
        global_batch=16,
        tp=2,
        pp=2,
        dp=2,
        layout=split_layout([15, 17]),
        settings=Settings(
            sequence_parallel=True, optimizer=OptimizerSettings(sharding="optimizer")
        ),
    )
    plan = plan_of_job(job, read_cluster(CLUSTER), model=spec.name)
    files = {
        "model": Reference(name="model.toml"),
        "cluster": Reference(name="cluster.toml"),
        "profile": Reference(name="analytic"),
    }
    inputs = Request(files=files, space="megatron", global_batch=plan.global_batch)
    write_saved(tmp_path / "plan.json", SavedPlan(plan=plan, inputs=inputs))
    return tmp_path


def check(file: Path) -> None:
    """Hold a file to being one of its kind, wherever a name stands in it."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".sh":
        done = subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    elif file.suffix == ".py":
        compile(text, file.name, "exec")
    elif file.suffix == ".json":
        json.loads(text)
    elif file.suffix == ".toml":
        tomllib.loads(text)
    elif file.suffix in (".yaml", ".yml"):
        assert isinstance(yaml.safe_load(text), dict)
    else:
        assert file.suffix in (".html", ".txt"), file


def test_whatever_is_written_is_of_its_kind(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what is printed steers no terminal."""
    given = {*saved.iterdir()}
    for number, to in enumerate(RUNTIMES):
        code = run(["export", "plan.json", "--to", to, "--output", f"run{number}", CHANGED])
        assert code == 0, (to, capsys.readouterr().err)
    for words in (("show", "--html", "plan.html", "--trace", "trace.json"), ("evaluate",)):
        assert run([words[0], "plan.json", *words[1:], CHANGED]) == 0, capsys.readouterr().err
    written = {*saved.iterdir()} - given
    assert len(written) > len(RUNTIMES)
    for file in written:
        check(file)
    said = "".join(capsys.readouterr())
    assert not {*said} & {*"\x00\x1b\x07\u202e\u2028\x85"}
    assert not (saved / "owned").exists()
