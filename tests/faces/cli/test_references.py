"""Files that name others: each name means the same from every folder, whatever lies there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.peers.metis.files import write_metis_profile
from tests import amp_cases
from tests.examples import often
from tests.faces.cli.conftest import Done
from tests.metis_cases import synthetic_profile
from tests.mixed_cases import LAYERS, SIZE_OPTIONS, SPEEDS, write_room
from tests.small import write_specs

Command = Callable[..., Done]

LAUNCH = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size {hidden} "
    "--num-attention-heads 8 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 "
    "--global-batch-size 8 --vocab-size 1000 --tokenizer-type NullTokenizer --bf16 --mock-data\n"
)
HOSTS = ("--hostfile", "hostfile", "--clusterfile", "clusterfile.json")
METIS = ("--profile", "metis:profile", *SIZE_OPTIONS, "--global-batch-size", "16")
TRAIN = ("solve", "tiny.toml", "--gpus", "16xA100-80GB", "--global-batch-size", "16")
# Commands in a folder with all that they name, each of which writes plans to another one.
WRITERS: dict[str, tuple[str, ...]] = {
    "operators": ("solve", "tiny.toml", "pair.toml", "--global-batch-size", "16"),
    "training": (*TRAIN, "--space", "megatron", "--pp", "2"),
    "own model beside": ("solve", "--model", "models/tiny.toml", "--cluster", "pair.toml",
                         "--global-batch-size", "8"),
    "hostfile": ("solve", *HOSTS, *METIS),
    "cluster and folder": ("solve", "--cluster", "room.toml", *METIS),
    "table": ("solve", "--cluster", "room.toml", "--profile", "table.csv", *SIZE_OPTIONS,
              "--global-batch-size", "16"),
    "tables": ("solve", "--cluster", "room.toml", "--profile", "table:./table.csv,models/more.csv",
               *SIZE_OPTIONS, "--global-batch-size", "16"),
    "amp": ("solve", "--profile", "amp:amp.json", "--space", "amp", "--cost-model", "amp"),
    "launch": ("import", "megatron", "run.sh", "--gpus", "8xH100"),
    "constraints": (*TRAIN, "--space", "megatron", "--constraints", "asked/keep.toml"),
    "replan": ("replan", "asked/plan.json", "--without", "node1"),
}  # fmt: skip


def write_all(folder: Path, *, slower: int = 1) -> None:
    """Write all files that the commands name; slower: others of the same names."""
    folder.mkdir(parents=True, exist_ok=True)
    write_specs(folder)
    write_room(folder)
    (folder / "models").mkdir(exist_ok=True)
    (folder / "run.sh").write_text(LAUNCH.format(hidden=1024 * slower))
    for name in ("tiny.toml", "pair.toml"):
        text = (folder / name).read_text().replace("hidden = 256", f"hidden = {256 * slower}")
        text = text.replace("100 TFLOP/s", f"{100 // slower} TFLOP/s")
        (folder / name).write_text(text)
        (folder / "models" / name).write_text(text)
    speeds = {name: speed * slower for name, speed in SPEEDS.items()}
    shutil.rmtree(folder / "profile")
    write_metis_profile(synthetic_profile(speeds, LAYERS), folder / "profile")
    amp = json.dumps(amp_cases.content()).replace("1024", str(1024 * slower))
    (folder / "amp.json").write_text(amp)


@pytest.fixture
def lie(
    ilp_plan: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Make three folders, all but the first with other files of the same names; go to one."""

    def enter(name: str) -> None:
        monkeypatch.chdir(tmp_path / name)

    for name, slower in (("from", 1), ("to", 2), ("third", 4)):
        write_all(tmp_path / name, slower=slower)
        enter(name)
        done = ilp_plan("profile", "import", "metis", "profile", "--output", "table.csv")
        assert done.code == 0, done.err
    (tmp_path / "from" / "asked").mkdir()
    return enter


