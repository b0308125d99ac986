"""Plans of whole layers through the real command: files as users have them, good and bad."""

import json
import re
from collections.abc import Callable, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.formats.saved_json import read_saved
from tests.examples import often, thinned
from tests.faces.cli.conftest import Done, mps_optimum
from tests.faces.cli.test_bad_input import refused
from tests.metis_cases import needs_data, scaled_samples
from tests.mixed_cases import SIZE_OPTIONS, write_room

Command = Callable[..., Done]

REPOSITORY = Path(__file__).parents[3]
HOSTS = ["--hostfile", "hostfile", "--clusterfile", "clusterfile.json"]
PROFILE = ["--profile", "metis:profile"]
METIS = ["--cost-model", "metis", "--space", "metis"]
BATCH = ["--global-batch-size", "16"]
OPERATORS = ("--space", "operators")
AMP = REPOSITORY.parent / "shared" / "data" / "amp" / "profiles.json"
needs_amp = pytest.mark.skipif(not AMP.is_file(), reason="AMP's profiles are not in ../shared/data")


@pytest.fixture
def room(folder: Path) -> list[str]:
    """Write the small mixed cluster here; return the options that name it."""
    write_room(folder)
    return [*HOSTS, *PROFILE, *SIZE_OPTIONS, *BATCH]


def with_costs(name: str, values: Sequence[str]) -> pytest.MarkDecorator:
    """Let a test have each value with one of two cost models, with both in `make test-all`."""
    models = cycle(([], METIS))
    usual = [(next(models), value) for value in values]
    every = product(([], METIS), values)
    return pytest.mark.parametrize(("costs", name), often(every, *usual, several=True))


