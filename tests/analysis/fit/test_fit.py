"""Changes that are offered fit and keep the rules; nothing faster among single ones is missed."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from ilp_planner.analysis.analyze import analyze
from ilp_planner.analysis.fit.fit import Change, Fit, Writer, fit
from ilp_planner.analysis.fit.judge import Judge
from ilp_planner.analysis.fit.needs import Site, needs_of, telling_ranks
from ilp_planner.base.errors import PlanError, PlannerError, SpecError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.arguments import arguments_of_job, job_of_arguments
from ilp_planner.formats.megatron.changes import LineChange, as_said, line_change
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.formats.megatron.repairs import Repair
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.megatron.values import MegatronArguments
from ilp_planner.job.verdict import Verdict, verdict_of
from ilp_planner.spaces.training.enumerate.plainness import grades, traits_of
from ilp_planner.spaces.training.runtime import MEGATRON
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.gpu_architectures import AMPERE
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.training import Kernels, OptimizerSettings, Settings, TrainingJob
from tests.examples import examples
from tests.megatron_cases import small_cluster
from tests.optimize.search.test_preference import assert_plainer_first
from tests.training_jobs import deepseek, jobs, llama

SHARDED = Settings(
    sequence_parallel=True, optimizer=OptimizerSettings(sharding="optimizer"), kernels=Kernels()
)

OF_EXPERTS = Kernels(grouped_experts=True, dispatcher="alltoall")


def site_of(job: TrainingJob, share: float = 1.0) -> Site:
    """Return nodes that the ranks of a job fill, whose devices have room for this share of what it
    allocates."""
    each = max(d for d in divisors(job.world) if d <= 8 and d % job.tp == 0)
    cluster = small_cluster(job.world // each, each)
    fullest = max(needs_of(job, cluster).ranks, key=lambda rank: rank.needed)
    return Site(cluster=with_memory(cluster, fullest.needed - (1 - share) * fullest.peak))


def with_memory(cluster: ClusterSpec, memory: float) -> ClusterSpec:
    types = {
        name: replace(device, memory=math.ceil(memory))
        for name, device in cluster.device_types.items()
    }
    return replace(cluster, device_types=types)


def judge_of(job: TrainingJob, site: Site) -> Judge:
    model = ModelSpec(name="small", precision=job.settings.precision, architecture=job.model)
    return Judge(site, model, job, MegatronSpace())


def placed(job: TrainingJob) -> TrainingJob:
    """Return a job on the nodes that `site_of` makes, A100s."""
    each = site_of(job).each
    return replace(job, devices_per_node=each, gpu_architecture=AMPERE)


def writer_of(job: TrainingJob) -> Writer:
    return partial(line_change, arguments_of_job(job), job)


def fitted(job: TrainingJob, share: float, seconds: float = 1.0) -> Fit:
    """Return what is found of a job on GPUs with this share of the memory that it needs."""
    return fit(judge_of(job, site_of(job, share)), writer_of(job), seconds)


def llama_job(**changes: object) -> TrainingJob:
    model = llama(hidden=1024, ffn=2816, sequence=2048, vocab=32000)
    values = {"model": model, "micro_batch": 2, "global_batch": 32, "dp": 4, "settings": SHARDED}
    return placed(TrainingJob(**{**values, **changes}))


def changed(args: MegatronArguments, words: LineChange) -> MegatronArguments:
    """Return arguments as whoever follows the words has them."""
    values = {}
    flag = ""
    for word in words.add:
        flag = word if word.startswith("--") else flag
        values[flag] = values.get(flag, ()) + (() if word == flag else (word,))
    return Repair(values, words.drop, words.gpus).on(args)


def offered(found: Fit) -> Iterator[Change]:
    yield from found.changes
    if found.more_gpus is not None:
        yield found.more_gpus
    if found.free is not None and found.free.change is not None:
        yield found.free.change


def check_offer(job: TrainingJob, site: Site, change: Change) -> None:
    """The words say the job, which keeps the rules of its training system and of plans, and has
    room by the verdict of `analyze`, which is that of the offer."""
    args = changed(arguments_of_job(job), change.words)
    assert check_arguments(args) == ()
    again = job_of_arguments(args)
    again = replace(again, devices_per_node=site.each, gpu_architecture=job.gpu_architecture)
    assert as_said(again) == as_said(change.judged.job)
    assert again.global_batch == job.global_batch
    cluster = site.of(again.world)
    limit = min(device.memory for device in cluster.device_types.values())
    assert analyze(again, limit=limit).verdict is change.judged.verdict
    assert change.judged.left >= 0
    problem = judge_of(job, site).problem(again.world)
    judged = evaluate(problem, plan_of_job(again, cluster, model="small"))
    assert judged.legal
    assert judged.iteration_time == pytest.approx(change.judged.seconds)


# ---- what is offered ----------------------------------------------------------------------------


@given(jobs(), st.sampled_from([0.55, 0.8, 0.94, 0.96, 1.04, 1.06]))
@examples(1, more=16, deadline=None)
def test_what_is_offered_fits_and_keeps_the_rules(job: TrainingJob, share: float) -> None:
    assume(all(stage.layers or stage.embedding or stage.loss for stage in job.stages))
    job = placed(job)
    site = site_of(job, share)
    try:
        found = fit(judge_of(job, site), writer_of(job), 0.5)
    except PlannerError:
        reject()  # the space of plans has no such model, or no such job
    each = zip(found.as_is.ranks, found.as_is.devices, strict=True)
    kinds = [verdict_of(rank.needed, device.memory) for rank, device in each]
    assert found.as_is.verdict is max(kinds, key=list(Verdict).index)
    for change in offered(found):
        check_offer(job, site, change)
    assert len({change.judged.fits for change in found.changes}) <= 1
    if found.as_is.left >= 0:
        assert all(change.judged.fits for change in found.changes)
    times = [change.judged.seconds for change in found.changes]
    plain = [grades(traits_of(MEGATRON, change.judged.job)) for change in found.changes]
    assert_plainer_first(list(zip(times, plain, strict=True)))
    if found.as_is.fits:
        assert all(time < found.as_is.seconds for time in times)
        assert all(change.size == 1 for change in found.changes)


MIXTURE = placed(
    TrainingJob(
        model=deepseek(layers=3),
        micro_batch=1,
        global_batch=8,
        dp=4,
        settings=replace(SHARDED, ep=2, etp=1, kernels=OF_EXPERTS),
    )
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "share"),
    [
        pytest.param(llama_job(), 0.35, marks=pytest.mark.slow),
        pytest.param(llama_job(), 0.9, marks=pytest.mark.slow),
        pytest.param(llama_job(pp=2, tp=2, dp=2), 0.6, marks=pytest.mark.slow),
        (MIXTURE, 0.9),
        pytest.param(MIXTURE, 0.35, marks=pytest.mark.slow),
    ],
)
def test_nothing_faster_among_single_changes_is_missed(job: TrainingJob, share: float) -> None:
    """Tried here one argument at a time, as a user would, with the verdicts of `analyze` and of the
    judge of plans alone."""
    assert check_nothing_is_missed(job, share, fitted(job, share, 0.1))


@pytest.mark.slow
@given(jobs(), st.sampled_from([0.55, 0.8, 0.95]))
@examples(20, deadline=None)
def test_nothing_faster_is_missed_of_random_jobs(job: TrainingJob, share: float) -> None:
    assume(all(stage.layers or stage.embedding or stage.loss for stage in job.stages))
    assume(job.model.experts is None or any(job.model.expert_layers))  # else read as another model
    job = placed(job)
    try:
        found = fitted(job, share, 0.1)
    except PlannerError:
        reject()
    check_nothing_is_missed(job, share, found)


def check_nothing_is_missed(job: TrainingJob, share: float, found: Fit) -> bool:
    """Hold what was found to every change of arguments; return whether any of them fits."""
    site = site_of(job, share)
    limit = min(device.memory for device in site.cluster.device_types.values())
    problem = judge_of(job, site).problem(job.world)
    args = arguments_of_job(job)
    fitting: dict[bool, list[float]] = {True: [], False: []}
    for words in single_changes(job):
        try:
            other = job_of_arguments(Repair(words).on(args))
        except SpecError:
            continue
        other = replace(other, devices_per_node=site.each, gpu_architecture=job.gpu_architecture)
        analysis = analyze(other, limit=limit)
        if any(rank.needed > limit for rank in analysis.ranks):
            continue
        judged = evaluate(problem, plan_of_job(other, problem.cluster, model="small"))
        if judged.legal:
            fitting[analysis.fits is True].append(judged.iteration_time)
    certain = fitting[True] or any(change.judged.fits for change in found.changes)
    best = min((c.judged.seconds for c in found.changes if c.size == 1), default=math.inf)
    assert best <= min(fitting[bool(certain)], default=math.inf) * (1 + 1e-9)
    assert not found.changes or found.changes[0].judged.seconds <= best
    return any(fitting.values())


def single_changes(job: TrainingJob) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yield arguments to add, those that belong to one setting at a time."""
    for flag, most in (
        ("--tensor-model-parallel-size", job.world),
        ("--context-parallel-size", job.world),
        ("--pipeline-model-parallel-size", job.world),
        ("--expert-model-parallel-size", job.world),
        ("--micro-batch-size", job.global_batch),
    ):
        for number in range(1, most + 1):
            yield {flag: (str(number),)}
    for layers in range(1, job.model.layers + 1):
        for method in ("uniform", "block"):
            yield {
                "--recompute-granularity": ("full",),
                "--recompute-method": (method,),
                "--recompute-num-layers": (str(layers),),
            }
    for modules in ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj"):
        yield {"--recompute-granularity": ("selective",), "--recompute-modules": (modules,)}
    yield {"--cross-entropy-loss-fusion": ()}
    yield {"--overlap-grad-reduce": (), "--overlap-param-gather": ()}
    for share in ("0.25", "0.5", "0.75", "1.0"):
        yield {
            "--optimizer-cpu-offload": (),
            "--optimizer-offload-fraction": (share,),
            "--use-precision-aware-optimizer": (),
            "--overlap-cpu-optimizer-d2h-h2d": (),
        }
    for layers in range(1, job.model.layers):
        yield {"--cpu-offloading-num-layers": (str(layers),)}
    for virtual in range(2, job.model.layers + 1):
        yield {"--num-virtual-stages-per-pipeline-rank": (str(virtual),)}


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for count in (1, 3):
        monkeypatch.setattr("ilp_planner.analysis.fit.fit.cores", lambda count=count: count)
        changes = fitted(llama_job(), 0.6)
        found.append(replace(changes, free=None))  # it has a limit of time
    assert found[0] == found[1]
    assert found[0].pairs > 100
    assert any(change.size == 2 for change in found[0].changes)


