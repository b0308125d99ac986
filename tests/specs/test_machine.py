"""Constants of a machine, and how cluster files say them."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.machine import Machine, with_constants
from tests.analysis.calibration.machines import DEFAULT, TOML
from tests.examples import for_each
from tests.small import CLUSTER


def machine_of(folder: Path, text: str) -> Machine:
    path = folder / "mine.toml"
    path.write_text(f"{TOML}\n[devices.H100.machine]\n{text}\n")
    return read_cluster(path).device_types["H100"].machine


def test_a_cluster_file_says_a_machine(tmp_path: Path) -> None:
    text = 'sustained = 0.75\nhost_forward = "1.9 ms"\nstep = 0\nerror = 0.041\nruns = 12'
    expected = replace(DEFAULT, sustained=0.75, host_forward=0.0019, step=0.0, error=0.041, runs=12)
    assert machine_of(tmp_path, text) == expected
    assert machine_of(tmp_path, "") == DEFAULT


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sustaned = 1", "devices.H100.machine: unknown key 'sustaned', did you mean 'sustained'?"),
        ("sustained = -1", "sustained must be a positive number, found -1"),
        ("sustained = 0", "sustained must be positive, found 0.0"),
        ("sustained = true", "sustained must be a positive number, found true"),
        ("host_forward = 0.0019", "host_forward must have a unit"),
        ('host_forward = "-2 ms"', "host_forward must be positive"),
        ("runs = 1.5", "runs must be a whole number of at least 0, found 1.5"),
    ],
)
def test_what_a_machine_cannot_be(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        machine_of(tmp_path, text)
    assert says.replace("devices.H100", "device 'H100'") in str(caught.value)


def test_constants_without_kernels_would_do_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pair.toml"
    path.write_text(CLUSTER + "[devices.gpu.machine]\nsustained = 0.7\n")
    with pytest.raises(SpecError, match=r"device 'gpu': machine: .* expected gpu = \"\.\.\.\""):
        read_cluster(path)


def test_constants_beside_a_roofline_would_do_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        TOML.replace("[devices.H100]", '[devices.H100]\nkernels = "roofline"')
        + "\n[devices.H100.machine]\nsustained = 0.7\n"
    )
    with pytest.raises(SpecError, match=r"device 'H100': machine: .* kernels = \"roofline\""):
        read_cluster(path)


@for_each("value", [-0.1, math.nan, math.inf])
def test_constants_are_finite(value: float) -> None:
    for name in ("sustained", "step", "error"):
        with pytest.raises(ValueError, match=name):
            with_constants(Machine(), {name: value})
