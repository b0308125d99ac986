"""Expected errors: an interval around the predicted time, wider for what was never measured."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.specs.gpus import table
from ilp_planner.specs.machine import USUAL, Machine
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.time_errors import (
    LONG,
    MANY,
    OTHER,
    OWN,
    SAME,
    STATES,
    RunKind,
    calibrated_error,
    half_widths,
    kind_of_job,
    known_on,
    level_of,
    percent,
    published_error,
)
from ilp_planner.specs.training import OptimizerSettings, Settings
from ilp_planner.specs.tuning import Tuning
from tests.analysis.calibration.machines import h100
from tests.benchmarks.cases import ROOT
from tests.examples import for_each

MODELS = ROOT / "models"
DENSE = RunKind(experts=False, bits=16, gpu="H100-80GB", sequence=4096, gpus=8)
KINDS = st.builds(
    RunKind,
    experts=st.booleans(),
    bits=st.sampled_from(sorted(STATES)),
    gpu=st.sampled_from(sorted(table())),
    sharded=st.booleans(),
    sequence=st.integers(0, 10**6),
    gpus=st.integers(1, 10**5),
    unmeasured=st.sampled_from([(), ("DeepSpeed",), ("DeepSpeed", "a model of t5")]),
)


@given(KINDS)
def test_intervals_hold_the_predicted_time_and_the_mean_error(kind: RunKind) -> None:
    found = published_error(kind)
    assert found.low < 1 < found.high
    assert 0 < found.mean < found.high / found.low - 1


@given(KINDS, st.sampled_from(["unmeasured", "sequence", "gpus"]))
def test_what_was_never_measured_widens(kind: RunKind, name: str) -> None:
    usual = replace(kind, sequence=LONG + 1, gpus=MANY + 1)
    more = {"unmeasured": (*usual.unmeasured, "another system"), "sequence": 10**7, "gpus": 10**6}
    narrow, wide = published_error(usual), published_error(replace(usual, **{name: more[name]}))
    assert wide.low < narrow.low
    assert wide.high > narrow.high
    assert "widened" in wide.basis


@given(KINDS)
def test_no_feature_narrows(kind: RunKind) -> None:
    plain = published_error(replace(kind, experts=False, bits=16, sharded=False))
    found = published_error(kind)
    assert found.low <= plain.low
    assert found.high >= plain.high


@for_each("name", sorted(table()))
@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("bits", sorted(STATES))
def test_every_gpu_precision_and_family_has_a_line(name: str, experts: bool, bits: int) -> None:
    found = published_error(replace(DENSE, gpu=name, experts=experts, bits=bits))
    assert found.text.startswith("4 of 5 runs took ")
    if level_of(name) != OWN or bits == 32:
        assert "widened" in found.text
    elif found.runs:
        assert f"{found.runs} published group" in found.text
    else:
        assert "nothing like it was measured" in found.text


@for_each(
    ("name", "level"),
    [
        ("H100-80GB", OWN),
        ("A100-40GB", OWN),
        ("GB300", OWN),
        ("H200", SAME),
        ("H800", SAME),
        ("A800-80GB", SAME),
        ("A10G", OTHER),
        ("L40S", OTHER),
        ("RTX-5090", OTHER),
        ("MI300X", OTHER),
    ],
)
def test_constants_are_measured_or_inherited(name: str, level: str) -> None:
    assert level_of(name) == level


def test_a_line_says_what_it_rests_on() -> None:
    found = published_error(DENSE)
    assert found.basis == f"dense, 16 bits, on H100: {found.runs} published groups"
    away = published_error(replace(DENSE, gpu="L40S"))
    assert away.basis == f"dense, 16 bits: {away.runs} published groups; none with L40S: widened"
    never = published_error(replace(DENSE, gpu="L40S", experts=True, bits=4))
    assert never.basis == "experts, 4 bits, on L40S: nothing like it was measured; widened"
    other = published_error(replace(DENSE, unmeasured=("DeepSpeed",)))
    assert other.basis.endswith("; none with DeepSpeed: widened")


def test_what_no_published_group_had_is_said() -> None:
    """Hybrids, sparse attention and models of which a part is trained stand in no group that
    intervals rest on."""
    plain = read_model(MODELS / "llama3-8b.toml").architecture
    hybrid = read_model(MODELS / "nemotron3-nano-30b-a3b.toml").architecture
    sparse = read_model(MODELS / "glm5.toml").architecture
    tuned = (Tuning(rank=8, targets=("linear_qkv",)), Tuning(frozen=("embedding",)))
    assert kind_of_job(plain, Settings(), 8).unmeasured == ()
    assert kind_of_job(hybrid, Settings(), 8).unmeasured == ("layers of scans",)
    assert kind_of_job(sparse, Settings(), 8).unmeasured == ("sparse attention",)
    muon = Settings(optimizer=OptimizerSettings(name="muon", moments=4))
    assert kind_of_job(plain, muon, 8).unmeasured == ("a step of Muon",)
    for tuning in tuned:
        kind = kind_of_job(plain, Settings(tuning=tuning), 8)
        assert kind.unmeasured == ("a part of the model trained",)


@given(st.floats(0.001, 0.5), st.integers(2, 50))
def test_calibrated_machines_are_wider_where_few_runs_tell(error: float, runs: int) -> None:
    few, more = (calibrated_error(Machine(error=error, runs=n)) for n in (runs, runs + 1))
    assert few is not None
    assert more is not None
    assert few.low < more.low < 1 < more.high < few.high
    assert few.mean == error


def test_a_plan_is_as_well_known_as_its_worst_device() -> None:
    usual = h100(machine=USUAL["H100"])
    own = h100(machine=replace(USUAL["H100"], error=0.02, runs=9))
    changed = h100(machine=replace(USUAL["H100"], sustained=0.5))
    alone = known_on([own], DENSE)
    assert alone.runs == 9
    assert known_on([own, usual], DENSE) == known_on([usual], DENSE) != alone
    unknown = known_on([own, usual, changed], DENSE)
    assert unknown.error is None
    assert "nothing like it was measured" in unknown.text
    assert "roofline" in known_on([replace(usual, kernels=None), usual], DENSE).text
    once = known_on([h100(machine=Machine(runs=1))], DENSE)
    assert once.text == "not known (1 run; needs two different ones)"
    assert known_on([], DENSE).text == ""


@for_each(("share", "text"), [(0.0321, "+3.2 %"), (-0.105, "-10 %"), (0.0999, "+10 %")])
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_factors_multiply_either_side() -> None:
    ends = half_widths(("long", "other"), (0.1, 0.2), {"long": (2.0, 3.0)})
    assert ends == pytest.approx((0.2, 0.6))
