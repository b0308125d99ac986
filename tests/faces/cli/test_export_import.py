"""`ilp-plan export` and `ilp-plan import`: there and back."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.formats.saved_json import read_saved
from tests.faces.cli.conftest import Done
from tests.small import ACESO

Command = Callable[..., Done]


def test_there_and_back(ilp_plan: Command, saved: Path) -> None:
    done = ilp_plan("export", saved, "--to", "aceso", "--output", "a.json")
    assert done.code == 0
    assert "2 stages of tiny" in done.err
    names = ["--model", "tiny.toml", "--cluster", "pair.toml"]
    done = ilp_plan("import", "aceso", "a.json", *names, "--output", "back.json")
    assert done.code == 0
    assert "legal" in done.out
    back = read_saved(Path("back.json"))
    assert back.plan == read_saved(saved).plan
    assert back.inputs == read_saved(saved).inputs
    assert back.claim is None
    assert ilp_plan("evaluate", "back.json").code == 0


def test_export_needs_no_profile_and_says_what_the_plan_breaks(
    ilp_plan: Command, saved: Path
) -> None:
    data = json.loads(saved.read_text())
    data["inputs"]["profile"] = {"name": "aceso:gone", "sha256": "00"}
    data["evaluation"].update(legal=False, violations=["stage 0: memory"])
    saved.write_text(json.dumps(data))
    done = ilp_plan("export", saved, "--to", "aceso", "--output", "a.json")
    assert done.code == 0
    assert "note: plan.json breaks stage 0: memory" in done.err


def test_export_of_a_plan_whose_model_has_changed(ilp_plan: Command, saved: Path) -> None:
    """The plan holds its model: only where that is accepted, today's counts, here another one."""
    model = Path("tiny.toml")
    model.write_text(model.read_text().replace("layers = 2", "layers = 3"))
    arguments = [saved, "--to", "aceso", "--output", "a.json"]
    done = ilp_plan("export", *arguments, "--accept-changed")
    assert done.code == 1
    assert "plan.json: plan.model: found 'tiny' with 29 operators, expected 'tiny' with 42" in (
        done.err
    )
    assert not Path("a.json").exists()
    assert ilp_plan("export", *arguments).code == 0
    assert len(json.loads(Path("a.json").read_text())["num_gpus"]) == 2


def test_import_keeps_an_illegal_plan_and_says_so(ilp_plan: Command, saved: Path) -> None:
    ilp_plan("export", saved, "--to", "aceso", "--output", "a.json")
    names = ["--model", "tiny.toml", "--cluster", "pair.toml", "--memory-limit", "1KiB"]
    done = ilp_plan("import", "aceso", "a.json", *names, "--output", "back.json")
    assert done.code == 0
    assert "breaks 2 rules" in done.out
    verdict = read_saved(Path("back.json")).verdict
    assert verdict is not None
    assert not verdict.legal


@pytest.mark.skipif(not ACESO.is_dir(), reason="no ../shared/data/aceso")
def test_acesos_own_plan_takes_what_aceso_says(ilp_plan: Command) -> None:
    theirs = ACESO / "plans" / "aceso_gpt_1_3B_4g.json"
    options = ["--profile", f"aceso:{ACESO / 'eurosys'}", "--cost-model", "aceso"]
    options += ["--memory-limit", "28000MiB", "--output", "p.json"]
    done = ilp_plan("import", "aceso", theirs, *options)
    assert done.code == 0
    assert "iteration time  101.185 s" in done.out
    assert ilp_plan("export", "p.json", "--to", "aceso", "--output", "a.json").code == 0
    assert json.loads(Path("a.json").read_text()) == json.loads(theirs.read_text())