def test_a_pair_that_is_no_faster_than_a_part_of_it_is_not_offered() -> None:
    found = fitted(llama_job(), 0.6)
    singles = {c.settings[0]: c.judged.seconds for c in found.changes if c.size == 1}
    pairs = [c for c in found.changes if c.size == 2]
    assert singles
    assert pairs
    for pair in pairs:
        parts = [singles[name] for name in pair.settings if name in singles]
        assert pair.judged.seconds < min(parts, default=math.inf)


@pytest.mark.slow
def test_gradients_of_the_output_need_not_wait() -> None:
    """Without `--defer-embedding-wgrad-compute` the inputs of these products are not kept."""
    kernels = replace(SHARDED.kernels, deferred_output=True)
    job = llama_job(pp=2, dp=2, settings=replace(SHARDED, kernels=kernels))
    found = fitted(job, 0.9)
    (change,) = (c for c in found.changes if c.settings == ("defer embedding wgrad",))
    check_offer(job, site_of(job, 0.9), change)
    assert change.words.drop == ("--defer-embedding-wgrad-compute",)
    assert not change.words.add


@pytest.mark.slow
def test_more_gpus_are_the_fewest() -> None:
    """With sharded states and nothing else changed, one number of replicas after the other."""
    job, share = llama_job(micro_batch=1, global_batch=64), 0.95
    found = fitted(job, share)
    assert found.more_gpus is not None
    assert found.more_gpus.settings == ("GPUs",)
    least = found.more_gpus.judged.job
    site = site_of(job, share)
    for dp in range(job.dp + 1, least.dp + 1):
        other = replace(job, dp=dp)
        if 64 % dp == 0 and dp % site.each == 0:
            assert needs_of(other, site.of(other.world)).fits == (dp == least.dp)


