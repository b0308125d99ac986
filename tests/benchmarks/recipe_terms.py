"""Where the seconds of a training job's iteration go, by what could be done about them.

What pipeline ranks compute and send is their mean, so that it says how fast kernels and links are
whoever has the layers; what the fullest rank has beyond it is a term of its own.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from ilp_planner.costs.profiles.work import kernel_timer
from ilp_planner.costs.training.iteration import SLOWEST, SYNC, WAITING, iteration_terms, stages_of
from ilp_planner.costs.training.job import ends_of
from ilp_planner.costs.training.ranks import LAYER_GROUPS, RankCosts
from ilp_planner.costs.training.times import element_messages, job_passes
from ilp_planner.inputs.problem import Problem
from ilp_planner.job.states import rhythm
from ilp_planner.job.work import (
    FusedAttention,
    Kernel,
    ModuleWork,
    Product,
    embedding_work,
    layer_work,
    output_work,
    prediction_work,
)
from ilp_planner.plan import GroupPlan
from ilp_planner.specs.cluster import Device
from ilp_planner.specs.training import TrainingJob

PRODUCTS, ATTENTION, PASSES, HOST = "products", "attention", "passes over memory", "host"
TENSOR, CONTEXT, EXPERTS, REPLICAS = "tp", "cp", "ep", "dp"
RECOMPUTED, UNEVEN, PIPELINE, ONCE = "computing again", "fullest rank", "pipeline", "step"
TERMS = (
    PRODUCTS, ATTENTION, PASSES, HOST, TENSOR, CONTEXT, EXPERTS, REPLICAS, RECOMPUTED, UNEVEN,
    PIPELINE, ONCE,
)  # fmt: skip
GROUPS = {TENSOR: ("tp",), CONTEXT: ("cp",), EXPERTS: ("ep", "etp", "etp-ep")}


def terms_of(among: Problem[Any], plan: GroupPlan) -> dict[str, float]:
    """Return the seconds of a plan's iteration by `TERMS`; they add up to what the judge says.

    products, attention, passes over memory: kernels, forward and backward. host: what layers wait
    for the host to start them. tp, cp, ep: messages of these groups that nothing hides; dp:
    gathered parameters and reduced gradients, likewise. computing again: kernels and messages. All
    of these are of every micro-batch, in the mean of the pipeline ranks. fullest rank: what the
    slowest one takes beyond that mean. pipeline: fill, sends and waiting. step: the optimiser's,
    the gradient of a tied embedding, and what no rank does.
    """
    ranks = among.costs.ranks(plan, among.cluster)
    job = ranks.job
    found = iteration_terms(ranks, job)
    often = job.micro_batches / job.pp  # of every rank's seconds, in the mean
    terms = {name: often * seconds for name, seconds in _all_ranks(ranks).items()}
    terms[UNEVEN] = found.pop(SLOWEST) - sum(terms.values())
    terms[PIPELINE] = found.pop(WAITING)
    stepping = _stepping(ranks)
    terms[REPLICAS] += found.pop(SYNC) - stepping
    terms[ONCE] = stepping + sum(found.values())
    return terms


def _all_ranks(ranks: RankCosts) -> dict[str, float]:
    """Return the seconds of one micro-batch on all pipeline ranks together, by terms."""
    terms = dict.fromkeys(TERMS, 0.0)
    chains = {kind: _chain(ranks, kind) for kind in ranks.distinct}
    for number, (start, stop) in enumerate(pairwise(ends_of(ranks.job.pipeline))):
        for element in chains[ranks.kinds[number % ranks.job.pp]][start:stop]:
            for name, seconds in element.items():
                terms[name] += seconds
    terms[RECOMPUTED] = sum(stage.again for stage in stages_of(ranks, ranks.job))
    return terms


def _chain(ranks: RankCosts, kind: int) -> list[dict[str, float]]:
    """Return the terms of a micro-batch of every element of the chain on a kind of rank; `dp` is
    what its passes wait for beyond the messages of layers."""
    elements = {exact: _elements(one, kind) for exact, one in ((False, ranks), (True, ranks.exact))}
    names = ["embedding"]
    names += ["expert" if experts else "dense" for experts in ranks.job.model.expert_layers]
    exact = (False, *ranks.stays_exact, False)
    found = []
    for name, plain, time in zip([*names, "output"], exact, ranks.elements(kind), strict=True):
        terms = elements[plain][name]
        found.append(terms | {REPLICAS: time.total - sum(terms.values())})
    return found


def _elements(ranks: RankCosts, kind: int) -> dict[str, dict[str, float]]:
    """Return the terms of one of each element of the chain: its kernels, what it waits for the host
    and its messages, forward and backward."""
    job, network = ranks.job, ranks.network
    (device,) = (network.cluster.device_types[name] for name in network.stage_types(job, kind))
    alone = {
        term: job_passes(job, network, device, kind, without=set(LAYER_GROUPS).difference(groups))
        for term, groups in GROUPS.items()
    }
    whole = job_passes(job, network, device, kind)
    found = {}
    for name, work in _work(job).items():
        passes = getattr(whole, name)
        terms = _kernels(job, device, work)
        terms[HOST] = sum(passes.kernels) - sum(terms.values())
        found[name] = terms | {term: sum(getattr(only, name).sent) for term, only in alone.items()}
    return found


def _work(job: TrainingJob) -> dict[str, tuple[ModuleWork, ...]]:
    """Return what the elements of a job's chain compute, by their names in `JobPasses`."""
    layers = {
        "expert" if experts else "dense": layer_work(job, kind=experts)
        for experts in set(job.model.expert_layers)
    }
    output = output_work(job) + job.model.prediction_layers * prediction_work(job)
    return {"embedding": embedding_work(job), **layers, "output": output}


