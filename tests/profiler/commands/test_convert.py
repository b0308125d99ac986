"""`ilp-plan profile import` and `export`, and plans from the tables that they make."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilp_planner.costs.profiles.analytic import analytic_profile
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.profiles.measurements import (
    measurements_of,
    read_measurements,
    rows_of,
    write_measurements,
)
from ilp_planner.peers.aceso.tables import write_aceso_profile
from ilp_planner.peers.metis.files import write_metis_profile
from ilp_planner.peers.metis.profile import MetisProfile, MetisRow
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model_reader import read_model
from tests.costs.profiles.layer_rows import MIB, layer_table
from tests.costs.profiles.test_operator_table import messages
from tests.faces.cli.conftest import Done
from tests.sailor_cases import small_files, write_files, write_quotas

Command = Callable[..., Done]
KEY = "gpt_tiny"
FAMILY = ("--model", "tiny.toml", "--cluster", "pair.toml", "--global-batch-size", "16")
LAYERS = (*FAMILY, "--space", "groups")


@pytest.fixture
def aceso(folder: Path) -> Path:
    """Return a database in Aceso's format, of the small model; one file has a failed row."""
    profile = analytic_profile(read_model(folder / "tiny.toml"), read_cluster(folder / "pair.toml"))
    write_aceso_profile(profile, folder / "database", KEY)
    file = folder / "database" / f"{KEY}_mbs8_tp1_algo0.csv"
    lines = file.read_text().splitlines()
    lines[2] = ",".join([lines[2].split(",")[0], *["1e7"] * 8])
    file.write_text("\n".join(lines) + "\n")
    return folder / "database"


@pytest.fixture
def metis(folder: Path) -> Path:
    """Return a folder in Metis's format, of four layers on the small cluster's devices."""
    weights = np.array([0.1, 1.0, 1.0, 0.4])
    rows = {
        LayerKey("GPU", tp, size): MetisRow(
            compute=weights * (1 + 2.123456789012345 * size / tp),
            memory=weights * (100 + 10 * size) / tp,
            forward_backward=float((weights * (1.5 + 2.2 * size / tp)).sum()),
            optimizer=3.3,
            batch_generator=0.25,
            parameters=weights * 786432,
        )
        for tp in (1, 2)
        for size in (1, 2, 4, 8, 16)
    }
    profile = MetisProfile(
        source="made up", rows=rows, constants=LayerKey("GPU", 1, 1), model_name="GPT"
    )
    write_metis_profile(profile, folder / "metis")
    return folder / "metis"


