"""The nearest plan that a training system runs: accepted, legal, near, and its time is its own."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.evaluate import evaluate
from ilp_planner.formats.exports import EXPORTS, Runtime, refusal_of, runtime_of
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.formats.nearest_run import PLAINER, compared, differences, nearest_run, neighbours
from ilp_planner.inputs.constraints import Constraints
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.settings.values import Choice
from ilp_planner.spaces.training.build import build
from ilp_planner.spaces.training.enumerate.untold import as_it_does
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import (
    ORDERS,
    SHARDINGS,
    Kernels,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from tests.examples import examples, for_each
from tests.megatron_cases import small_cluster
from tests.training_jobs import llama

PRECISIONS = ("bf16", "fp16", "fp32")
# No plan that trains all of a model is near one of PEFT; ms-swift refuses arguments, not fields.
OWN = ("peft", "swift")
RUNTIMES = [
    Runtime(name, release)
    for name, releases in EXPORTS.items()
    for release in releases
    if name not in OWN
]
TITAN = runtime_of("torchtitan")


def cluster() -> ClusterSpec:
    """Return two nodes of four devices that have all these precisions."""
    small = small_cluster(2, 4)
    types = {
        name: replace(device, peak=dict.fromkeys(PRECISIONS, max(device.peak.values())))
        for name, device in small.device_types.items()
    }
    return replace(small, device_types=types)


CLUSTER = cluster()


def spec(model: Decoder) -> ModelSpec:
    return ModelSpec(name="small", precision="bf16", architecture=model)


def problem_of(job: TrainingJob) -> Problem:
    request = Request(
        files={}, space="megatron", global_batch=job.global_batch, precision=job.settings.precision
    )
    return build(InputFiles(request, objects={"model": spec(job.model), "cluster": CLUSTER}))


def job(**changes: object) -> TrainingJob:
    """Return a job of the eight devices."""
    values = {
        "model": llama(),
        "micro_batch": 1,
        "global_batch": 16,
        "tp": 2,
        "pp": 2,
        "dp": 2,
        "layout": split_layout([3, 5]),
        "settings": settings(),
        "devices_per_node": 4,
    }
    return TrainingJob(**{**values, **changes})


def settings(**changes: object) -> Settings:
    usual = {"sequence_parallel": True, "optimizer": OptimizerSettings(sharding="optimizer")}
    return Settings(**{**usual, **changes})


RECOMPUTED = (
    Recompute(),
    Recompute(granularity="selective"),
    Recompute(granularity="selective", modules=("mlp",)),
    Recompute(granularity="full", method="uniform", layers=1),
    Recompute(granularity="full", method="block", layers=1),
)


@st.composite
def jobs(draw: st.DrawFn) -> TrainingJob:
    """Draw jobs of the eight devices with settings that some systems lack."""
    virtual = draw(st.sampled_from([1, 2]))
    sharding = draw(st.sampled_from(SHARDINGS))
    precision = draw(st.sampled_from(PRECISIONS))
    layers = [2, 1, 3, 2] if virtual == 2 else [3, 5]
    return job(
        layout=split_layout(layers),
        settings=settings(
            precision=precision,
            order=draw(st.sampled_from(ORDERS)),
            sequence_parallel=draw(st.booleans()),
            turn=draw(st.sampled_from([0, 3])) if virtual == 2 else 0,
            overlap_tensor=draw(st.booleans()),
            recompute=draw(st.sampled_from(RECOMPUTED)),
            optimizer=OptimizerSettings(
                sharding=sharding,
                offload=draw(st.sampled_from([0.0, 0.5])),
                master=0 if precision == "fp32" else 4,
                from_master=sharding in ("gradients", "parameters") and draw(st.booleans()),
            ),
        ),
    )


def reached(start: TrainingJob, changes: int) -> set[TrainingJob]:
    """Return all jobs with at most so many other settings."""
    found = {start}
    for _ in range(changes):
        found |= {near for one in found for near in neighbours(one)}
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
@examples(4, more=8)
@given(case=jobs())
def test_what_is_offered_is_run_and_legal_and_near(runtime: Runtime, case: TrainingJob) -> None:
    """The exporter accepts it, the judge gives its time, and nothing nearer is accepted."""
    refusal = partial(refusal_of, runtime)
    near = nearest_run(case, spec(case.model), CLUSTER, refusal)
    if runtime.system == "torchtitan" and case.settings.precision == "fp16":
        assert near is None  # which it lacks, and no other plan has another
        return
    if near is None and runtime.system == "autoparallel":
        return  # takes one micro-batch and no pipeline, which may be far
    assert near is not None
    assert not refusal(near.job)
    assert near.job.global_batch == case.global_batch
    assert near.job.world == CLUSTER.device_count
    problem = problem_of(case)
    evaluation = evaluate(problem, near.plan)
    assert evaluation.legal
    assert evaluation.iteration_time == near.seconds
    as_judged = as_it_does(problem.costs.runtime, near.job, problem.costs.settings)
    assert near.plan == plan_of_job(as_judged, CLUSTER, model=problem.model)
    assert near.differs == tuple(differences(case, near.job))
    assert bool(near.differs) == bool(refusal(case))
    if near.differs and near.job not in reached(case, 1):
        assert all(refusal(one) for one in neighbours(case))


def test_one_setting_is_changed_where_that_is_enough() -> None:
    case = job(settings=settings(order=ORDERS[1], recompute=RECOMPUTED[4]))
    near = nearest_run(case, spec(case.model), CLUSTER, partial(refusal_of, TITAN))
    assert near is not None
    assert near.job.settings.order == ORDERS[0]
    assert near.job.settings.recompute in (RECOMPUTED[0], RECOMPUTED[1], RECOMPUTED[3])
    assert (near.job.tp, near.job.pp, near.job.pipeline) == (case.tp, case.pp, case.pipeline)
    assert near.before is not None
    said = [text.partition(" instead of ")[0] for text in near.differs]
    assert f"settings.order {ORDERS[0]}" in said


def test_other_degrees_where_settings_are_not_enough() -> None:
    """Tied embeddings have no pipeline in torchtitan."""
    case = job(model=llama(tied=True))
    near = nearest_run(case, spec(case.model), CLUSTER, partial(refusal_of, TITAN))
    assert near is not None
    assert (near.job.tp, near.job.pp) == (2, 1)
    assert "pp 1 instead of 2" in near.differs


def test_it_may_hold_no_more_than_the_plan_that_was_asked_for() -> None:
    case = job(model=llama(tied=True))
    titan = partial(refusal_of, TITAN)
    near = nearest_run(case, spec(case.model), CLUSTER, titan)
    assert near is not None
    held = evaluate(problem_of(case), near.plan).memory
    asked = Request(files={}, memory_limit=held - 1)
    other = nearest_run(case, spec(case.model), CLUSTER, titan, asked)
    assert other is not None
    assert evaluate(problem_of(case), other.plan).memory < held
    most = next(iter(CLUSTER.device_types.values())).memory
    asked = Request(files={}, constraints=Constraints(headroom=int(most - held) + 1))
    again = nearest_run(case, spec(case.model), CLUSTER, titan, asked)
    assert again is not None
    assert again.plan == other.plan


@pytest.mark.parametrize(("choice", "value"), PLAINER)
def test_choices_that_a_system_lacks_are_turned_off(choice: Choice, value: str) -> None:
    model = read_model("models/qwen3-vl-4b.toml").architecture
    assert isinstance(model, Decoder)
    optimizer = OptimizerSettings(
        sharding="optimizer", overlap_gradients=True, overlap_parameters=True
    )
    on = replace(
        settings(optimizer=optimizer),
        encoder_recompute="full",
        kernels=Kernels(deferred_output=True),
    )
    case = job(model=model, layout=split_layout([18, 18]), settings=on)
    assert choice.read(on) != value
    assert any(choice.read(near.settings) == value for near in neighbours(case))


def test_none_where_the_system_lacks_the_model() -> None:
    case = job(model=llama(bias=True))
    assert nearest_run(case, spec(case.model), CLUSTER, partial(refusal_of, TITAN)) is None


def test_what_is_computed_stays_the_same() -> None:
    """No neighbour differs in precision, widths, products or batches."""
    case = job(layout=split_layout([2, 1, 3, 2]), settings=settings(turn=3, overlap_tensor=True))
    for near in reached(case, 2):
        assert near.global_batch == case.global_batch
        assert near.micro_batch == case.micro_batch
        assert near.model == case.model
        assert near.world == case.world
        for name in ("precision", "vocab_multiple", "quantised"):
            assert getattr(near.settings, name) == getattr(case.settings, name)
        for name in ("name", "gradient", "master", "moments"):
            assert getattr(near.settings.optimizer, name) == getattr(case.settings.optimizer, name)


@for_each(
    ("seconds", "text"),
    [(2.5, "25.00 % slower than 2 s"), (1.5, "25.00 % faster than 2 s"), (2.0, "as fast as 2 s")],
)
def test_times_are_compared(seconds: float, text: str) -> None:
    assert compared(seconds, 2.0) == text


def test_differences_are_in_the_words_of_the_job() -> None:
    one = job()
    other = replace(one, pp=1, dp=4, layout=None, settings=settings(recompute=RECOMPUTED[4]))
    assert list(differences(one, other)) == [
        "pp 1 instead of 2",
        "dp 4 instead of 2",
        "layout Et*8L instead of Et*3|t*5L",
        "settings.recompute full block 1 instead of none",
    ]