@pytest.mark.slow
def test_settings_are_all_free_where_no_pair_fits() -> None:
    """A smaller micro-batch and tensor parallelism are not enough without recomputation."""
    share = 0.046
    job = llama_job(settings=replace(SHARDED, optimizer=OptimizerSettings()), micro_batch=8)
    found = fitted(job, share, 20.0)
    assert found.changes == ()
    assert found.free is not None
    assert found.free.change is not None
    check_offer(job, site_of(job, share), found.free.change)
    assert found.free.bound <= found.free.change.judged.seconds


@pytest.mark.slow
def test_where_nothing_fits_the_memory_that_is_named_is_enough() -> None:
    job = llama_job(global_batch=8)
    found = fitted(job, 0.02, 0.3)
    assert found.changes == ()
    assert found.enough is not None
    assert found.enough.memory is not None
    site = Site(cluster=with_memory(site_of(job).cluster, found.enough.memory))
    again = fit(judge_of(job, site), writer_of(job), 20.0)
    assert list(offered(again))


@given(jobs())
@examples(40, deadline=None)
def test_the_fullest_rank_is_among_those_that_tell(job: TrainingJob) -> None:
    needs = needs_of(job, small_cluster(1, job.world))
    most = max(rank.needed for rank in needs.ranks)
    telling = telling_ranks(job, needs.devices)
    assert most == max(needs.ranks[rank].needed for rank in telling)


