"""Published runs become jobs, and predictions of a few of them stay near the measured times."""

import pytest

from tests.benchmarks import machine_fit, published
from tests.benchmarks.published import DATA, Run, left_out, newest, rows, runs, stated, too_large
from tests.benchmarks.published_tables import b200_runs, korthikanti_runs, sc21_runs
from tests.benchmarks.step_defaults import base_of
from tests.benchmarks.step_fit import free_constants, shares
from tests.benchmarks.step_times import judge, judge_by, physical, score, seconds, shipped
from tests.benchmarks.steps import among, is_low

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no runs in ../shared/data/measured")


COUNTS = {
    "LoRA": 57, "hybrid, by the suite hybrids": 15, "SFT": 9, "fp8 kind unknown": 6,
    "low confidence": 3,
}  # fmt: skip


def run(name: str) -> Run:
    return next(one for one in runs() if one.name.endswith(name))


def dense() -> list[Run]:
    return [one for one in machine_fit.runs() if one.job.model.experts is None]


@pytest.mark.slow
def test_rows_that_say_nothing_are_counted_and_all_others_become_jobs():
    why = [left_out(row) for row in rows()]
    assert len(stated()) == why.count("") == 439
    assert len(runs()) == 439 - sum(map(too_large, stated())) == 431
    counts = {name: why.count(name) for name in dict.fromkeys(filter(None, why))}
    assert counts == COUNTS
    for one in runs():
        assert one.job.world == one.gpus


def test_a_group_is_judged_by_its_newest_release():
    by_group = {one.group: one for one in newest(list(runs()))}
    assert by_group[run("0662").group].version == (25, 2, 1)
    assert len(by_group) == len({one.group for one in runs()})


def test_networks_are_those_that_rows_name():
    gigabits = {one.network * 8e-9 for one in runs() if one.family == "InternEvo"}
    assert gigabits == {400}
    assert run("0235").network == 400e9
    assert {one.network * 8e-9 for one in runs() if "FSDP1 + compile" in one.family} == {400, 800}


def test_frameworks_of_2021_and_of_today_differ():
    late, early = korthikanti_runs()[0].job.settings, sc21_runs()[0].job.settings
    assert (late.async_tensor, late.kernels.accumulation_fusion) == (True, True)
    assert (early.async_tensor, early.kernels.accumulation_fusion) == (False, False)
    science = next(one for one in runs() if one.family == published.OLD).job.settings
    assert (science.scatter_sends, science.async_tensor) == (True, False)
    assert run("0690").job.settings.optimizer.instances == 256 // 8


def test_embedding_and_output_count_as_layers_where_a_row_says_so():
    stages = run("1035").job.stages
    assert [stage.layers for stage in stages] == [8, *[9] * 10, 8]


@pytest.mark.parametrize(("low", "most"), [(False, 0.06), (True, 0.08)])
def test_shipped_constants_are_near_published_runs(low, most):
    found = score(judge_by([one for one in dense() if is_low(one) == low], shipped))
    assert found["mape"] < most
    assert abs(found["bias"]) < 0.04


def test_no_published_run_is_faster_than_physics():
    every = [*runs(), *b200_runs(), *sc21_runs(), *korthikanti_runs()]
    assert all(0 < physical(one, base_of(one)) < one.seconds for one in every)


def test_scores_are_of_the_runs_that_are_judged():
    few = [run("0235"), run("0224"), run("0199")]
    judged = judge(few, base_of(few[0]))
    found = score(judged)
    off = [seconds(one, base_of(one)) / one.seconds - 1 for one in few]
    assert found["mape"] == pytest.approx(sum(map(abs, off)) / 3, abs=1e-4)
    assert found["runs"] == 3
    assert among(judged, few[:1]).predicted == judged.predicted[:1]


def test_halves_are_of_every_gpu_and_cover_all_runs():
    every = [one for one in dense() if is_low(one)]
    for seen, rest in shares(every, 2, seed=0):
        assert {one.name for one in seen} | {one.name for one in rest} == {r.name for r in every}
        assert not {one.name for one in seen} & {one.name for one in rest}
        alone = {"B300"}  # has a single run
        assert {one.gpu for one in seen} - alone == {one.gpu for one in every} - alone


def test_more_runs_tell_more_constants():
    science = [one for one in newest(list(runs())) if one.family == published.OLD]
    assert free_constants(science[:4]) == ("sustained",)
    assert free_constants(science[:9]) == ("sustained", "streaming")
    assert {"links", "network"} < set(free_constants(science))
