"""Other trainings that fit are had by plans, and searches keep what a job trains."""

from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import pytest

import ilp_planner as ilp
from ilp_planner.analysis.fit.fit import free_problem
from ilp_planner.analysis.fit.judge import Judge
from ilp_planner.analysis.fit.needs import Site
from ilp_planner.analysis.fit.trained import trained_otherwise
from ilp_planner.inputs.files import find_cluster, find_model
from ilp_planner.settings.base import AS_ASKED, SEARCHED
from ilp_planner.settings.table import BY_NAME, SETTINGS
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.spaces.training.enumerate.choices import CHOICES
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.training import Settings, TrainingJob

# Models of every kind of layer: dense, of experts, with latent attention, and with scans.
CASES = [
    ("llama3-8b", "1xRTX-4090"), ("llama3-8b", "8xL4"), ("llama3-70b", "1xH200"),
    ("llama3-70b", "8xA100-40GB"),
    ("mixtral-8x7b", "1xH100"), ("mixtral-8x7b", "4xH100"), ("qwen3-30b-a3b", "2xH100"),
    ("deepseek-v2-lite", "1xA100-40GB"), ("nemotron3-nano-30b-a3b", "1xH100"),
    ("nemotron-h-56b", "1xH200"), ("gemma2-9b", "1xL4"),
]  # fmt: skip


def judge_of(name: str, gpus: str) -> Judge:
    spec, site = find_model(name), Site(cluster=find_cluster(gpus))
    model = as_decoder(spec.architecture)
    assert model is not None
    model = replace(model, sequence=1024)
    world = site.cluster.device_count
    job = TrainingJob(model=model, micro_batch=1, global_batch=world, dp=world)
    return Judge(site, replace(spec, architecture=model), job, MegatronSpace())


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "gpus"), CASES)
def test_a_plan_trains_what_is_said_to_fit(name: str, gpus: str) -> None:
    judge = judge_of(name, gpus)
    ways = [*trained_otherwise(judge)]
    for runtime, each in groupby(ways, key=attrgetter("runtime")):
        needed = [way.needed for way in each]
        assert needed == sorted({*needed}, reverse=True), runtime
    most = min(device.memory for device in judge.site.cluster.device_types.values())
    for way in ways:
        problem = ilp.problem(
            judge.model,
            judge.site.cluster,
            space=way.runtime,
            global_batch=judge.job.global_batch,
            headroom=int(most - way.needed),  # the bytes that are said do
            **way.said,
        )
        found = ilp.solve(problem, limits=ilp.Limits(seconds=10))
        assert found.plan is not None, way
        assert ilp.evaluate(problem, found.plan).legal, way


def test_every_system_with_adapters_is_offered() -> None:
    judge = judge_of("llama3-70b", "8xA100-40GB")
    spaces = {way.runtime: way.by for way in trained_otherwise(judge)}
    able = {n for n in RUNTIMES if runtime_named(n).search_of("lora").on_request}
    assert {*spaces} == able
    assert len({*spaces.values()}) == len(spaces)


def test_the_precision_of_a_job_is_kept_or_said() -> None:
    judge = judge_of("llama3-8b", "1xRTX-4090")
    kernels = replace(judge.job.settings.kernels, quantised="fp8-delayed")
    judge.job = replace(judge.job, settings=replace(judge.job.settings, kernels=kernels))
    ways = [*trained_otherwise(judge)]
    assert {way.runtime for way in ways} >= {"torchtitan", "deepspeed"}
    assert all(("precision" in way.said) == (way.runtime != "megatron") for way in ways)


LEARNT = [
    (row.name, value)
    for row in SETTINGS
    if row.learns and row.search_of("megatron").how == AS_ASKED
    for value in row.search_of("megatron").on_request
]


def test_every_row_that_learns_is_one_that_nobody_searches() -> None:
    assert {name for name, _ in LEARNT} >= {"gradients", "moments", "lora", "freeze"}
    assert not any(row.search_of("").how == SEARCHED for row in SETTINGS if row.learns)


@pytest.mark.parametrize(("name", "value"), LEARNT)
def test_a_search_with_all_settings_free_trains_the_same(name: str, value: str) -> None:
    judge = judge_of("llama3-8b", "8xH100")
    low = replace(Settings().kernels, quantised="fp8-delayed")
    settings = Settings(kernels=low) if name == "fp8_attention" else Settings()
    beside = BY_NAME[name].beside
    for key, said in (*([beside] if beside else ()), (name, value)):
        written = CHOICES[key].write(settings, said)
        assert written is not None
        settings = written
    judge.job = replace(judge.job, settings=settings)
    choices = free_problem(judge, 8).costs.choices
    assert choices
    for choice in choices:
        assert CHOICES[name].read(choice) == CHOICES[name].read(settings)
