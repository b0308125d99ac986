"""What `ilp-plan runtimes` says of each setting is what the parts of real problems have."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import pytest

from ilp_planner.base.errors import PlannerError
from ilp_planner.inputs.constraints import CHOICES as ASKABLE
from ilp_planner.inputs.constraints import constraints_of, names_of
from ilp_planner.problem import Problem
from ilp_planner.spaces.megatron.checked import NO_SETTING
from ilp_planner.spaces.megatron.choices import values_of as choices_of
from ilp_planner.spaces.megatron.example_jobs import EXAMPLES, jobs_of
from ilp_planner.spaces.megatron.rows import FIXED, LEFT_OUT, ROWS
from ilp_planner.spaces.megatron.treatment import HOW, Treatment, treatments, values_of
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.specs.training import Offload, Settings, TrainingJob
from tests.examples import for_each
from tests.megatron_cases import small_cluster
from tests.runtime_cases import MODELS, runtime_problem
from tests.training_jobs import job

NAMES = [row.name for row in ROWS]
# A job that has what a runtime says that it has no setting for.
WITH = {
    "turns": {"turn": 8},
    "activations on the host": {"offload": Offload(modules=("core_attn",))},
    "CUDA graphs": {"graphs": "full_iteration"},
    "compiled layers": {"compiled": True},
    "overlap of tensor parallelism": {"overlap_tensor": True},
    "overlap of expert parallelism": {"overlap_experts": True},
    "products in 8 or 4 bits": {"quantised": "fp8-current"},
}
# What nothing can be said of without another one of the same reason.
PARTS = {
    "inner ranks of a2a+p2p",
    "format of these",
    "parameters gathered so",
    "layers at the ends not so",
}


def leaves(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the fields of a job's settings, down to those that are no dataclasses."""
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from leaves(inner, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def jobs_of_parts(problem: Problem) -> Iterator[TrainingJob]:
    """Yield the job of every part of a problem's space."""
    for part in problem.space.parts(problem):  # type: ignore[attr-defined]
        yield part.job


@cache
def said_of(name: str) -> tuple[Treatment, ...]:
    """Return what the table says of a runtime."""
    return runtime_named(name).treatments()


def values(field: str, jobs: Iterable[TrainingJob]) -> set[object]:
    """Return what jobs have of a field."""
    return {attrgetter(field)(one) for one in jobs}


def test_every_setting_is_in_one_row() -> None:
    own = {field.name for field in fields(TrainingJob)} - {"settings"}
    every = own | {f"settings.{name}" for name in leaves(Settings())} | {"virtual"}
    said = [field for row in ROWS for field in row.fields]
    assert sorted(said) == sorted(every)
    assert len(set(NAMES)) == len(NAMES)


@for_each("name", RUNTIMES)
def test_what_a_runtime_says_is_of_rows(name: str) -> None:
    runtime = runtime_named(name)
    assert {*runtime.lacks, *runtime.says} <= set(NAMES)
    found = said_of(name)
    assert [row.setting for row in found] == NAMES
    assert {row.how for row in found} <= set(HOW)
    assert all(row.remark for row in found if row.how == LEFT_OUT)


@for_each("name", RUNTIMES)
def test_parts_have_no_other_values(name: str) -> None:
    """Of models that the table was not made of, on another cluster."""
    runtime = runtime_named(name)
    said = said_of(name)
    usual = job(settings=Settings())
    shown = [one for example in EXAMPLES for one in jobs_of(runtime, example)]
    for model in MODELS:
        jobs = list(jobs_of_parts(runtime_problem(name, model)))
        for row, treatment in zip(ROWS, said, strict=True):
            if row.choice in runtime.listens:
                assert set(values_of(runtime, row, jobs)) <= set(treatment.values), row.name
            elif row.values is None and treatment.values != (row.span,):
                for field in row.fields:
                    assert values(field, jobs) <= values(field, shown), field
            elif treatment.how in (FIXED, LEFT_OUT) and row.name != "virtual stages":
                for field in row.fields:
                    assert values(field, jobs) == values(field, [usual]), field


@for_each("name", RUNTIMES)
@for_each("model", ["dense", "latent"])
def test_variants_compute_again_what_is_said(name: str, model: str) -> None:
    (said,) = (row for row in said_of(name) if row.setting == "recomputation")
    kinds = {text.partition(" ")[0] for text in said.values}
    problem = runtime_problem(name, model)
    for part in problem.space.parts(problem):  # type: ignore[attr-defined]
        for variant in part.variants():
            assert set(names_of(variant.recompute)) <= kinds
            assert variant.virtual == 1 or runtime_named(name).interleaves


@pytest.mark.parametrize(
    ("name", "choice"),
    [(name, choice) for name in RUNTIMES for choice in runtime_named(name).listens],
)
def test_values_are_there_for_being_asked(name: str, choice: str) -> None:
    """What is said of a choice is all that a user may ask for."""
    (said,) = (t for row, t in zip(ROWS, said_of(name), strict=True) if row.choice == choice)
    for value in ASKABLE[choice]:
        asked = constraints_of({choice: value, "cp": 4 if choice == "cp_comm" else None})
        several = ("cp_comm", "tensor_overlap", "sharding_copies")
        cluster = small_cluster(1, 4 if choice in several else 2)
        found = set()
        for model in ("dense", "experts"):
            with suppress(PlannerError):
                problem = runtime_problem(name, model, constraints=asked, cluster=cluster)
                found |= {choices_of(each.settings)[choice] for each in jobs_of_parts(problem)}
        assert (value in found) == (value in (*said.values, *said.on_request)), value


@for_each("name", RUNTIMES)
def test_what_a_runtime_lacks_is_refused(name: str) -> None:
    runtime = runtime_named(name)
    lacks = {setting for setting, why in runtime.lacks.items() if why == NO_SETTING} - PARTS
    for setting in lacks:
        own = dict(WITH[setting])
        kernels = {key: own.pop(key) for key in ("graphs", "quantised", "compiled") if key in own}
        plain = job(tp=1, pp=1, dp=2, layout=None, settings=Settings())
        settings = replace(plain.settings, **own)
        settings = replace(settings, kernels=replace(settings.kernels, **kernels))
        refused = set(runtime.refusals(replace(plain, settings=settings)))
        assert refused - set(runtime.refusals(plain)), setting


def test_the_table_follows_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = runtime_named("megatron")
    tried = {**runtime.tried, "sharding": ("parameters",), "moments": ("fp32", "bf16")}
    monkeypatch.setattr(type(runtime), "tried", tried)
    monkeypatch.setattr(type(runtime), "most_cp", 2)
    found = {row.setting: row for row in treatments(runtime)}
    assert found["sharding"].values == ("parameters",)
    assert found["moments"].values == ("fp32", "bf16")
    assert found["moments"].how == "searched"
    assert found["cp"].values == ("1 to 2",)
    assert found["bytes of the stepped copy"].values == ("4", "2", "0")
