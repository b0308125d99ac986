"""Constants are found again in what a machine that is known takes, and nothing more is claimed."""

from dataclasses import replace
from functools import cache

import pytest

from ilp_planner.analysis.calibration.calibrate import Calibration, Predictions, calibrate
from ilp_planner.analysis.calibration.free import fit
from ilp_planner.base.errors import PlannerError, ProfileError, SpecError, UsageError
from ilp_planner.specs.cluster import ClusterSpec, NodeGroup
from ilp_planner.specs.machine import CONSTANTS
from ilp_planner.specs.training import OptimizerSettings, Settings
from tests.analysis.calibration.machines import DEFAULT, JOBS, h100, job, lab, runs_on
from tests.training_jobs import settings

OURS = replace(
    DEFAULT,
    sustained=0.65,
    streaming=0.5,
    grouped=0.8,
    links=0.7,
    host_forward=0.001,
    host_backward=0.0015,
)


ATTENTION = ("attention", "attention_backward")  # from the fourth run on, lengths differ
FLOOR = ("host_forward", "host_backward")


@cache
def ours(count: int = len(JOBS)) -> Calibration:
    """Return what is found of the first runs on that machine."""
    return calibrate(runs_on(OURS)[:count], lab())


def fitted(found: Calibration) -> dict[str, float]:
    return {constant.name: constant.value for constant in found.constants if not constant.why}


@pytest.mark.slow
def test_a_machine_is_found_again() -> None:
    found = ours()
    for judged in found.runs:
        assert judged.after == pytest.approx(judged.run.seconds, rel=0.02)
    for name in ("sustained", "streaming", "grouped", "links"):  # as near as the defaults pull
        assert getattr(found.machine, name) == pytest.approx(getattr(OURS, name), abs=0.08)
    assert found.machine.host_forward == pytest.approx(OURS.host_forward, rel=0.25)
    assert found.machine.host_backward == pytest.approx(OURS.host_backward, rel=0.2)
    assert found.machine.runs == len(JOBS)
    assert found.machine.error is not None
    assert found.machine.error < 0.1
    before = max(abs(judged.before / judged.run.seconds - 1) for judged in found.runs)
    assert before > 0.2


@pytest.mark.slow
def test_runs_by_the_defaults_give_the_defaults() -> None:
    found = calibrate(runs_on(DEFAULT), lab())
    for name in CONSTANTS:
        assert getattr(found.machine, name) == pytest.approx(getattr(DEFAULT, name), abs=1e-3)
    assert found.machine.error == pytest.approx(0.0, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "names"),
    [
        (3, {"sustained"}),
        (4, {"sustained", *ATTENTION}),
        (5, {"sustained", "streaming", *ATTENTION}),
    ],
)
def test_what_is_fitted_grows_with_the_runs(count: int, names: set[str]) -> None:
    assert set(fitted(ours(count))) == names
    every = {"sustained", "streaming", *ATTENTION, "grouped", "expert_waits", "links", *FLOOR}
    assert set(fitted(ours())) == every


@pytest.mark.slow
def test_runs_say_nothing_of_what_they_do_not_have() -> None:
    """Twelve jobs of one length, without experts, on one GPU each: no links, no attention."""
    jobs = [
        job(layers=layers, hidden=1024, tp=1, dp=1, micro_batch=micro_batch)
        for layers in range(2, 8)
        for micro_batch in (1, 2)
    ]
    found = calibrate(runs_on(OURS, jobs), lab())
    why = {constant.name: constant.why for constant in found.constants}
    assert why["grouped"] == "no run has experts"
    assert why["attention"] == why["attention_backward"] == "all samples have 2048 tokens"
    assert why["network"] == "no run crosses nodes"
    assert why["links"] == "no run depends on it"
    assert why["tensor_exposed"] == "only when asked for"
    assert "host_forward" in fitted(found)


@pytest.mark.slow
def test_sharded_runs_tell_what_their_passes_do_not_hide() -> None:
    """Ten of them; others say nothing of it."""
    optimizer = OptimizerSettings(sharding="parameters")
    jobs = [
        job(layers=layers, hidden=hidden, tp=1, settings=Settings(optimizer=optimizer))
        for layers in (4, 8)
        for hidden in (1024, 2048, 3072, 4096, 5120)
    ]
    runs = runs_on(replace(DEFAULT, sharded_exposed=0.2), jobs)
    found = calibrate(runs, lab(), ["sharded_exposed"])
    assert found.machine.sharded_exposed == pytest.approx(0.2, abs=0.02)
    assert "sharded_exposed" in fitted(calibrate(runs, lab()))
    assert "sharded_exposed" not in fitted(calibrate(runs[:9], lab()))
    why = {constant.name: constant.why for constant in ours().constants}
    assert why["sharded_exposed"] == "no run shards gradients or parameters"


def test_equal_jobs_are_one_run_as_evidence() -> None:
    runs = runs_on(OURS, JOBS[:1]) * 12
    found = calibrate(runs, lab())
    assert set(fitted(found)) == {"sustained"}
    assert found.machine.runs == 12
    assert found.machine.error is None
    assert all(judged.alone is None for judged in found.runs)


