"""The declared search of each setting is that of example jobs and of parts of real problems."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

import pytest

from ilp_planner.base.errors import PlannerError
from ilp_planner.inputs.constraints import CHOICES as ASKABLE
from ilp_planner.inputs.constraints import constraints_of, names_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.settings.base import (
    AS_ASKED,
    FIXED,
    FOLLOWS,
    HOW,
    LEFT_OUT,
    Search,
    Setting,
)  # fmt: skip
from ilp_planner.settings.table import NO_SETTING, SETTINGS
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.spaces.training.enumerate.choices import CHOICES
from ilp_planner.spaces.training.enumerate.choices import values_of as choices_of
from ilp_planner.spaces.training.runtime import Runtime
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.training import Kernels, Offload, OptimizerSettings, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning
from tests.examples import everything, for_each
from tests.megatron_cases import small_cluster
from tests.random_problems import ASKED
from tests.runtime_cases import MODELS, runtime_problem
from tests.spaces.training.example_jobs import (
    EXAMPLES,
    EXPERTS,
    LOW,
    PLAIN,
    SEEING,
    jobs_of,
    more_recomputations,
    said_recomputations,
)  # fmt: skip
from tests.training_jobs import job

SEES = Encoder(layers=2, hidden=64, heads=4, ffn=128, patch=14, image_size=56)
ROWS = [row for row in SETTINGS if row.fields]  # of training jobs
# An earlier release is searched as the newest one is.
SOME = [name for name in RUNTIMES if everything() or "@" not in name]
# A job that has what a runtime says that it has no setting for.
WITH = {
    "turns": {"turn": 8},
    "activations on the host": {"offload": Offload(modules=("core_attn",))},
    "CUDA graphs": {"graphs": "full_iteration"},
    "compiled layers": {"compiled": True},
    "overlap of tensor parallelism": {"overlap_tensor": True},
    "overlap of expert parallelism": {"overlap_experts": True},
    "products in 8 or 4 bits": {"quantised": "fp8-current"},
    "attention in 8 bits": {"quantised": "fp8-delayed", "fp8_attention": True},
    "deferred gradients of the output layer": {"deferred_output": True},
    "moments": {"optimizer": OptimizerSettings(moments=2, moment_format="8bit")},
    "rank of adapters": {"tuning": Tuning(rank=8, targets=("linear_qkv",))},
    "base in 4 bits": {"tuning": Tuning(rank=8, targets=("linear_qkv",), base="nf4")},
    "frozen parts": {"tuning": Tuning(frozen=("embedding",))},
}
# What nothing can be said of without another one of the same reason.
PARTS = {
    "inner ranks of a2a+p2p", "format of these", "parameters gathered so",
    "layers at the ends not so", "micro-batches with deferred gradients", "products with adapters",
    "dropout of adapters", "precision of adapters",
}  # fmt: skip


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
def shown(name: str) -> tuple[TrainingJob, ...]:
    """Return the example jobs of a runtime."""
    return tuple(one for example in EXAMPLES for one in jobs_of(runtime_named(name), example))


# Rows in words: no example shows their values.
DESCRIBED = {
    "inputs", "tp", "ep", "etp", "dp", "pp", "micro_batch_size", "virtual_stages", "layout",
    "activation_offload", "exact_first", "capacity", "lora_targets", "lora_dropout", "adapters",
    "batching", "muon_tp_mode", "muon_packing", "muon_steps",
}  # fmt: skip
BY_RUNTIME: dict[str, Callable[[Runtime], tuple[str, ...]]] = {
    "cp": lambda one: ("1",) if one.most_cp == 1 else (f"1 to {one.most_cp}",),
    "schedule": lambda one: one.schedules,
    "rank_order": lambda one: one.orders,
    "recompute": said_recomputations,
}
WORDS: dict[str, dict[object, str]] = {
    "micro_batch_group_size": {0: "pp micro-batches"},
    "cp_inner": {0: "none"},
    "optimizer_offload": {0.0: "none"},
    "number_format": {"": "the recipe's"},
    "deferral_limit": {0: "all"},
}


def read_off(runtime: Runtime, row: Setting, jobs: Sequence[TrainingJob]) -> tuple[str, ...]:
    """Return the values that jobs have of a row; of several fields a text for each, or one for all
    of them if each has one value, or all have none."""
    if row.name in runtime.listens:
        return decided(row.name, jobs)
    if len(row.fields) == 1:
        read = CHOICES[row.name].read if row.name in CHOICES else None
        found = (
            read(one.settings) if read else text_of(row, attrgetter(row.fields[0])(one))
            for one in jobs
        )
        return tuple(dict.fromkeys(found))
    each = {
        field.rpartition(".")[2]: dict.fromkeys(
            text_of(row, attrgetter(field)(one)) for one in jobs
        )
        for field in row.fields
    }
    if all([*found] == ["none"] for found in each.values()):
        return ("none",)
    texts = [f"{name} {' or '.join(found)}" for name, found in each.items()]
    several = any(len(values(field, jobs)) > 1 for field in row.fields)
    return tuple(texts) if several else (", ".join(texts),)


def decided(name: str, jobs: Iterable[TrainingJob]) -> tuple[str, ...]:
    """Return the values that jobs have of a choice where it makes a difference."""
    choice = CHOICES[name]
    found = (
        choice.read(one.settings) for one in jobs if not choice.idle(one.settings, replicated(one))
    )
    return tuple(dict.fromkeys(found))


def replicated(one: TrainingJob) -> bool:
    """Tell whether several ranks have the same parameters, of experts or of the rest."""
    experts = one.model.experts is not None and one.expert_dp > 1
    return one.dp * one.settings.cp > 1 or experts


def text_of(row: Setting, value: object) -> str:
    if value in WORDS.get(row.name, {}):
        return WORDS[row.name][value]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in ("", ()) else f"{value:g}" if isinstance(value, float) else str(value)


@for_each("name", SOME)
def test_declared_values_are_those_of_examples(name: str) -> None:
    runtime = runtime_named(name)
    for row in ROWS:
        search = runtime.search_of(row.name)
        if row.name in BY_RUNTIME:
            assert search.values == BY_RUNTIME[row.name](runtime), row.name
        elif row.name not in DESCRIBED:
            own = [read_off(runtime, row, shown(name))]
            own += [decided(row.name, shown(name))] if row.name in CHOICES else []
            assert search.values in own, row.name
        check_how(search)


def check_how(search: Search) -> None:
    assert search.how in HOW
    if search.how in (FIXED, LEFT_OUT):
        assert len(search.values) <= 1
        assert not search.on_request
    if search.how == FOLLOWS:
        assert len(search.values) > 1
    if search.how == AS_ASKED:
        assert search.on_request or search.values


@for_each("name", RUNTIMES)
def test_random_problems_demand_all_that_can_be_demanded(name: str) -> None:
    """So that bounds are held against plans of every setting: a new row is drawn as well."""
    drawn = ASKED[name.partition("@")[0]]
    # `test_precision` holds bounds against plans with attention in 8 bits, which recipes go with,
    # and `test_encoders` against those that compute an encoder again.
    others = {"cp_comm"} if "titan" in name else {"fp8_attention", "encoder_recompute"}
    assert {*runtime_named(name).listens} - {*drawn} <= others


@pytest.mark.slow
@for_each("name", SOME)
def test_declared_requests_are_those_of_examples(name: str) -> None:
    runtime = runtime_named(name)
    assert runtime.search_of("recompute").on_request == more_recomputations(runtime)
    for choice in runtime.listens:
        search = runtime.search_of(choice)
        asked = {
            value: constraints_of({choice: value})
            for value in ASKABLE[choice]
            if value not in search.values
        }
        found = tuple(
            value
            for value, only in asked.items()
            if any(
                value in decided(choice, jobs_of(runtime, one, only))
                for one in (PLAIN, EXPERTS, LOW, SEEING)
            )
        )
        assert search.on_request == found, choice


@pytest.mark.slow
@for_each("name", RUNTIMES)
def test_values_that_may_be_demanded_are_there(name: str) -> None:
    """Also of choices that a runtime decides by itself."""
    runtime = runtime_named(name)
    for choice in CHOICES:
        if choice not in runtime.listens and runtime.search_of(choice).heard != ():
            have = decided(choice, shown(name)) or (CHOICES[choice].read(shown(name)[0].settings),)
            assert runtime.search_of(choice).demandable == have, choice


def values(field: str, jobs: Iterable[TrainingJob]) -> set[object]:
    """Return what jobs have of a field."""
    return {attrgetter(field)(one) for one in jobs}


def test_every_setting_is_in_one_row() -> None:
    own = {field.name for field in fields(TrainingJob)} - {"settings"}
    every = own | {f"settings.{name}" for name in leaves(Settings())} | {"virtual", "batching"}
    said = [field for row in ROWS for field in row.fields]
    assert sorted(said) == sorted(every)
    assert len({row.title for row in ROWS}) == len(ROWS)


@for_each("name", RUNTIMES)
def test_what_is_left_out_has_a_reason(name: str) -> None:
    found = runtime_named(name).treatments()
    assert [one.setting for one in found] == [row.title for row in ROWS]
    assert all(one.remark for one in found if one.how == LEFT_OUT)


@for_each("name", SOME)
def test_parts_have_no_other_values(name: str) -> None:
    """Of models that the table was not made of, on another cluster."""
    runtime = runtime_named(name)
    usual = job(settings=Settings())
    for model in MODELS:
        jobs = list(jobs_of_parts(runtime_problem(name, model)))
        for row in ROWS:
            search = runtime.search_of(row.name)
            if row.name in runtime.listens:
                assert set(decided(row.name, jobs)) <= set(search.values), row.name
            elif row.name not in DESCRIBED | BY_RUNTIME.keys():
                for field in row.fields:
                    assert values(field, jobs) <= values(field, shown(name)), field
            elif search.how in (FIXED, LEFT_OUT) and row.name != "virtual_stages":
                for field in row.fields:
                    assert values(field, jobs) == values(field, [usual]), field


@for_each("name", RUNTIMES)
@for_each("model", ["dense", "latent"])
def test_variants_compute_again_what_is_said(name: str, model: str) -> None:
    said = runtime_named(name).search_of("recompute")
    kinds = {text.partition(" ")[0] for text in said.values}
    problem = runtime_problem(name, model)
    for part in problem.space.parts(problem):  # type: ignore[attr-defined]
        for variant in part.variants():
            assert set(names_of(variant.recompute)) <= kinds
            assert variant.virtual == 1 or runtime_named(name).interleaves


@pytest.mark.few(25)
@pytest.mark.parametrize(
    ("name", "choice"),
    [(name, choice) for name in RUNTIMES for choice in runtime_named(name).listens],
)
def test_values_are_there_for_being_asked(name: str, choice: str) -> None:
    """What is said of a choice is all that a user may ask for."""
    said = runtime_named(name).search_of(choice)
    for value in ASKABLE[choice]:
        asked = constraints_of({choice: value, "cp": 4 if choice == "cp_comm" else None})
        several = ("cp_comm", "tensor_overlap", "sharding_copies")
        said_too: dict[str, Any] = {"cluster": small_cluster(1, 4 if choice in several else 2)}
        if choice == "fp8_attention":
            h100 = gpu_cluster(parse_gpus("2xH100"))
            said_too = {"cluster": h100, "precision": "fp8-delayed", "changes": {"head": 128}}
        if choice == "encoder_recompute" and name == "megatron":
            said_too["changes"] = {"encoder": SEES}
        found = set()
        for model in ("dense", "experts"):
            with suppress(PlannerError):
                problem = runtime_problem(name, model, constraints=asked, **said_too)
                found |= {choices_of(each.settings)[choice] for each in jobs_of_parts(problem)}
        assert (value in found) == (value in (*said.values, *said.on_request)), value


@for_each("name", RUNTIMES)
def test_what_a_runtime_lacks_is_refused(name: str) -> None:
    runtime = runtime_named(name)
    rows = (row for row in ROWS if runtime.search_of(row.name).remark == NO_SETTING)
    lacks = {row.title for row in rows} - PARTS
    for setting in lacks:
        own = dict(WITH[setting])
        names = {field.name for field in fields(Kernels)}
        kernels = {key: own.pop(key) for key in [*own] if key in names}
        plain = job(tp=1, pp=1, dp=2, layout=None, settings=Settings())
        settings = replace(plain.settings, **own)
        settings = replace(settings, kernels=replace(settings.kernels, **kernels))
        asked = replace(plain, settings=settings)
        refused, before = (
            {*runtime.refusals(one), *map(str, runtime.violations(one, plain.settings))}
            for one in (asked, plain)
        )
        assert refused - before, setting
