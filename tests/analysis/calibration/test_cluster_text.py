"""A cluster file keeps every word that is not of its machine."""

import tomllib
from pathlib import Path

import pytest

from ilp_planner.analysis.calibration.cluster_text import machine_table, with_machine
from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.machine import Machine
from tests.analysis.calibration.machines import TOML

OURS = Machine(sustained=0.7512, host_forward=0.0019, host_experts=0.0, error=0.0413, runs=12)
OTHER = Machine(links=0.5, runs=1)


def written(text: str, machine: Machine, device: str = "H100") -> str:
    return with_machine(Document("mine.toml", text), device, machine, "by hand")


@pytest.mark.parametrize("machine", [OURS, OTHER, Machine()])
def test_what_is_written_is_read(machine: Machine) -> None:
    text = written(TOML, machine)
    assert text.startswith(TOML)
    assert read_cluster(Document("mine.toml", text)).device_types["H100"].machine == machine


def test_a_table_that_is_there_is_replaced() -> None:
    table = machine_table("H100", OTHER, "by hand").replace("links", "# ours\nlinks")
    head, links = TOML.split("[links.intra_node]")
    between = f"{head}{table}\n[links.intra_node]{links}"
    assert written(between, OURS) == written(TOML, OURS)
    assert written(written(TOML, OTHER), OURS) == written(TOML, OURS)


def test_names_that_need_quotes() -> None:
    for name in ("H100 SXM", 'say "H"', "a.b", "ü"):
        key = "'" + name + "'"
        text = TOML.replace("devices.H100", f"devices.{key}")
        found = tomllib.loads(written(written(text, OTHER, name), OURS, name))
        assert found["devices"][name]["machine"]["runs"] == 12
        assert found["devices"][name]["gpu"] == "H100-80GB"


@pytest.mark.parametrize(
    "line", ["machine = {links = 0.5}", "machine.links = 0.5", "[devices.H100.machine.more]"]
)
def test_other_forms_are_refused_not_mixed(line: str) -> None:
    text = TOML.replace("[links.intra_node]", f"{line}\n\n[links.intra_node]")
    with pytest.raises(SpecError, match=r"mine\.toml: device 'H100': cannot write its machine"):
        written(text, OURS)


def test_the_shipped_clusters_can_be_written() -> None:
    for file in sorted((Path(__file__).parents[3] / "clusters").glob("*.toml")):
        text = file.read_text()
        for name in tomllib.loads(text)["devices"]:
            assert written(text, OURS, name).startswith(text.rstrip())