@pytest.mark.slow
def test_what_is_left_out_has_no_say() -> None:
    """A run's error is that of constants fitted from the start without it."""
    runs = runs_on(OURS)[:5]
    runs[2] = replace(runs[2], seconds=1.3 * runs[2].seconds)
    found = calibrate(runs, lab())
    others = [run for run in runs if run is not runs[2]]
    predictions = Predictions(lab(), [run.job for run in others])
    names = list(fitted(found))
    machine = fit(DEFAULT, names, predictions.of(range(4)), [run.seconds for run in others])
    alone = Predictions(lab(), [runs[2].job]).seconds(0, machine)
    assert found.runs[2].alone == pytest.approx(alone, rel=5e-3)
    assert found.runs[2].error == pytest.approx(alone / runs[2].seconds - 1, abs=5e-3)
    errors = [abs(judged.error or 0) for judged in found.runs]
    assert found.machine.error == pytest.approx(sum(errors) / 5, abs=1e-4)


def test_weights_count() -> None:
    slow, fast = runs_on(replace(DEFAULT, sustained=0.45), JOBS[:1]), runs_on(DEFAULT, JOBS[1:2])
    heavy = calibrate([replace(slow[0], weight=20.0), *fast], lab()).machine.sustained
    light = calibrate([slow[0], replace(fast[0], weight=20.0)], lab()).machine.sustained
    assert heavy < 0.55 < 0.65 < light


def test_constants_that_are_asked_for() -> None:
    found = calibrate(runs_on(OURS)[:3], lab(), ["streaming", "links"])
    assert set(fitted(found)) == {"streaming", "links"}
    assert found.machine.sustained == DEFAULT.sustained


def test_a_calibrated_cluster_is_calibrated_from_the_defaults() -> None:
    """Otherwise the same runs would count twice."""
    runs, once = runs_on(OURS)[:3], ours(3)
    again = calibrate(runs, lab(h100(machine=once.machine)))
    assert again.machine == once.machine
    by_hand = calibrate(runs, lab(h100(machine=replace(DEFAULT, links=0.5))))
    assert by_hand.machine.links == 0.5


def test_a_run_that_nothing_explains_is_left_out() -> None:
    runs = runs_on(OURS)[:4]
    wrong = replace(runs[3], seconds=20 * runs[3].seconds)  # 8 may be attention and clocks
    found = calibrate([*runs[:3], wrong], lab())
    assert [judged.run for judged in found.left_out] == [wrong]
    assert found.machine == ours(3).machine


def test_jobs_on_a_part_of_the_cluster() -> None:
    """A job takes as many nodes as it needs, whatever else the cluster has."""
    run = runs_on(OURS, JOBS[:1])[0]
    few, many = (calibrate([run], lab(nodes=nodes)).machine for nodes in (1, 64))
    assert few == many


def mixed() -> ClusterSpec:
    types = {"H100": h100(), "A100": h100(name="A100")}
    groups = tuple(NodeGroup(device=name, devices=8) for name in types)
    return replace(lab(), device_types=types, nodes=groups)


def check(says: str, error: type[PlannerError], *arguments: object) -> None:
    with pytest.raises(error) as caught:
        calibrate(*arguments)  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_runs_that_contradict_each_other_are_named() -> None:
    runs = runs_on(OURS)[:3]
    twin = replace(runs[1], name="twin", seconds=1.2 * runs[1].seconds, place="runs.csv: line 9")
    check("runs.csv: line 9: found", ProfileError, [*runs, twin], lab())
    check("of run 1 (line 3), an equal job: expected times within 10 %", ProfileError,
          [*runs, twin], lab())  # fmt: skip
    near = replace(twin, seconds=1.05 * runs[1].seconds)
    assert calibrate([*runs, near], lab()).machine.runs == 4


@pytest.mark.parametrize(
    ("factor", "column", "says"),
    [
        (1e3, "seconds", "found milliseconds, expected seconds; call the column milliseconds"),
        (1e-3, "milliseconds", "found seconds, expected milliseconds; call the column seconds"),
        (1e3, "milliseconds", "found microseconds, expected milliseconds"),
        (8.0, "tokens_per_second", "found those of one GPU"),
    ],
)
def test_other_units_are_named(factor: float, column: str, says: str) -> None:
    runs = [replace(r, seconds=factor * r.seconds, column=column) for r in runs_on(OURS)[:4]]
    check(says, ProfileError, runs, lab())


def test_runs_of_another_machine_are_refused() -> None:
    runs = [replace(r, seconds=20 * r.seconds) for r in runs_on(OURS)[:4]]
    check("more than half of the runs are more than 3 x off", ProfileError, runs, lab())


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["sustaind"], "fit: found 'sustaind', did you mean 'sustained'?"),
        (["sustained", "links", "streaming"], "`fit=sustained,links` would do"),
        (["grouped"], "fit: no run depends on 'grouped', expected some of sustained"),
    ],
)
def test_what_cannot_be_fitted_is_refused(names: list[str], says: str) -> None:
    check(says, UsageError, runs_on(OURS)[:2], lab(), names)


def test_clusters_that_have_no_constants() -> None:
    runs = runs_on(OURS)[:2]
    check('expected gpu = "..." beside it', SpecError, runs, lab(h100(kernels=None, gpu="")))
    check('found kernels = "roofline", whose times', SpecError, runs, lab(h100(kernels=None)))
    check("found devices H100, A100, expected one type", SpecError, runs, mixed())
    other = replace(runs[0], job=replace(runs[0].job, settings=settings(precision="fp16")))
    check('expected peak.fp16 = "... TFLOP/s"', SpecError, [other], lab())
