"""How plain jobs are: a total order, row by row, the same for plans and for jobs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.spaces.training.deepspeed import DEEPSPEED
from ilp_planner.spaces.training.enumerate.plainness import (
    AGAIN,
    BLOCK,
    ORDER,
    Traits,
    grades,
    traits_of,
)
from ilp_planner.spaces.training.runtime import MEGATRON, Runtime
from ilp_planner.spaces.training.torchtitan import EARLIER, MEASURED_STAGES, NEWEST
from ilp_planner.specs.training import (
    OPERATORS,
    ORDERS,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from tests.examples import examples, for_each
from tests.training_jobs import jobs

RUNTIMES = (MEGATRON, NEWEST, EARLIER, DEEPSPEED)
PAGE = Path(__file__).parents[4] / "docs" / "explain" / "plain.md"
NAMES = [row.name for row in ORDER]
FULL = Recompute(granularity="full", method="uniform", layers=1)
FIRST = Recompute(granularity="full", method="block", layers=2)


def plain(runtime: Runtime = MEGATRON, **changes: Any) -> Traits:
    """Return the traits of a job that is as plain as any, with changes."""
    sharding = runtime.usual_sharding[1]
    settings = Settings(optimizer=OptimizerSettings(sharding=sharding))
    traits = Traits(
        runtime=runtime,
        settings=settings,
        tp=1,
        pp=1,
        virtual=1,
        recompute=Recompute(),
        turn=0,
        schedule="1f1b",
    )
    own = {name: value for name, value in changes.items() if name in Traits._fields}
    others = {name: value for name, value in changes.items() if name not in own}
    return traits._replace(**own, **({"settings": replace(settings, **others)} if others else {}))


def selective(*modules: str) -> Recompute:
    return Recompute(granularity="selective", modules=modules)


# Name of a row -> changes of a plain job, from plainer to less plain, that no row before notices.
STEPS: dict[str, list[dict[str, Any]]] = {
    "unmodelled settings": [{"overlap_tensor": True},
     {"overlap_tensor": True, "kernels": Kernels(graphs="full_iteration")}],
    "virtual stages": [{"virtual": 2}, {"virtual": 3}, {"virtual": 10}],
    "schedule": [{"schedule": "zb-v"}],
    "offloading": [
        {"optimizer": OptimizerSettings(sharding="optimizer", offload=0.5)},
        {
            "optimizer": OptimizerSettings(sharding="optimizer", offload=0.5),
            "offload": Offload(layers=2),
        },
    ],
    "sharding": [{"optimizer": OptimizerSettings(sharding="parameters")},
     {"optimizer": OptimizerSettings(sharding="parameters", instances=2)}],
    "degrees": [{"tp": 8}, {"tp": 2, "pp": 2}, {"tp": 2, "pp": 2, "ep": 2}],
    "recomputation": [{"recompute": FULL}, {"recompute": FIRST}, {"recompute": selective("mlp")}],
    "order of ranks": [{"order": ORDERS[1]}],
    "unequal stages": [{"uneven": True}],
}  # fmt: skip


@for_each("name", [name for name in NAMES if name != "context parallelism"])
def test_each_row_tells_less_plain_jobs_from_plainer_ones(name: str) -> None:
    place = NAMES.index(name)
    found = [grades(plain()), *(grades(plain(**changes)) for changes in STEPS[name])]
    assert not any(found[0])
    assert found == sorted(found)
    assert len({*found}) == len(found)
    assert not any(any(each[:place]) for each in found)


def test_context_parallelism_is_less_plain_than_another_degree() -> None:
    """Above all by other messages than the first ones of the runtime."""
    tp, cp, heads = plain(tp=2), plain(cp=2), plain(cp=2, cp_comm="a2a")
    assert grades(tp) < grades(cp) < grades(heads)
    gathered = plain(NEWEST, cp=2, cp_comm="all_gather")
    assert grades(plain(NEWEST, tp=2)) < grades(gathered)
    assert dict(zip(NAMES, grades(gathered), strict=True))["context parallelism"] == 1


def test_what_is_usual_depends_on_the_runtime() -> None:
    sharded = {"optimizer": OptimizerSettings(sharding="parameters")}
    found = {runtime.name: any(grades(plain(runtime, **sharded))) for runtime in RUNTIMES}
    assert found == {
        "megatron": True, "torchtitan": False, "torchtitan@0.2.2": False, "deepspeed": False,
    }  # fmt: skip
    assert grades(plain(NEWEST, recompute=selective(OPERATORS)))[AGAIN] == 1
    assert grades(plain(recompute=FIRST))[AGAIN] == BLOCK


def test_many_virtual_stages_of_sharded_parameters_are_not_modelled_with_torchtitan() -> None:
    """What a note says of all its plans makes such plans less plain."""
    few, many = (plain(NEWEST, virtual=n, pp=2) for n in (MEASURED_STAGES, MEASURED_STAGES + 1))
    assert grades(few)[0] == 0
    assert grades(many)[0] == 1
    assert any(f"more than {MEASURED_STAGES}" in note for note in NEWEST.notes())
    assert grades(plain(virtual=MEASURED_STAGES + 1))[0] == 0


def test_turns_of_more_micro_batches_than_ranks_are_exotic() -> None:
    usual, longer = (plain(pp=2, virtual=2, turn=turn) for turn in (2, 3))
    assert grades(usual)[:3] == (0, 1, 0)
    assert grades(longer)[:3] == (0, 1, 1)


@examples(60)
@given(jobs(), st.sampled_from(RUNTIMES))
def test_every_job_has_a_place_in_the_order(job: TrainingJob, runtime: Runtime) -> None:
    found = grades(traits_of(runtime, job))
    assert len(found) == len(ORDER)
    assert all(isinstance(grade, int) and grade >= 0 for grade in found)
    assert found[-1] == (len({stage.layers for stage in job.stages}) > 1)
    assert dict(zip(NAMES, found, strict=True))["virtual stages"] == job.virtual - 1


def test_the_manual_has_every_row_in_order() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    said = [cell for line in rows for cell in [line.strip("| ").split(" | ")] if cell[0] in NAMES]
    assert said == [[row.name, row.text] for row in ORDER]


@examples(60)
@given(jobs(), st.sampled_from(RUNTIMES))
def test_no_schedule_is_plainer_than_one_stage_a_rank_without_recomputation(
    job: TrainingJob, runtime: Runtime
) -> None:
    traits = traits_of(runtime, job)
    plainest = traits._replace(
        virtual=1, recompute=Recompute(), turn=0, schedule="1f1b", uneven=False
    )
    pairs = zip(grades(plainest), grades(traits), strict=True)
    assert all(plain <= own for plain, own in pairs)