# ---- the GPUs -----------------------------------------------------------------------------------


def test_ranks_fill_a_part_of_a_node_or_whole_nodes() -> None:
    site = Site(cluster=small_cluster(2, 4))
    assert [site.of(world).device_count for world in (1, 2, 4, 8, 12)] == [1, 2, 4, 8, 12]
    assert [site.of(world).node_count for world in (2, 4, 12)] == [1, 1, 3]
    with pytest.raises(PlanError, match="found 6 ranks, expected whole nodes of 4 of small; 8"):
        site.of(6)
    more = site.more(1)
    assert [next(more) for _ in range(4)] == [2, 4, 8, 12]


def test_nodes_that_differ_do_not_grow() -> None:
    site = Site(cluster=small_cluster(2, 2, slow=1))
    assert list(site.more(2)) == [4, 6]
    with pytest.raises(PlanError, match="found 8 ranks, expected at most the 6 of small"):
        site.of(8)


def test_the_smallest_device_of_a_stage_decides() -> None:
    """The third node has less memory, and the third and last stage of a pipeline is on it."""
    cluster = small_cluster(2, 2, slow=1)
    small = replace(cluster.device_types["l4"], memory=2**30)
    cluster = replace(cluster, device_types={**cluster.device_types, "l4": small})
    job = TrainingJob(model=llama(layers=9), micro_batch=1, global_batch=8, pp=3, dp=2)
    assert [device.name for device in needs_of(job, cluster).devices] == ["a100", "a100", "l4"]
    other = replace(job, settings=Settings(order="tp-cp-ep-pp-dp"))
    assert [d.name for d in needs_of(other, cluster).devices] == ["a100", "l4", "l4"]
