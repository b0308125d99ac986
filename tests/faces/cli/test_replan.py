"""`ilp-plan replan` and `ilp_planner.replan`, on a model that is solved at once."""

import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

import ilp_planner as ilp
from ilp_planner.faces.cli.main import run
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.model_writer import model_text
from ilp_planner.specs.training import SHARDINGS
from tests.faces.cli.conftest import Done
from tests.megatron_cases import small_cluster, small_model

Command = Callable[..., Done]

ASKED = ("--recompute", "none", "--sharding", "optimizer", "--cp-comm", "p2p")


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a plan of a small model on three nodes, and a cluster of four."""
    folder = tmp_path_factory.mktemp("solved")
    (folder / "small.toml").write_text(model_text(small_model()))
    for count in (3, 4):
        (folder / f"nodes{count}.toml").write_text(cluster_text(small_cluster(count, between=1e9)))
    with chdir(folder):
        words = ["solve", "small.toml", "nodes3.toml", "--global-batch-size", "12", *ASKED]
        assert run([*words, "--all-devices", "--output", "plan.json"]) == 0
        assert run([*words, "--output", "some.json"]) == 0
    return folder


@pytest.fixture
def plan(folder: Path, solved: Path) -> Path:
    """Return the plan, in the current folder."""
    for file in solved.iterdir():
        shutil.copy(file, folder)
    return folder / "plan.json"


def asked(ilp_plan: Command, *words: object) -> dict[str, Any]:
    """Return the object that a command prints."""
    done = ilp_plan("replan", "plan.json", *words, "--json")
    assert done.code == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    return value


@pytest.mark.slow
def test_both_plans_are_told_saved_and_exported(ilp_plan: Command, plan: Path) -> None:
    both = ("--output-fastest", "fast.json", "--output-least", "least.json")
    done = ilp_plan("replan", "plan.json", "--without", "node1", "--slack", "0.9", *both)
    assert done.code == 0, done.err
    assert done.out.startswith("verdict ")
    assert "changed      node1 lost" in done.out
    assert "proved: none of the plans" in done.out
    assert "in order: node0, node2" in done.out
    for name in ("fast.json", "least.json"):
        assert ilp_plan("evaluate", name, "--check-certificate").code == 0
        assert ilp_plan("export", name, "--to", "megatron", "--output", "run.sh").code == 0
        (note,) = (n for n in ilp.load(name).claim.notes if n.startswith("machines"))
        assert "node0" in note


@pytest.mark.slow
def test_a_node_that_the_search_left_out_takes_the_place_of_one_that_is_lost(
    ilp_plan: Command, plan: Path
) -> None:
    assert ilp.load("some.json").problem.cluster.node_count == 1
    done = ilp_plan("replan", "some.json", "--without", "node0", "--output-fastest", "again.json")
    assert done.code == 0, done.err
    assert "node0 lost" in done.out
    again = ilp.load("again.json")
    assert list(again.problem.node_numbers) == [1]
    assert again.check().holds


@pytest.mark.slow
def test_what_is_printed_is_what_python_has(ilp_plan: Command, plan: Path) -> None:
    value = asked(ilp_plan, "--without", "node1", "--slack", "0.9")
    found = ilp.replan("plan.json", without="node1", slack=0.9)
    known = found.summary
    for name in ("fastest", "least_moved"):
        assert known[name]["moved_bytes"] == value[name]["moved_bytes"]
        assert known[name]["machines"] == value[name]["machines"]
        devices = value[name]["devices"]
        assert sum(one["moved_bytes"] for one in devices) == pytest.approx(
            value[name]["moved_bytes"]
        )
        assert max(one["moved_bytes"] for one in devices) == value[name]["most_moved_bytes"]
        assert value[name]["between_nodes_bytes"] <= value[name]["moved_bytes"] * (1 + 1e-9)
    fastest, least = value["fastest"], value["least_moved"]
    assert least["moved_bytes"] <= fastest["moved_bytes"] * (1 + 1e-9)
    assert least["iteration_time_s"] <= 1.9 * fastest["iteration_time_s"]
    assert value["least_proved"] is True
    assert value["least_at_least_bytes"] == pytest.approx(least["moved_bytes"])
    assert found.fastest.objective == fastest["iteration_time_s"]
    assert found.least_moved.objective == least["iteration_time_s"]
    assert "verdict" in str(found)
    assert repr(found) == "<Replan plan.json, 2 plans>"


def test_another_cluster_has_the_machines_of_before_and_others(
    ilp_plan: Command, plan: Path
) -> None:
    value = asked(ilp_plan, "--cluster", "nodes4.toml")
    machines = value["fastest"]["machines"]
    assert sorted(machines) == ["another machine", "node0", "node1", "node2"]
    assert value["fastest"]["checkpoint_bytes"] == 0.0


@pytest.mark.parametrize("named", ["--cluster", "--gpus"])
def test_other_gpus_are_a_cluster_as_well(ilp_plan: Command, plan: Path, named: str) -> None:
    value = asked(ilp_plan, named, "8xA100-40GB")
    assert {*value["fastest"]["machines"]} == {"another machine"}


# Runtimes whose ranks have nothing gathered between iterations -> what is trained.
TUNED = {
    ("megatron", SHARDINGS): ((), ("--freeze", "embedding,mlp"), ("--lora", "4")),
    ("torchtitan", ("none", "parameters")): (("--lora", "4"), ("--lora", "4", "--qlora", "on")),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("runtime", "sharding", "tuned"),
    [
        (runtime, sharding, tuned)
        for (runtime, shardings), every in TUNED.items()
        for sharding in shardings
        for tuned in every
    ],
)
def test_devices_hold_what_memory_has_and_stay_as_they_are(
    ilp_plan: Command, plan: Path, runtime: str, sharding: str, tuned: tuple[str, ...]
) -> None:
    """Of jobs on equal ranks, whose bytes `fit` has; with twice the samples none has to move."""
    Path("whole.toml").write_text(model_text(small_model(vocab=1024)))  # without rows of padding
    words = ("whole.toml", "nodes3.toml", "--global-batch-size", "12", "--recompute", "none")
    words += ("--sharding", sharding, "--pp", "1", "--tp", "1", "--cp", "1", *tuned)
    words += ("--runtime", runtime)
    done = ilp_plan("solve", *words, "--all-devices", "--output", "plan.json")
    assert done.code == 0, done.err
    job = json.loads(ilp_plan("fit", "plan.json", "--json").out)
    least = asked(ilp_plan, "--global-batch-size", "24")["least_moved"]
    assert least["moved_bytes"] == least["checkpoint_bytes"] == 0.0
    terms = job["decides"]["terms"]
    held = terms["parameters"] + terms["optimizer"]
    assert least["kept_bytes"] == pytest.approx(job["gpus"] * held)


def test_without_time_there_is_no_plan(ilp_plan: Command, plan: Path) -> None:
    done = ilp_plan("replan", "plan.json", "--without", "node1", "--time-limit", "0")
    assert done.code == 4
    assert "no plan found in" in done.err
    found = ilp.replan("plan.json", without="node1", seconds=0.0)
    assert found.fastest.plan is None
    with pytest.raises(ilp.PlanError, match="no plan"):
        _ = found.least_moved
    assert found.summary["least_moved"] is None
    assert str(found)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "found no change, expected what changes: nodes that are lost (--without)"),
        (("--without", "node7"), 2, "found 'node7', expected a node of small: node0 to node2"),
        (("--without", "0,1,2"), 2, "expected one or more to be left"),
        (("--slack", "1"), 2, "--slack: found 1.0, expected a fraction from 0 to below 1"),
        (("--cluster", "nodes5.toml"), 1, "nodes5.toml"),
        (("--without", "1", "--tp", "3"), 3, "--tp 3: no plan of small on 4 devices has it"),
        (("--global-batch-size", "7", "--dp", "2"), 3, "dp"),
        (
            ("--without", "1", "--output-fastest", "x.json", "--output-least", "x.json"),
            2,
            "--output-least: found x.json, the file of the fastest plan, expected another",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(
    ilp_plan: Command, plan: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = ilp_plan("replan", "plan.json", *words)
    assert done.code == code, done.err
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_a_group_that_is_nearly_named_is_offered(ilp_plan: Command, plan: Path) -> None:
    text = Path("nodes3.toml").read_text()
    Path("named.toml").write_text(text.replace("[[nodes]]", '[[nodes]]\nname = "rack"', 1))
    done = ilp_plan("replan", "plan.json", "--cluster", "named.toml", "--without", "rakc")
    assert "(nearest: rack)" in done.err


def test_python_refuses_what_is_no_demand(plan: Path) -> None:
    with pytest.raises(ilp.UsageError, match="found 'nodes', expected some of tp, "):
        ilp.replan("plan.json", nodes=2)
    with pytest.raises(ilp.UsageError, match="slack: found 2"):
        ilp.replan("plan.json", slack=2, without="1")
    with pytest.raises(ilp.UsageError, match="nodes that are lost \\(`without`\\)"):
        ilp.replan("plan.json")