def value_of(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    value: dict[str, Any] = json.loads(done.out)
    return value


# ---- what a user gets ---------------------------------------------------------------------------


@pytest.mark.parametrize("costs", [[], ["--cost-model", "metis"], METIS], ids=str)
def test_a_table_and_a_proof(ilp_plan: Command, room: list[str], costs: list[str]) -> None:
    done = ilp_plan("solve", *room, *costs, "--verbose")
    assert done.code == 0
    assert "PROVED OPTIMAL" in done.out
    assert done.err == ""
    assert "embedding" in done.out
    assert re.search(r"nodes? \d(-\d)?: (A100|T4)", done.out)
    for word in (
        "iteration time",
        "of which",
        "0 % (proved optimal)",
        "metis:profile",
        "memory per",
    ):
        assert word in done.out


def test_a_cluster_file_with_its_own_names(ilp_plan: Command, room: list[str]) -> None:
    """Types are called otherwise than in the profile; prices and links are the file's."""
    done = ilp_plan("solve", "--cluster", "room.toml", *PROFILE, *SIZE_OPTIONS, *BATCH, "--json")
    value = value_of(done)
    assert value["cluster"] == "room"
    assert value["price_per_hour"] > 0
    assert {t for s in value["stages"] for r in s["replicas"] for t in r["types"]} <= {"a100", "t4"}


@pytest.mark.slow
def test_an_estimate_of_a_mixed_cluster(ilp_plan: Command, room: list[str]) -> None:
    done = ilp_plan("solve", "--model", "tiny.toml", "--cluster", "room.toml", *BATCH, "--verbose")
    assert done.code == 0
    assert "estimated, not measured" in done.out
    assert "embedding" in done.out


def test_the_space_of_layers_on_equal_devices(ilp_plan: Command, tiny: list[str]) -> None:
    value = value_of(ilp_plan("solve", *tiny, "--space", "groups", "--json"))
    assert value["space"] == "groups"
    assert value["layers"] == ["embedding", "layer 1", "layer 2", "head"]


def test_options_shape_the_problem(ilp_plan: Command, room: list[str]) -> None:
    options = ["--micro-batch-size", "4", "8", "--max-tp", "1", "--max-stages", "1"]
    options += ["--memory-limit", "30GiB", "--output", "plan.json"]
    value = value_of(ilp_plan("solve", *room, *options, "--json"))
    assert value["micro_batch"] in (4, 8)
    assert [stage["tp"] for stage in value["stages"]] == [1]
    assert value["memory_limit_bytes"] == {"T4": 15 * 2**30, "A100": 30 * 2**30}
    saved = read_saved(Path("plan.json"))
    assert saved.inputs.micro_batch_sizes == (4, 8)
    assert (saved.inputs.max_tp, saved.inputs.max_stages) == (1, 1)
    assert saved.inputs.memory_limit == 30 * 2**30
    assert sorted(saved.inputs.files) == ["clusterfile", "hostfile", "profile"]
    assert all(len(reference.sha256) == 64 for reference in saved.inputs.files.values())


@pytest.mark.slow
@pytest.mark.parametrize("costs", [[], METIS], ids=str)
def test_the_best_plans_in_order(ilp_plan: Command, room: list[str], costs: list[str]) -> None:
    value = value_of(ilp_plan("solve", *room, *costs, "--top", "4", "--json"))
    times = [entry["objective_s"] for entry in value["ranking"]]
    assert len(times) == 4
    assert times == sorted(times)
    assert times[0] == value["objective_s"]
    forms = set()
    for entry in value["ranking"]:
        assert entry["bound_s"] <= entry["objective_s"] * (1 + 1e-9)
        stages = [(s["tp"], s["dp"], [r["types"] for r in s["replicas"]]) for s in entry["stages"]]
        forms.add((entry["micro_batches"], str(stages)))
    assert len(forms) == 4, "plans must differ in more than a cut"
    done = ilp_plan("solve", *room, *costs, "--top", "4")
    assert re.search(r"^ +4 +0\.\d{6} ", done.out, flags=re.MULTILINE)


def test_without_a_default_model_or_cluster(ilp_plan: Command, room: list[str]) -> None:
    """What is made for one is never combined with another."""
    assert room
    refused(ilp_plan("solve", *HOSTS), 2, "--model: found none")
    refused(ilp_plan("solve", *PROFILE, *SIZE_OPTIONS), 2, "--cluster: found none", "--hostfile")
    refused(ilp_plan("solve", *HOSTS, *PROFILE, *BATCH), 2, "--hidden-size", "--model")


# ---- saved plans --------------------------------------------------------------------------------


@pytest.fixture
def plan(ilp_plan: Command, room: list[str]) -> Path:
    """Return a saved plan."""
    assert ilp_plan("solve", *room, *METIS, "--output", "plan.json").code == 0
    return Path("plan.json")


def test_a_changed_plan_is_found_out(ilp_plan: Command, plan: Path) -> None:
    data = json.loads(plan.read_text())
    data["result"]["objective_s"] *= 0.9
    plan.write_text(json.dumps(data))
    done = ilp_plan("evaluate", plan)
    assert done.code == 1
    assert "result.objective_s: found" in done.err
    data["plan"]["stages"][0]["devices"][0] = 99
    plan.write_text(json.dumps(data))
    done = ilp_plan("evaluate", plan)
    assert done.code == 1
    assert "devices used once: found device 99" in done.err
    assert "BROKEN RULE" in done.out
    done = ilp_plan("evaluate", plan, "--json")
    assert done.code == 1
    assert json.loads(done.out)["legal"] is False


@pytest.mark.slow
def test_solvers_side_by_side(ilp_plan: Command, plan: Path, room: list[str]) -> None:
    assert ilp_plan("solve", *room, "--output", "native.json").code == 0
    names = ["dp", "cp-sat", "milp", "pulp"]
    done = ilp_plan("compare", plan, "native.json", "--solvers", ",".join(names), "--json")
    value = value_of(done)
    first, other, *solvers = value["entries"]
    assert first["name"] == "plan.json"
    assert "another problem: cost model is native" in other["remark"]
    assert [entry["name"] for entry in solvers] == [f"solver {name}" for name in names]
    for entry in solvers:
        assert entry["objective_s"] == pytest.approx(first["objective_s"], rel=1e-6)
        assert entry["gap"] == pytest.approx(0, abs=1e-6)
    table = ilp_plan("compare", plan)
    assert table.code == 0
    assert "best bound" in table.out


@pytest.mark.usefixtures("room")
def test_plans_of_operators_and_of_layers_are_not_compared(
    ilp_plan: Command, plan: Path, operators: list[str]
) -> None:
    limits = ("--time-limit", "20", "--output", "ops.json")
    assert ilp_plan("solve", *operators, *limits).code == 0
    entries = value_of(ilp_plan("compare", plan, "ops.json", "--json"))["entries"]
    words = "another problem: its stages are of operators, not of layers"
    assert entries[1]["remark"] == words
    entries = value_of(ilp_plan("compare", "ops.json", plan, "--json"))["entries"]
    assert entries[1]["remark"] == "another problem: its stages are of layers, not of operators"


def test_export_says_why_not(ilp_plan: Command, plan: Path) -> None:
    done = ilp_plan("export", plan, "--to", "aceso", "--output", "out.txt")
    refused(done, 1, "plan.json: inputs.model: found none, expected the model file of the plan")
    options = ["--model", "tiny.toml", "--cluster", "pair.toml", "--space", "groups", *BATCH]
    assert ilp_plan("solve", *options, "--output", "layers.json").code == 0
    done = ilp_plan("export", "layers.json", "--to", "aceso", "--output", "out.txt")
    refused(done, 1, "layers.json: plan: found whole layers", "expected operators", "aceso can say")
    assert not Path("out.txt").exists()


@pytest.mark.usefixtures("room")
def test_the_exported_program_has_the_plan_as_its_optimum(ilp_plan: Command, plan: Path) -> None:
    for to in ("lp", "mps"):
        done = ilp_plan("export", plan, "--to", to, "--output", f"out.{to}")
        assert done.code == 0, done.err
        assert "stage candidates of profile" in done.err
    objective = json.loads(plan.read_text())["result"]["objective_s"]
    assert mps_optimum(Path("out.mps")) == pytest.approx(objective, rel=1e-6)
    assert "x_0" in Path("out.lp").read_text()


# ---- bad input ----------------------------------------------------------------------------------


def remove(pattern: str) -> None:
    files = list(Path("profile").glob(pattern))
    assert files
    for file in files:
        file.unlink()


@with_costs("pattern", ["*A100_tp2_*", "*T4_tp1_bs2*", "*_bs4*"])
def test_a_missing_profile_is_left_out(
    ilp_plan: Command, room: list[str], costs: list[str], pattern: str
) -> None:
    remove(pattern)
    done = ilp_plan("solve", *room, *costs)
    assert done.code == 0
    assert ("not profiled" in done.out) == (pattern != "*_bs4*")


@pytest.mark.parametrize("costs", [[], METIS], ids=str)
def test_a_missing_device_type_is_one_line(
    ilp_plan: Command, room: list[str], costs: list[str]
) -> None:
    remove("*T4*")
    refused(ilp_plan("solve", *room, *costs), 1, "profile", "'T4'", "found", "A100")


@with_costs("batch", ["24", "30", "48", "96", "7"])
def test_any_global_batch_has_a_plan(
    ilp_plan: Command, room: list[str], costs: list[str], batch: str
) -> None:
    value = value_of(ilp_plan("solve", *room[:-1], batch, *costs, "--json"))
    assert value["gap"] == 0
    assert value["micro_batch"] * value["micro_batches"] == int(batch)


@with_costs(
    "lines",
    [
        "10.0.0.1 slots=2\n10.0.0.2 slots=4\n",
        "10.0.0.1 slots=4\n10.0.0.2 slots=4\n10.0.0.3 slots=4\n",
        "10.0.0.1 slots=1\n10.0.0.2 slots=3\n",
        "10.0.0.2 slots=16\n",
        "\n10.0.0.1 2\n\n  \n# the fast ones\n10.0.0.2 slots=2\n\n",
    ],
)
def test_any_hostfile_has_a_plan(
    ilp_plan: Command, room: list[str], costs: list[str], lines: str
) -> None:
    Path("hostfile").write_text(lines)
    value = value_of(ilp_plan("solve", *room, *costs, "--json", "--time-limit", "60"))
    assert value["status"] == "optimal"


def test_larger_degrees_than_profiled_are_a_note(ilp_plan: Command, room: list[str]) -> None:
    for costs in ([], METIS):
        done = ilp_plan("solve", *room, *costs, "--max-tp", "8")
        assert done.code == 0
        assert done.out.count("left out") == 1


def test_more_stages_than_layers(ilp_plan: Command, room: list[str]) -> None:
    Path("hostfile").write_text("10.0.0.1 slots=4\n10.0.0.2 slots=4\n")
    assert value_of(ilp_plan("solve", *room, "--max-stages", "8", "--json"))["gap"] == 0


def test_another_number_of_layers(ilp_plan: Command, room: list[str]) -> None:
    for asked in ("12", "4"):
        done = ilp_plan("solve", *room, "--num-layers", asked)
        refused(done, 1, "--num-layers", f"found {asked}", "expected 6")
    assert ilp_plan("solve", *room, "--num-layers", "6").code == 0
    model = ["--model", "tiny.toml", *HOSTS, *PROFILE, *BATCH]
    refused(ilp_plan("solve", *model), 1, "profile", "6 layers", "found 4 in tiny.toml")


@pytest.mark.parametrize("costs", [[], METIS], ids=str)
def test_memory_in_which_nothing_fits(ilp_plan: Command, room: list[str], costs: list[str]) -> None:
    done = ilp_plan("solve", *room, *costs, "--memory-limit", "1MiB")
    assert done.code == 3
    assert re.fullmatch(
        r"ilp-plan: infeasible: layer \d \(.+\) fits no device: .+ on each (A100|T4) \(tp \d\), "
        r".+ MiB more than the limit of 1.00 MiB\n",
        done.err,
    )


def test_what_is_not_profiled_is_not_called_memory(ilp_plan: Command, room: list[str]) -> None:
    size = ["--micro-batch-size", "64", "--global-batch-size", "64"]
    done = ilp_plan("solve", *room, *METIS, *size)
    assert done.code == 3
    assert "is profiled for micro-batches of 64 samples, whatever its memory" in done.err
    assert "more memory" not in done.err + done.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--top", "0"], 2, ["--top"]),
        (["--max-tp", "0"], 2, ["--max-tp"]),
        (["--space", "all"], 2, ["--space", "groups"]),
        (["--space", "metis"], 2, ["--space metis", "--cost-model metis"]),
        (["--space", "amp"], 2, ["--space amp", "--cost-model amp"]),
        (["--memory-rule", "metis"], 2, ["--memory-rule metis", "--space metis"]),
        (["--placement", "free"], 2, ["--placement free", "--cost-model amp"]),
        (["--experiment", "x"], 2, ["--experiment", "amp:FILE", "metis:profile"]),
        (["--cost-model", "amp"], 2, ["--cost-model amp", "amp:FILE", "metis:profile"]),
        (["--cost-model", "aceso"], 2, ["--cost-model aceso", "aceso:FOLDER"]),
        (["--cluster", "room.toml"], 2, ["--hostfile", "--cluster"]),
        (["--profile", "analytic"], 2, ["--hidden-size", "metis:FOLDER", "analytic"]),
        (["--profile", "aceso:profile"], 2, ["aceso:profile", "metis:FOLDER"]),
        (["--profile", "metis"], 2, ["--profile", "metis:FOLDER"]),
        (["--profile", "metis:none"], 1, ["none", "no such profile folder"]),
        (["--profile", "amp:none.json"], 2, ["--clusterfile", "amp:FILE"]),
        (["--hostfile", "none"], 1, ["none: no such file"]),
        (["--clusterfile", "none.json"], 1, ["none.json: no such file"]),
        (["--micro-batch-size", "3", "5", "--shares", "even"], 1, ["16", "micro-batch 3, 5"]),
        (["--shares", "odd"], 2, ["--shares", "even", "odd"]),
        (["--stage-tp", "two"], 2, ["--stage-tp", "mixed", "two"]),
        (["--stage-tp", "mixed", *METIS], 2, ["--stage-tp mixed", "--space groups", "metis"]),
        (["--seats", "any"], 2, ["--seats", "spread", "any"]),
        (["--seats", "spread", *METIS], 2, ["--seats spread", "--space groups", "metis"]),
        (["--shares", "even", *METIS], 2, ["--shares even", "--space groups", "metis"]),
        (["--max-stages", "2", *METIS], 2, ["--max-stages", "--space metis"]),
        (["--global-batch-size", "0"], 2, ["--global-batch-size"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_options_that_cannot_be(
    ilp_plan: Command, room: list[str], arguments: list[str], code: int, words: list[str]
) -> None:
    refused(ilp_plan("solve", *room, *arguments), code, *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hostfile", "hostfile", *PROFILE], ["--hostfile", "--clusterfile"]),
        (["--clusterfile", "clusterfile.json", *PROFILE], ["--clusterfile", "--hostfile"]),
        ([*OPERATORS, "--top", "3"], ["--top", "operators", "--space groups"]),
        ([*OPERATORS, "--hidden-size", "512"], ["operators to plan", "--space groups"]),
        ([*OPERATORS, "--num-layers", "4"], ["--num-layers", "operators"]),
        (["--cluster", "room.toml", "--profile", "aceso:x"], ["aceso:x", "metis:FOLDER"]),
        (["--cluster", "room.toml", "--cost-model", "metis"], ["--profile metis:FOLDER"]),
    ],
    ids=lambda value: " ".join(value),
)
@pytest.mark.usefixtures("room")
def test_options_that_lack_others(
    ilp_plan: Command, arguments: list[str], words: list[str]
) -> None:
    refused(ilp_plan("solve", *arguments), 2, *words)


def test_sizes_must_be_the_model_s(ilp_plan: Command, room: list[str]) -> None:
    model = Path("tiny.toml")
    model.write_text(model.read_text().replace("layers = 2", "layers = 4"))
    arguments = ["--model", "tiny.toml", *HOSTS, *PROFILE, *BATCH]
    assert ilp_plan("solve", *arguments, "--hidden-size", "256").code == 0
    assert ilp_plan("solve", *arguments, *METIS, "--vocab-size", "0").code == 0
    done = ilp_plan("solve", *arguments, "--hidden-size", "512")
    refused(done, 2, "--hidden-size: found 512, expected 256 as in tiny.toml")


def test_suspicious_bandwidths_are_a_note(ilp_plan: Command, room: list[str]) -> None:
    content = json.loads(Path("clusterfile.json").read_text())
    for entry in content.values():
        entry["intra_bandwidth"] = 5312500000.0
    Path("clusterfile.json").write_text(json.dumps(content))
    for costs in ([], METIS):
        done = ilp_plan("solve", *room, *costs)
        assert done.code == 0
        assert "looks like bytes/s" in done.out


# ---- the same answer, whatever the order --------------------------------------------------------


def answer(done: Done) -> dict[str, Any]:
    value = value_of(done)
    return {key: value[key] for key in ("objective_s", "bound_s", "gap", "micro_batches", "status")}


@pytest.mark.parametrize("costs", [[], METIS], ids=str)
def test_the_order_of_lines_and_files_does_not_matter(
    ilp_plan: Command, room: list[str], costs: list[str]
) -> None:
    expected = answer(ilp_plan("solve", *room, *costs, "--json"))
    lines = Path("hostfile").read_text().splitlines()
    content = json.loads(Path("clusterfile.json").read_text())
    files = {file: file.read_text() for file in Path("profile").iterdir()}
    for turn in thinned(range(1, 3), 2):
        Path("hostfile").write_text("\n".join([*lines[turn:], *lines[:turn]]) + "\n")
        Path("clusterfile.json").write_text(json.dumps(dict(reversed(content.items()))))
        # A directory lists its files in an order that depends on when they were made.
        for file in sorted(files, reverse=bool(turn % 2)):
            file.unlink()
        for file in sorted(files, key=lambda f: f.name[::-1], reverse=bool(turn % 2)):
            file.write_text(files[file])
        found = answer(ilp_plan("solve", *room, *costs, "--json"))
        assert found.pop("status") == expected["status"]
        assert found == pytest.approx({k: v for k, v in expected.items() if k != "status"})


# ---- published cases ----------------------------------------------------------------------------


@needs_data
@pytest.mark.usefixtures("folder")
def test_a_metis_user_s_own_files(ilp_plan: Command) -> None:
    """12 A100 + 4 T4 with T4 = 8 x slower; optimum 3837.05 ms."""
    scaled_samples(Path("profiles"), 8.0)
    Path("hostfile").write_text("0.0.0.3 slots=4\n" + "0.0.0.4 slots=4\n" * 3)
    entry = {"inter_bandwidth": 10}
    content = {
        "0.0.0.3": {"instance_type": "T4", "intra_bandwidth": 50, "memory": 15, **entry},
        "0.0.0.4": {"instance_type": "A100", "intra_bandwidth": 46, "memory": 80, **entry},
    }
    Path("clusterfile.json").write_text(json.dumps(content))
    files = [*HOSTS, "--profile", "metis:profiles", "--global-batch-size", "128"]
    sizes = ["--hidden-size", "4096", "--sequence-length", "1024", "--vocab-size", "51200"]
    rule = ["--memory-rule", "device", "--max-tp", "4"]
    value = value_of(ilp_plan("solve", *files, *METIS, *rule, *sizes, "--json"))
    assert value["objective_s"] == pytest.approx(3.83705, rel=1e-6)
    assert value["gap"] == 0
    assert value["model"] == "GPT3"


@pytest.mark.slow
@needs_data
@pytest.mark.usefixtures("folder")
def test_the_model_and_cluster_that_come_with_the_planner(ilp_plan: Command) -> None:
    scaled_samples(Path("profiles"), 8.0)
    model = REPOSITORY / "models" / "gpt-10l-4096.toml"
    cluster = REPOSITORY / "clusters" / "mixed-a100-t4.toml"
    files = ["--model", model, "--cluster", cluster, "--profile", "metis:profiles"]
    batch = ["--global-batch-size", "128"]
    value = value_of(ilp_plan("solve", *files, *batch, "--shares", "even", "--json"))
    assert value["gap"] == 0
    assert value["provenance"]["measured"] > 0.9
    free = value_of(ilp_plan("solve", *files, *batch, "--json"))  # also of samples not measured
    assert free["gap"] == 0
    assert free["objective_s"] < value["objective_s"]
    assert sum(value["provenance"].values()) == pytest.approx(1)
    assert value["price_per_hour"] > 0


@pytest.mark.few(1)
@needs_amp
@pytest.mark.parametrize(
    ("experiment", "batch", "model"), [("homogeneous", 32, "gpt2"), ("het_model", 64, "transgan")]
)
@pytest.mark.usefixtures("folder")
def test_files_of_amp_under_our_own_costs(
    ilp_plan: Command, experiment: str, batch: int, model: str
) -> None:
    arguments = ["--profile", f"amp:{AMP}", "--experiment", experiment]
    done = ilp_plan("solve", *arguments, "--output", "plan.json", "--json")
    value = value_of(done)
    assert value["global_batch"] == batch
    assert value["model"] == model
    assert ilp_plan("evaluate", "plan.json").code == 0
    refused(ilp_plan("solve", *arguments[:2]), 1, "homogeneous, het_cluster, het_model")
    refused(ilp_plan("solve", *arguments, "--model", "tiny.toml"), 2, "--model: found tiny.toml")


@needs_amp
@pytest.mark.parametrize(
    ("experiment", "batch", "seconds"),
    [("homogeneous", 32, 1.2443), ("het_cluster", 32, 1.0617), ("het_model", 64, 1.1444)],
)
@pytest.mark.usefixtures("folder")
def test_amp_s_own_experiments(
    ilp_plan: Command, experiment: str, batch: int, seconds: float
) -> None:
    arguments = ["--profile", f"amp:{AMP}", "--experiment", experiment, "--cost-model", "amp"]
    done = ilp_plan("solve", *arguments, "--output", "plan.json", "--json")
    value = value_of(done)
    assert value["gap"] == 0
    assert value["space"] == "amp"
    assert value["global_batch"] == batch
    assert value["objective_s"] <= seconds + 5e-5
    assert ilp_plan("evaluate", "plan.json").code == 0
    assert "not modelled" in ilp_plan("evaluate", "plan.json").out
    free = value_of(ilp_plan("solve", *arguments, "--placement", "free", "--json"))
    assert free["placement"] == "free"
    for option in ("--memory-limit=8GiB", "--micro-batch-size=4"):
        refused(ilp_plan("solve", *arguments, option), 2, option.partition("=")[0], "--space amp")


@pytest.mark.slow
@needs_amp
@pytest.mark.usefixtures("folder")
def test_amp_on_the_nodes_of_a_hostfile(ilp_plan: Command) -> None:
    arguments = ["--profile", f"amp:{AMP}", "--experiment", "homogeneous", "--cost-model", "amp"]
    Path("hosts").write_text("a slots=4\nb slots=4\n\n")
    value = value_of(ilp_plan("solve", *arguments, "--hostfile", "hosts", "--json"))
    assert sum(len(r["devices"]) for s in value["stages"] for r in s["replicas"]) == 8
    Path("hosts").write_text("a slots=9\n")
    refused(ilp_plan("solve", *arguments, "--hostfile", "hosts"), 1, "hosts", "slots", "found 9")
    done = ilp_plan("solve", *arguments, "--global-batch-size", "24", "--json")
    assert value_of(done)["gap"] == 0
    done = ilp_plan("solve", *arguments, "--max-tp", "1", "--global-batch-size", "1")
    assert done.code == 0
    assert "left out" in done.out