def seen(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return {key: found[key] for key in ("iteration_time_s", "stages", "model", "cluster")}


@pytest.mark.slow
@pytest.mark.parametrize("name", often(WRITERS, "training", "hostfile", "constraints"))
def test_a_plan_is_the_same_from_everywhere(
    ilp_plan: Command, lie: Callable[[str], None], tmp_path: Path, name: str
) -> None:
    lie("from")
    words = list(WRITERS[name])
    if name == "tables":
        rows = (tmp_path / "from" / "table.csv").read_text().splitlines(keepends=True)
        split = 1 + next(k for k, row in enumerate(rows) if row[0] != "#")
        head, body = rows[:split], rows[split:]
        (tmp_path / "from" / "table.csv").write_text("".join([*head, *body[::2]]))
        (tmp_path / "from" / "models" / "more.csv").write_text("".join([*head, *body[1::2]]))
    if name in ("constraints", "replan"):
        done = ilp_plan(*WRITERS["training"], "--output", "asked/plan.json")
        assert done.code == 0, done.err
        text = '[constraints]\nkeep = "plan.json:stage0"\n'
        (tmp_path / "from" / "asked" / "keep.toml").write_text(text)
        if name == "constraints":
            words += ["--pp", "2"]
    outputs = "--output-fastest" if name == "replan" else "--output"
    done = ilp_plan(*words, outputs, "../to/p.json")
    assert done.code == 0, done.err
    here = seen(ilp_plan("evaluate", "../to/p.json", "--json"))
    for folder in ("to", "third"):
        lie(folder)
        there = tmp_path / "to" / "p.json"
        for file in ("p.json" if folder == "to" else "../to/p.json", there):
            assert seen(ilp_plan("evaluate", file, "--json")) == here
            assert seen(ilp_plan("evaluate", file, "--accept-changed", "--json")) == here


@pytest.mark.slow
def test_a_profile_that_is_gone_is_not_another_one(
    ilp_plan: Command, lie: Callable[[str], None], tmp_path: Path
) -> None:
    """A file of its name in the current folder is not taken for it."""
    lie("from")
    assert ilp_plan(*WRITERS["table"], "--output", "../to/p.json").code == 0
    (tmp_path / "from" / "table.csv").unlink()
    lie("third")
    for more in ([], ["--accept-changed"]):
        done = ilp_plan("evaluate", "../to/p.json", *more)
        assert done.code == 1
        assert "../from/table.csv: no such file" in done.err


def test_the_model_of_a_launch_is_its_own(
    ilp_plan: Command, lie: Callable[[str], None], tmp_path: Path
) -> None:
    """What is called as the model that is written is another one."""
    lie("from")
    assert (
        ilp_plan("import", "megatron", "run.sh", "--gpus", "8xH100", "--output", "p.json").code == 0
    )
    lie("third")
    (tmp_path / "third" / "sub").mkdir()
    shutil.copy(tmp_path / "from" / "p-model.toml", "p-model.toml")
    done = ilp_plan("import", "megatron", "run.sh", "--gpus", "8xH100", "--output", "sub/p.json")
    assert done.code == 0
    mine, other = (
        seen(ilp_plan("evaluate", file, "--json"))["iteration_time_s"]
        for file in ("sub/p.json", "../from/p.json")
    )
    assert mine > other  # four times as wide


def test_scripts_read_what_lies_beside_them(
    ilp_plan: Command, lie: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "from" / "sizes.sh").write_text("HIDDEN=1024\n")
    (tmp_path / "third" / "sizes.sh").write_text("HIDDEN=2048\n")
    text = f"source ./sizes.sh\n{LAUNCH.format(hidden='$HIDDEN')}"
    (tmp_path / "from" / "run.sh").write_text(text)
    lie("third")
    done = ilp_plan("analyze", "--megatron-script", "../from/run.sh", "--json")
    assert json.loads(done.out)["jobs"][0]["architecture"]["hidden"] == 1024, done.err


def test_runs_of_a_table_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ilp_planner.analysis.calibration.runs import read_runs
    from tests.analysis.calibration.machines import lab

    for name, hidden in (("runs", 1024), ("here", 2048)):
        write_all(tmp_path / name, slower=hidden // 1024)
    (tmp_path / "runs" / "runs.csv").write_text("run,seconds\nrun.sh,1.5\n")
    monkeypatch.chdir(tmp_path / "here")
    (run,) = read_runs(Path("../runs/runs.csv"), lab())
    assert run.job.model.hidden == 1024


def test_a_sweep_elsewhere_reads_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a cluster run in folders of their own."""
    from ilp_planner.inputs.references import named_from
    from ilp_planner.inputs.request import Reference, Request

    for name in ("from", "there"):
        write_all(tmp_path / name)
    monkeypatch.chdir(tmp_path / "there")
    names = {"model": "tiny.toml", "cluster": "8xH100", "profile": "metis:profile"}
    request = Request(files={kind: Reference(name=name) for kind, name in names.items()})
    found = {k: one.name for k, one in named_from(request, tmp_path / "from").files.items()}
    start = tmp_path / "from"
    assert found == {
        "model": str(start / "tiny.toml"),
        "cluster": "8xH100",
        "profile": f"metis:{start / 'profile'}",
    }
    assert named_from(request, tmp_path / "there") == request
