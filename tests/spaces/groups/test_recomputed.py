"""Recomputation in the space of groups, as a user meets it: estimates, constraints and files."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ilp_planner as ilp
from ilp_planner.base.errors import UsageError
from ilp_planner.costs.layers import layer_costs
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.recomputed import with_recomputation
from ilp_planner.faces.cli.main import run
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.megatron.plan import NoJobError, job_of_plan
from ilp_planner.formats.plan_json import decode_plan, encode_plan
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupStage, Plan, Replica, is_of_groups
from ilp_planner.specs.training import Recompute
from tests.costs.mixed_instances import cluster_of, profile_of
from tests.examples import for_each
from tests.mixed_cases import SAVED, decoder_problem, write_room

FULL = Recompute(granularity="full", method="uniform", layers=1)


def tight(**said: object) -> Problem:
    """A small decoder on two types of GPUs with little memory."""
    return decoder_problem(memory_limit="140 MiB", **said)


def test_recomputation_makes_room_for_a_faster_plan() -> None:
    without, freely = (ilp.solve(tight(**said)) for said in ({"recompute": "none"}, {}))
    assert freely.objective < 0.9 * without.objective
    assert without.gap == freely.gap == 0
    assert {stage.recompute for stage in without.plan.stages} == {Recompute()}
    assert any(stage.recompute != Recompute() for stage in freely.plan.stages)
    assert ilp.evaluate(tight(), freely.plan).legal
    broken = ilp.evaluate(tight(recompute="none"), freely.plan).violations
    assert {rule.rule for rule in broken} == {"recompute"}


def test_a_plan_keeps_in_its_file_what_it_computes_again() -> None:
    replicas = (Replica(devices=(0,), samples=2),)
    block = Recompute(granularity="full", method="block", layers=2)
    again = (Recompute(), Recompute(granularity="selective"), FULL, block)
    plan = Plan(
        model="m",
        global_batch=4,
        micro_batches=2,
        stages=tuple(
            GroupStage(start=3 * s, stop=3 * s + 3, replicas=replicas, recompute=recompute)
            for s, recompute in enumerate(again)
        ),
    )
    written = encode_plan(plan)
    assert ["recompute" in stage for stage in written["stages"]] == [False, True, True, True]
    assert decode_plan(Fields(written, file="plan.json")) == plan


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"recompute": "layernorm"},
            '`recompute="layernorm"`: expected `space="megatron"`, found groups, which has none, '
            "selective, full, block, core_attn",
        )
    ],
)
def test_what_groups_do_not_have_is_refused(said: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        tight(**said)


def test_the_rows_of_estimates_are_ordered() -> None:
    """Computing again takes longer and keeps less; a layer keeps at least its input, and embedding
    and output are as they are."""
    profile: LayerProfile = tight().costs.profile
    assert set(profile.recomputed) == {"full", "selective"}
    for again in profile.recomputed.values():
        for key, row in again.time.items():
            assert (row[1:-1] > profile.time[key][1:-1]).all()
            assert (row[[0, -1]] == profile.time[key][[0, -1]]).all()
        for pair, kept in again.activation.items():
            assert (kept[1:-1] < profile.activation[pair][1:-1]).all()
    whole, core = (profile.recomputed[name] for name in ("full", "selective"))
    for pair, kept in whole.activation.items():
        assert (kept[1:-1] <= core.activation[pair][1:-1]).all()
        assert kept[1:-1] == pytest.approx(profile.boundary[1:-2])


def test_forward_passes_say_what_whole_layers_take() -> None:
    plain = profile_of(layers=4)
    assert with_recomputation(plain) is plain
    plain = replace(plain, forward={key: row / 3 for key, row in plain.time.items()})
    again = with_recomputation(plain).recomputed["full"]
    key, pair = LayerKey("fast", 2, 4), ("fast", 2)
    assert again.time[key][1:-1] == pytest.approx(plain.time[key][1:-1] * 4 / 3)
    assert again.time[key][[0, -1]] == pytest.approx(plain.time[key][[0, -1]])
    kept = np.minimum(plain.boundary[1:-2], plain.activation[pair][1:-1])
    assert again.activation[pair][1:-1] == pytest.approx(kept)
    once = again.activation[pair] + again.workspace_per_sample[pair]
    assert once[1:-1] == pytest.approx(plain.activation[pair][1:-1])
    some = {key: row for key, row in plain.forward.items() if key.tp == 1}
    assert not with_recomputation(replace(plain, forward=some)).recomputed


def test_costs_without_forward_passes_know_no_recomputation() -> None:
    """Metis's files say nothing of them: `none` may be asked for alone."""
    profile, cluster = profile_of(("t4",)), cluster_of([("t4", 2)])
    assert layer_costs(profile, cluster).recomputations == ("none",)
    assert layer_costs(profile, cluster, recomputations=("none", "full")).recomputations == (
        "none",
    )
    assert not layer_costs(profile, cluster, recomputations=("full",)).recomputations


def test_recomputation_is_refused_where_the_profile_says_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_room(tmp_path)
    cluster, profile = f"{tmp_path / 'room.toml'}", f"metis:{tmp_path / 'profile'}"
    words = (
        "solve", "--space", "groups", "--cluster", cluster, "--profile", profile,
        "--hidden-size", "512", "--sequence-length", "256", "--global-batch-size", "8",
        "--recompute", "full",
    )  # fmt: skip
    assert run(list(words)) > 0
    said = " ".join(capsys.readouterr().err.split())
    assert "which has no forward passes by themselves, expected none" in said
    assert run([*words[:-1], "none"]) == 0


def test_a_runtime_says_it_for_all_stages() -> None:
    problem = ilp.problem(
        model=SAVED / "tiny.toml", gpus="2xA100-80GB", global_batch=4, tp=1, pp=1, recompute="none"
    )
    plan = ilp.solve(problem).plan
    assert is_of_groups(plan)
    own = replace(plan, stages=tuple(replace(s, recompute=FULL) for s in plan.stages))
    broken = ilp.evaluate(problem, own).violations
    assert [rule.rule for rule in broken] == ["recompute"] * len(plan.stages)


BLOCK = Recompute(granularity="full", method="block", layers=3)
CORE = Recompute(granularity="selective")


@pytest.mark.slow
@for_each(
    ("own", "together"),
    [
        ((FULL, FULL), FULL),
        ((CORE, CORE), CORE),
        ((BLOCK, BLOCK), BLOCK),
        ((replace(BLOCK, layers=12), FULL), replace(BLOCK, layers=12)),
        ((BLOCK, Recompute()), None),
        ((CORE, FULL), None),
    ],
)
def test_megatron_gets_what_all_stages_have_in_common(
    own: tuple[Recompute, ...], together: Recompute | None
) -> None:
    problem = ilp.problem(
        model="gpt3-350m", cluster="v100-32gb-2x8", space="groups", global_batch=32
    )
    stages = tuple(
        GroupStage(
            start=13 * s,
            stop=13 * s + 13,
            replicas=tuple(Replica(devices=(8 * s + r,), samples=1) for r in range(8)),
            recompute=recompute,
        )
        for s, recompute in enumerate(own)
    )
    plan = Plan(model="gpt3-350m", global_batch=32, micro_batches=4, stages=stages)
    if together is None:
        with pytest.raises(NoJobError, match=r"stages\[1\].recompute: found .*nearest it can run"):
            job_of_plan(plan, problem.spec, problem.cluster)
        return
    assert job_of_plan(plan, problem.spec, problem.cluster).settings.recompute == together