def _kernels(job: TrainingJob, device: Device, work: Iterable[ModuleWork]) -> dict[str, float]:
    """Return the seconds of modules' kernels, forward and backward, by what they are."""
    terms = dict.fromkeys((PRODUCTS, ATTENTION, PASSES), 0.0)
    settings = job.settings
    for module in work:
        for kernel in (*module.forward, *module.backward):
            terms[_what(kernel)] += kernel_timer(device, settings.precision, settings.quantised)(
                kernel
            )
    return terms


def _what(kernel: Kernel) -> str:
    match kernel.shape:
        case Product():
            return PRODUCTS
        case FusedAttention():
            return ATTENTION
    return PASSES


def sent_of(among: Problem[Any], plan: GroupPlan) -> dict[str, float]:
    """Return the seconds that a plan's messages would take if nothing hid any of them: tp, cp, ep
    and dp, as in `terms_of`, in the mean of the pipeline ranks over the links of the first one,
    without what is sent again."""
    ranks = among.costs.ranks(plan, among.cluster)
    job, often = ranks.job, rhythm(ranks.job)
    sent = dict.fromkeys((*GROUPS, REPLICAS), 0.0)
    each = {"embedding": 1, "dense": 0, "expert": 0, "output": 1}
    for experts in job.model.expert_layers:
        each["expert" if experts else "dense"] += 1
    for name, count in each.items():
        messages = element_messages(job, name) if count else []
        for term, groups in GROUPS.items():
            among_them = [message for message in messages if message.group in groups]
            seconds = ranks.network.message_seconds(job, among_them, 0)
            sent[term] += count * job.micro_batches * seconds / job.pp
    times = {
        "all_gather": often.once + job.micro_batches * (often.forward + often.backward),
        "reduce_scatter": job.micro_batches if often.reduces else 1,
        "all_reduce": 1,
    }
    for ring in ranks.rings(0):
        seconds = ring.latency + ring.per_byte * float(ring.sizes.sum()) / job.pp
        sent[REPLICAS] += times[ring.collective] * seconds
    return sent


def _stepping(ranks: RankCosts) -> float:
    """Return the seconds of the optimiser's step on the rank that synchronises longest."""
    ends = ends_of(ranks.job.pipeline)
    slowest, _ = ranks.longest_sync(ranks.job)
    steps = ranks.step(ranks.kinds[slowest])
    spans = list(pairwise(ends))[slowest :: ranks.job.pp]
    return float(sum(steps[start:stop].sum() for start, stop in spans))
