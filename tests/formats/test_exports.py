"""A refusal names the exports that take the plan, and no others."""

import re
from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.formats.exported import Expected
from ilp_planner.formats.exports import EXPORTS, Runtime, export_row, refusal_of, runtime_of, takers
from ilp_planner.settings.values import BY_TRAINER, MOMENTS
from ilp_planner.spaces.registry import RUNTIMES as OWN
from ilp_planner.specs.lengths import BATCHINGS, Lengths
from ilp_planner.specs.training import LIGER, TrainingJob
from ilp_planner.specs.tuning import BRIDGE_TARGETS, Tuning
from tests.formats.test_swift import MODELS, job_of

TEXT = replace(MODELS["qwen2-vl-2b"], encoder=None)
RUNTIMES = [Runtime(system, release) for system, rows in EXPORTS.items() for release in rows]


def grouped(batching: str) -> TrainingJob:
    lengths = Lengths(lengths=(64, 256), counts=(2, 1), batching=batching)
    return job_of(replace(TEXT, lengths=lengths))


def with_kernels(**changes: Any) -> TrainingJob:
    job = job_of(TEXT)
    kernels = replace(job.settings.kernels, **changes)
    return replace(job, settings=replace(job.settings, kernels=kernels))


def eager(job: TrainingJob) -> TrainingJob:
    """Return a job as the Trainer runs it, far from what Megatron-LM's settings are."""
    kernels = replace(job.settings.kernels, implementation="eager")
    return replace(job, settings=replace(job.settings, kernels=kernels))


JOBS = {
    **{f"batching {name}": grouped(name) for name in BATCHINGS},
    **{f"eager, batching {name}": eager(grouped(name)) for name in BATCHINGS},
    "images": job_of(MODELS["qwen3-vl-4b"]),
    "another head": job_of(replace(TEXT, outputs=2, tied=False)),
    "adapters": job_of(TEXT, tuning=Tuning(rank=8, targets=BRIDGE_TARGETS)),
    "frozen": job_of(TEXT, tuning=Tuning(frozen=("embedding",))),
    "liger": with_kernels(loss_kernel=LIGER),
    "attention in 8 bits": with_kernels(quantised="fp8-delayed", fp8_attention=True),
    **{
        f"moments {kind}": replace(
            job_of(TEXT), settings=MOMENTS.write(job_of(TEXT).settings, kind)
        )
        for kind in BY_TRAINER
    },
}


@pytest.mark.parametrize("name", JOBS)
def test_refusals_name_the_exports_that_take_this_very_plan(name: str) -> None:
    job = JOBS[name]
    refused = {runtime: refusal_of(runtime, job) for runtime in RUNTIMES}
    takes = {
        str(runtime) if len(EXPORTS[runtime.system]) > 1 else runtime.system
        for runtime, text in refused.items()
        if not text
    }
    told = [text for text in refused.values() if " writes it" in text or "no other export" in text]
    for text in told:
        assert {*re.findall(r"`([\w@.]+)`", text)} == takes
    assert told  # each job is beyond a row of the table


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("name", JOBS)
def test_the_first_export_is_of_the_own_system_or_of_one_on_top_of_it(name: str, own: str) -> None:
    job, system = JOBS[name], own.partition("@")[0]
    every = [*takers(job, Expected())]
    found = [*takers(job, Expected(), own)]
    assert {*map(runtime_of, found)} == {*map(runtime_of, every)}
    assert (own == found[0]) == (not refusal_of(runtime_of(own), job)) if found else not every
    near = [system in export_row(runtime_of(one)).below for one in found if one != own]
    assert near == sorted(near, reverse=True)
    for kind in (True, False):  # as in the table, else
        alike = [one for one in found if one != own]
        alike = [one for one in alike if (system in export_row(runtime_of(one)).below) == kind]
        assert alike == [one for one in every if one in alike]


def test_systems_below_are_systems() -> None:
    below = [(name, one) for name, rows in EXPORTS.items() for row in rows.values()
             for one in row.below]  # fmt: skip
    assert below
    assert all(one in EXPORTS and one != name for name, one in below)