def value_of(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    return dict(json.loads(done.out))


def decided(value: dict[str, Any]) -> Any:
    """Return the plan and its time, without what it was read from."""
    return value["objective_s"], value["bound_s"], value["micro_batch"], value["stages"]


@pytest.mark.parametrize("cost_model", ["native", "aceso"])
@pytest.mark.usefixtures("aceso")
def test_plans_of_operators_are_the_same(ilp_plan: Command, cost_model: str) -> None:
    done = ilp_plan("profile", "import", "aceso", "database", "--output", "table.csv")
    assert done.code == 0, done.err
    assert done.err.startswith("table.csv: ")
    assert "of operator" in done.err
    table = read_measurements(Path("table.csv"))
    assert (table.frame["status"] == "failed").sum() == 1
    asked = [*FAMILY, "--cost-model", cost_model, "--json"]
    direct = value_of(ilp_plan("solve", *asked, "--profile", "aceso:database"))
    found = value_of(ilp_plan("solve", *asked, "--profile", "table.csv"))
    assert decided(found) == decided(direct)
    assert found["profile"] == "table.csv"
    assert found["provenance"]["measured"] > 0.5
    assert sum(found["provenance"].values()) == pytest.approx(1)


@pytest.mark.parametrize("more", [(), ("--cost-model", "metis"), ("--runtime", "megatron")])
@pytest.mark.usefixtures("metis")
def test_plans_of_layers_are_the_same(ilp_plan: Command, more: tuple[str, ...]) -> None:
    done = ilp_plan("profile", "import", "metis", "metis", "--output", "table.csv")
    assert done.code == 0, done.err
    Path("pair.toml").write_text(
        Path("pair.toml").read_text().replace("[devices.gpu]", '[devices.gpu]\nprofile = "GPU"')
    )
    asked = [*FAMILY, "--json", *(more or ("--space", "groups"))]
    direct = value_of(ilp_plan("solve", *asked, "--profile", "metis:metis"))
    found = value_of(ilp_plan("solve", *asked, "--profile", "table:table.csv"))
    assert decided(found) == decided(direct)
    assert found["provenance"] == direct["provenance"]
    assert found["provenance"]["measured"] > 0.5


@pytest.mark.usefixtures("metis")
def test_metis_there_and_back(ilp_plan: Command) -> None:
    assert ilp_plan("profile", "import", "metis", "metis", "--output", "table.csv").code == 0
    done = ilp_plan("profile", "export", "metis", "table.csv", "again")
    assert done.code == 0, done.err
    files = sorted(path.name for path in Path("metis").iterdir())
    assert sorted(path.name for path in Path("again").iterdir()) == files
    for name in files:
        before, after = (json.loads((Path(f) / name).read_text()) for f in ("metis", "again"))
        assert before["execution_time"] == after["execution_time"]
        assert before["execution_memory"] == after["execution_memory"]


@pytest.mark.usefixtures("aceso")
def test_aceso_there_and_back(ilp_plan: Command) -> None:
    assert ilp_plan("profile", "import", "aceso", "database", "--output", "table.csv").code == 0
    done = ilp_plan("profile", "export", "aceso", "table.csv", "again")
    assert done.code == 0, done.err
    asked = [*FAMILY, "--cost-model", "aceso", "--json"]
    direct = value_of(ilp_plan("solve", *asked, "--profile", "aceso:database"))
    assert decided(value_of(ilp_plan("solve", *asked, "--profile", "aceso:again"))) == decided(
        direct
    )


@pytest.mark.usefixtures("aceso")
def test_a_saved_plan_remembers_its_table(ilp_plan: Command) -> None:
    ilp_plan("profile", "import", "aceso", "database", "--output", "table.csv")
    done = ilp_plan("solve", *FAMILY, "--profile", "table.csv", "--output", "plan.json")
    assert done.code == 0, done.err
    assert "time rests on" in done.out
    saved = json.loads(Path("plan.json").read_text())
    assert saved["inputs"]["profile"]["name"] == "table.csv"
    assert len(saved["inputs"]["profile"]["sha256"]) == 64
    assert sum(saved["evaluation"]["provenance"].values()) == pytest.approx(1)
    assert ilp_plan("evaluate", "plan.json", "--check-certificate").code == 0
    assert ilp_plan("compare", "plan.json").code == 0
    Path("table.csv").write_text(Path("table.csv").read_text() + "\n")
    done = ilp_plan("evaluate", "plan.json")
    assert done.code == 1
    assert "inputs.profile: found sha256" in done.err


def own_tables(**more: Any) -> None:
    """Write what `profile measure` and `measure-links` would: layers of tp 1 and 2, all-reduces."""
    write_measurements(Path("rows.csv"), small(layer_table(device="gpu", **more)))
    links = [
        {"record": "collective", "name": "all_reduce", "group_size": 2, "hosts": 1,
         "bytes": MIB * n, "time_s": 1e-4 * n} for n in (0.5, 1, 2, 4)
    ]  # fmt: skip
    write_measurements(Path("links.csv"), measurements_of([*links, *messages()], "links.csv"))


def small(table: Any) -> Any:
    """Make the made-up model one of two layers between its ends, as the small one."""
    frame = table.frame.copy()
    frame.loc[frame["layers"] == "1-4", "layers"] = "1-2"
    frame.loc[frame["layers"] == "5", "layers"] = "3"
    frame[["hidden", "dtype"]] = [256.0, ""]
    return type(table)(frame=frame, source=table.source, machine=table.machine)


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--space", "groups"), ("--runtime", "megatron")])
def test_messages_are_of_the_links_that_are_joined(
    ilp_plan: Command, more: tuple[str, ...]
) -> None:
    own_tables(messages=2, message_bytes=MIB)
    asked = [*FAMILY, *more, "--micro-batch-size", "2", "--json", "--output", "plan.json"]
    value = value_of(ilp_plan("solve", *asked, "--profile", "rows.csv,links.csv"))
    assert value["profile"] == "rows.csv,links.csv"
    assert value["provenance"]["measured"] > 0.5
    done = ilp_plan("evaluate", "plan.json")
    assert done.code == 0, done.err
    assert "time rests on" in done.out
    Path("links.csv").write_text(Path("links.csv").read_text().replace("0.0001", "0.0002"))
    assert "inputs.profile: found sha256" in ilp_plan("evaluate", "plan.json").err


def test_a_plan_says_what_is_predicted(ilp_plan: Command) -> None:
    own_tables()
    rows = read_measurements(Path("rows.csv"))
    only = measurements_of([row for row in rows_of(rows.frame) if row["tp"] == 2], "rows.csv")
    write_measurements(Path("rows.csv"), only)
    done = ilp_plan("solve", *LAYERS, "--profile", "rows.csv", "--json", "--output", "plan.json")
    value = value_of(done)
    assert "predicted, not measured: gpu, tp 1" in " ".join(value["notes"])
    assert value["provenance"].get("extrapolated", 0) + value["provenance"]["measured"] > 0.5
    saved = json.loads(Path("plan.json").read_text())["evaluation"]["provenance"]
    assert saved == value["provenance"]


def test_export_says_what_it_had_to_put_in(ilp_plan: Command) -> None:
    own_tables(messages=2, message_bytes=MIB)
    done = ilp_plan("profile", "export", "metis", "rows.csv,links.csv", "files", "--model", "GPT3")
    assert done.code == 0, done.err
    assert "files: 6 files of 4 layers for Metis" in done.err
    assert "batch_generator_time_ms: the table has no such rows" in done.err
    content = json.loads((Path("files") / "DeviceType.GPU_tp1_bs1.json").read_text())
    assert content["model"]["model_name"] == "GPT3"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("import", "aceso", "nowhere", "--output", "x.csv"), "no such profile folder"),
        (("import", "metis", "nowhere", "--output", "x.csv"), "no such profile folder"),
        (("import", "amp", "nowhere", "--output", "x.csv"), "nowhere"),
        (("import", "metis", "empty", "--output", "x.csv"), "expected one file|must have files"),
        (("import", "aceso", "empty", "--output", "x.csv"), "--model: found none, expected files"),
        (("import", "aceso", "empty", "--output", "no/x.csv"), "no such folder"),
        (("export", "aceso", "rows.csv", "out"), "'operator', found"),
        (("export", "metis", "links.csv", "out"), "'layer', found"),
        (("export", "metis", "nope.csv", "out"), "nope.csv: no such file"),
        (("export", "metis", "rows.csv", "rows.csv"), "is a file, expected a folder"),
        (("export", "metis", "rows.csv", "out", "--sequence-length", "7"), "found sequence 128"),
    ],
)
def test_bad_input_is_one_line(ilp_plan: Command, arguments: tuple[str, ...], words: str) -> None:
    own_tables()
    Path("empty").mkdir()
    done = ilp_plan("profile", *arguments)
    assert done.code in (1, 2)
    assert len(done.err.strip().splitlines()) == 1
    assert any(word in done.err for word in words.split("|")), done.err
    assert not Path("out").exists()


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--profile", "links.csv"), "expected rows of record 'operator', found"),
        (("--profile", "links.csv", "--space", "groups"), "expected rows of record 'layer', found"),
        (("--profile", "rows.csv,,links.csv"), "expected FILE.csv,FILE.csv"),
        (("--profile", "nope.csv"), "nope.csv: no such file"),
        (("--profile", "table:"), "expected FILE.csv"),
        (("--profile", "rows.csv,rows.csv"), "has two rows, expected one"),
        (("--profile", "rows.csv", "--model", "gpt3-1.3b"), "expected 2048, which is the model's"),
        (("--profile", "rows.csv", "--cost-model", "amp"), "expected --profile amp:FILE"),
        (("--profile", "rows.csv", "--cluster", "a100-4x8"), "expected rows of 'A100', found"),
        (("--profile", "rows.csv", "--max-tp", "3", "--num-layers", "9"), "--num-layers: found 9"),
        (("--profile", "broken.csv"), "column 'time_s' is missing"),
    ],
)
def test_tables_that_cannot_be_planned_with(
    ilp_plan: Command, arguments: tuple[str, ...], words: str
) -> None:
    own_tables()
    lines = [line.split(",") for line in Path("rows.csv").read_text().splitlines()]
    lines = [line for line in lines if line[0][0] != "#"]
    place = lines[0].index("time_s")
    kept = [",".join(line[:place] + line[place + 1 :]) for line in lines]
    Path("broken.csv").write_text("\n".join(kept) + "\n")
    done = ilp_plan("solve", *FAMILY, *arguments)
    assert done.code in (1, 2)
    assert len(done.err.strip().splitlines()) == 1
    assert words in done.err


