"""`ilp-plan why`, and comparing with plans of launch scripts, on a model that is solved at once."""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.faces.cli.main import run
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.model_writer import model_text
from tests.faces.cli.conftest import Done
from tests.megatron_cases import small_cluster, small_model

Command = Callable[..., Done]

FILES = {"plan.json": (), "two.json": ("--tp", "2"), "batch.json": ("--global-batch-size", "4")}
PROBLEM = ("small.toml", "nodes.toml", "--global-batch-size", "8")
ONE = ("--workers", "1", "--time-limit", "60")


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with plans of a small model, and launch lines of one."""
    folder = tmp_path_factory.mktemp("solved")
    (folder / "small.toml").write_text(model_text(small_model()))
    (folder / "nodes.toml").write_text(cluster_text(small_cluster()))
    with chdir(folder):
        for name, more in FILES.items():
            words = ["solve", *PROBLEM, "--recompute", "none", "--sharding", "optimizer", *more]
            words.append("--all-devices")
            assert run([*words, "--output", name]) == 0
        assert run(["export", "two.json", "--to", "megatron", "--output", "run.sh"]) == 0
    return folder


@pytest.fixture
def plans(folder: Path, solved: Path) -> Path:
    """Return the current folder, with these files."""
    for file in solved.iterdir():
        shutil.copy(file, folder)
    return folder


def asked(ilp_plan: Command, *words: object) -> dict[str, Any]:
    """Return the object that a command prints."""
    done = ilp_plan(*words, "--json")
    assert done.code == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    return value


def test_why_says_what_limits_and_what_helps(ilp_plan: Command, plans: Path) -> None:
    value = asked(ilp_plan, "why", "plan.json", *ONE)
    seconds = value["iteration_time_s"]
    assert sum(value["seconds_s"].values()) == pytest.approx(seconds)
    assert any(rank["bottleneck"] and not rank["slack_s"] for rank in value["ranks"])
    assert value["derived"] is False
    kinds = {gain["kind"] for gain in value["gains"]}
    assert kinds >= {"asked", "memory", "node", "links", "batch"}
    for gain in value["gains"]:
        assert gain["gain_at_least_s"] <= gain["gain_at_most_s"] + 1e-12 * seconds
        assert gain["bound_s"] <= gain["best_s"] * (1 + 1e-9)
    asked_for = {gain["limit"] for gain in value["gains"] if gain["kind"] == "asked"}
    assert asked_for >= {"recompute none", "sharding optimizer"}
    assert 0 < value["survived_error"] < value["within"] == 0.05
    done = ilp_plan("why", "plan.json", *ONE)
    assert done.out.startswith("verdict ")
    assert "the bottleneck is" in done.out or "stages take" in done.out or "one stage" in done.out
    assert "as it claims" in done.out


@pytest.mark.slow
def test_processes_say_the_same(ilp_plan: Command, plans: Path) -> None:
    one = asked(ilp_plan, "why", "plan.json", *ONE)
    two = asked(ilp_plan, "why", "plan.json", "--workers", "2", "--time-limit", "60")
    for gains in (one["gains"], two["gains"]):
        for gain in gains:
            del gain["wall_s"]
    assert one["gains"] == two["gains"]


@pytest.mark.slow
def test_without_time_little_is_known_and_nothing_false(ilp_plan: Command, plans: Path) -> None:
    full = asked(ilp_plan, "why", "plan.json", *ONE)
    none = asked(ilp_plan, "why", "plan.json", "--workers", "1", "--time-limit", "0")
    before = {(gain["limit"], gain["change"]): gain for gain in full["gains"]}
    assert len(before) == len(none["gains"])
    for gain in none["gains"]:
        known = before[gain["limit"], gain["change"]]
        if gain["gain_at_most_s"] is not None:
            assert gain["gain_at_most_s"] >= known["gain_at_least_s"] - 1e-12
        if gain["gain_at_least_s"] is not None:
            assert gain["gain_at_least_s"] <= known["gain_at_most_s"] + 1e-12


@pytest.mark.slow
def test_an_imported_plan_gets_a_bound_of_now(ilp_plan: Command, plans: Path) -> None:
    words = ["import", "megatron", "run.sh", "--cluster", "nodes.toml", "--model", "small.toml"]
    assert ilp_plan(*words, "--output", "imported.json").code == 0
    value = asked(ilp_plan, "why", "imported.json", *ONE)
    assert value["derived"] is True
    assert 0 < value["bound_s"] <= value["best_s"] <= value["iteration_time_s"]


def test_not_a_constraint_is_told_term_by_term(ilp_plan: Command, plans: Path) -> None:
    value = asked(ilp_plan, "why", "plan.json", "--not", "tp=2", *ONE)
    assert value["has"] is False
    least, most = value["costs_at_least_s"], value["costs_at_most_s"]
    more = sum(value["more_s"].values())
    assert 0 < least <= most == pytest.approx(more)
    assert value["differs"]["tp"] == ["1", "2"]
    done = ilp_plan("why", "plan.json", "--not", "tp=2", *ONE)
    assert done.out.startswith("verdict  tp=2 takes ")
    assert "because  " in done.out
    assert "in all" in done.out
    _, rates = done.out.split("\nper second", 1)
    own, other = (line.split() for line in rates.splitlines()[1:3])
    assert [own[0], other[0]] == ["plan.json", "tp=2"]
    rate = [float(words[1].replace(",", "")) for words in (own, other)]
    assert rate[0] / rate[1] == pytest.approx(1 + more / value["iteration_time_s"], rel=1e-3)


def test_not_what_it_has(ilp_plan: Command, plans: Path) -> None:
    done = ilp_plan("why", "plan.json", "--not", "tp=1", *ONE)
    assert done.out.startswith("verdict  plan.json has tp=1 itself")


@pytest.mark.slow
def test_not_what_is_impossible(ilp_plan: Command, plans: Path) -> None:
    done = ilp_plan("why", "plan.json", "--not", "tp=3", *ONE)
    assert done.code == 0
    assert "tp=3: no plan, which is proved" in done.out
    assert asked(ilp_plan, "why", "plan.json", "--not", "tp=3", *ONE)["impossible"] is True


def test_not_a_given_plan(ilp_plan: Command, plans: Path) -> None:
    best = asked(ilp_plan, "why", "plan.json", "--not", "tp=2", *ONE)
    for other in ("two.json", "run.sh", "run.args.json", "megatron:run.sh"):
        value = asked(ilp_plan, "why", "plan.json", "--not", other, *ONE)
        assert value["costs_at_least_s"] == value["costs_at_most_s"]
        assert value["alternative_s"] == pytest.approx(best["alternative_s"], rel=2e-3)


def test_bad_alternatives(ilp_plan: Command, plans: Path) -> None:
    done = ilp_plan("why", "plan.json", "--not", "tp 8")
    assert done.code == 2
    assert done.err == ("ilp-plan: --not: found '8' after tp, expected =\n  tp 8\n     ^\n")
    for other, code, message in (
        ("batch.json", 1, "batch.json: a plan of another problem than plan.json: global batch is "
         "4, not 8"),
        ("none.json", 1, "none.json: no such file"),
        ("aceso:none.json", 1, "its stages are of operators, not of layers"),
        ("alpa:none.json", 1, "found the format 'alpa', expected a saved plan, a launch script"),
    ):  # fmt: skip
        done = ilp_plan("why", "plan.json", "--not", other)
        assert done.code == code
        assert message in done.err
        assert done.err.count("\n") == 1
    assert ilp_plan("why", "plan.json", "--set", "A=1").code == 2
    assert ilp_plan("why", "plan.json", "--within", "2").code == 2
    assert ilp_plan("why", "small.toml").code == 1


def with_memory(size: str) -> None:
    """Let the devices of the cluster file have less memory."""
    text = Path("nodes.toml").read_text()
    less = re.sub(r"(?m)^memory = .*", f'memory = "{size}"', text)
    assert less != text
    Path("nodes.toml").write_text(less)


def test_an_illegal_plan_is_refused_with_what_would_help(ilp_plan: Command, plans: Path) -> None:
    with_memory("500 MiB")
    done = ilp_plan("why", "plan.json", "--accept-changed")
    assert done.code == 1
    assert "memory: found" in done.err
    assert "`ilp-plan fit plan.json`" in done.err


@pytest.mark.slow
def test_a_plan_over_the_limit_keeps_its_time(ilp_plan: Command, plans: Path) -> None:
    _, before = asked(ilp_plan, "compare", "plan.json", "run.sh")["entries"]
    needs = before["memory_bytes"]
    with_memory(f"{int(needs) - 2**20} B")
    assert ilp_plan("solve", *PROBLEM, "--all-devices", "--output", "tight.json").code == 0
    own, script = asked(ilp_plan, "compare", "tight.json", "run.sh")["entries"]
    assert own["memory_excess_bytes"] == 0
    assert script["memory_excess_bytes"] == pytest.approx(2**20, abs=1)
    assert script["objective_s"] == before["objective_s"]
    assert script["gap"] is None
    assert "OVER THE MEMORY LIMIT by" in ilp_plan("compare", "tight.json", "run.sh").out
    done = ilp_plan("why", "tight.json", "--not", "run.sh")
    assert "does not fit" in done.out


def test_compare_says_what_differs_and_where_seconds_go(ilp_plan: Command, plans: Path) -> None:
    value = asked(ilp_plan, "compare", "plan.json", "two.json", "run.sh", "batch.json", "none.sh")
    first, second, third, fourth, fifth = value["entries"]
    assert value["compared"] == ["plan.json", "two.json", "run.sh"]
    assert value["differs"]["tp"] == ["1", "2", "2"]
    for one in (first, second, third):
        assert sum(one["seconds_s"].values()) == pytest.approx(one["objective_s"])
    assert third["objective_s"] == pytest.approx(second["objective_s"])
    assert fourth["remark"] == "another problem: global batch is 4, not 8"
    assert "no such file" in fifth["remark"]
    out = ilp_plan("compare", "plan.json", "two.json").out
    assert "what differs" in out
    assert "tensor communication" in out


def test_a_script_of_another_model_names_the_dimension(ilp_plan: Command, plans: Path) -> None:
    text = Path("run.sh").read_text()
    Path("run.sh").write_text(text.replace("--num-layers 4", "--num-layers 8"))
    assert text != Path("run.sh").read_text()
    remark = asked(ilp_plan, "compare", "plan.json", "run.sh")["entries"][1]["remark"]
    assert remark == "another problem: layers of the model is 8, not 4"


@pytest.mark.slow
def test_uneven_groups_beside_even_ones_are_legal(ilp_plan: Command, folder: Path) -> None:
    """Their problem allows them at the same costs; the proofs of the other are not about them."""
    (folder / "small.toml").write_text(model_text(small_model(hidden=1024)))
    (folder / "nodes.toml").write_text(cluster_text(small_cluster(1, 2)))
    words = ["small.toml", "nodes.toml", "--space", "groups", "--max-tp", "1"]
    for shares in ("even", "any"):
        more = ["--shares", shares, "--global-batch-size", "7", "--output", f"{shares}.json"]
        assert ilp_plan("solve", *words, *more).code == 0
    even, uneven = asked(ilp_plan, "compare", "even.json", "any.json")["entries"]
    assert uneven["objective_s"] < even["objective_s"]
    assert uneven["gap"] is None
    assert "expected a divisor of 7" in uneven["outside"]
    assert even["outside"] is None
    assert "not legal" not in uneven["remark"]
    gains = asked(ilp_plan, "why", "even.json", *ONE)["gains"]
    (shares,) = (gain for gain in gains if gain["limit"] == "shares even")
    saved = even["objective_s"] - uneven["objective_s"]
    most = shares["gain_at_most_s"]
    assert shares["gain_at_least_s"] - 1e-9 <= saved <= most + 1e-9
