"""A plan cannot be put together from nonsense."""

import dataclasses

import pytest

from ilp_planner.plan import OperatorStage, Plan, Stage, Strategy


def stage_of(**changes: object) -> Stage:
    fields: dict[str, object] = {
        "start": 0,
        "stop": 2,
        "first_device": 0,
        "device_count": 2,
        "strategies": (Strategy(tp=2), Strategy(dp=2)),
    }
    return OperatorStage(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("tp", "dp"), [(0, 1), (1, 0), (-2, 1), (1, -1), (-1, -1)])
def test_degrees_are_at_least_one(tp: int, dp: int) -> None:
    with pytest.raises(ValueError, match=f"^tp and dp must be >= 1, found tp={tp}, dp={dp}$"):
        Strategy(tp=tp, dp=dp)


@pytest.mark.parametrize("devices", [0, -1])
def test_a_stage_has_devices(devices: int) -> None:
    with pytest.raises(ValueError, match=f"^devices must be >= 1, found {devices}$"):
        stage_of(device_count=devices)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_every_operator_has_a_strategy(count: int) -> None:
    message = f"^a stage of 2 operators needs as many strategies, found {count}$"
    with pytest.raises(ValueError, match=message):
        stage_of(strategies=(Strategy(),) * count)


def test_a_stage_does_not_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="a stage of -1 operators"):
        stage_of(start=3, strategies=())


def test_a_strategy_does_by_default_nothing_in_parallel() -> None:
    assert Strategy() == Strategy(tp=1, dp=1, split=0, recompute=False)


def test_a_plan_counts_its_micro_batches_and_devices() -> None:
    plan = Plan(
        model="m",
        global_batch=12,
        micro_batches=3,
        stages=(stage_of(), stage_of(start=2, stop=4, first_device=2)),
    )
    assert (plan.micro_batches, plan.devices) == (3, 4)


def test_plans_are_values() -> None:
    plan = Plan(model="m", global_batch=4, micro_batches=2, stages=(stage_of(),))
    same = Plan(model="m", global_batch=4, micro_batches=2, stages=(stage_of(),))
    assert plan == same
    assert hash(plan) == hash(same)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.micro_batches = 1  # type: ignore[misc]


def test_virtual_stages_use_the_devices_of_their_rank_once() -> None:
    first, second = stage_of(first_device=4), stage_of(start=2, stop=4, first_device=2)
    more = [dataclasses.replace(s, start=s.start + 4, stop=s.stop + 4) for s in (first, second)]
    plan = Plan(
        model="m", global_batch=4, micro_batches=4, stages=(first, second, *more), virtual=2
    )
    assert (plan.used, plan.devices) == ((4, 5, 2, 3), 4)
    assert plan.per_rank([1, 20, 300, 4000]) == [301, 4020]