def test_two_models_in_one_database(ilp_plan: Command, aceso: Path) -> None:
    for path in list(aceso.glob(f"{KEY}_*")):
        (aceso / path.name.replace(KEY, "gpt_other")).write_bytes(path.read_bytes())
    done = ilp_plan("profile", "import", "aceso", "database", "--output", "table.csv")
    assert done.code == 2
    assert "--model: found none, expected one of gpt_other, gpt_tiny" in done.err
    asked = ["profile", "import", "aceso", "database", "--output", "t.csv"]
    for name in ("gpt_tiny", "tiny.toml"):
        done = ilp_plan(*asked, "--model", name)
        assert done.code == 0, done.err
    table = read_measurements(Path("t.csv"))
    operators = table.frame[table.frame["record"] == "operator"]
    assert set(operators["hidden"]) == {256}
    done = ilp_plan(*asked, "--model", "gpt_9")
    assert "found 'gpt_9', expected one of gpt_other, gpt_tiny" in done.err


@pytest.fixture
def sailor(folder: Path) -> Path:
    """Return a folder of Sailor's files, and quotas beside it."""
    write_files(folder / "sailor", small_files())
    return write_quotas(folder / "quotas.json", a100=8, v100=8)


SAILOR = ("profile", "import", "sailor", "sailor", "--output", "table.csv")
QUOTAS = ("--quotas", "quotas.json", "--cluster-output", "cluster.toml")


@pytest.mark.usefixtures("sailor")
def test_sailors_profile_and_cluster_are_planned_with(ilp_plan: Command) -> None:
    done = ilp_plan(*SAILOR, *QUOTAS)
    assert done.code == 0, done.err
    assert "cluster.toml: 16 GPUs" in done.err
    assert "act_input_floats" in done.err
    words = ("solve", "--profile", "table.csv", "--cluster", "cluster.toml", "--json")
    value = value_of(ilp_plan(*words, "--global-batch-size", "32", "--space", "groups"))
    assert value["gap"] == 0
    assert value["provenance"]["measured"] > 0
    assert any("multizone_bandwidths_het.json" in note for note in value["notes"])


@pytest.mark.usefixtures("sailor")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (QUOTAS[:2], "--cluster-output: found none"),
        (QUOTAS[2:], "--quotas: found none"),
        ((*QUOTAS[:3], "table.csv"), "--cluster-output: found table.csv, as --output has"),
        (("--model", "large"), "--model: found 'large', expected one of small"),
    ],
)
def test_half_a_request_is_refused(ilp_plan: Command, more: tuple[str, ...], told: str) -> None:
    done = ilp_plan(*SAILOR, *more)
    assert done.code == 2
    assert told in done.err
    assert not Path("table.csv").exists()


@pytest.mark.usefixtures("metis")
def test_quotas_are_of_sailor(ilp_plan: Command) -> None:
    done = ilp_plan("profile", "import", "metis", "metis", "--output", "table.csv", *QUOTAS)
    assert done.code == 2
    assert "--quotas: a profile of metis has no quotas" in done.err
