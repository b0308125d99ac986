"""Messages between replicas: reduced gradients, gathered parameters."""

from collections import defaultdict
from collections.abc import Iterator

from ilp_planner.job.decoder import rank_modules
from ilp_planner.job.groups import ACROSS, INSTANCE, group_size
from ilp_planner.job.modules import Module
from ilp_planner.job.quantised import quantised_counts, sent_width
from ilp_planner.job.states import rhythm
from ilp_planner.job.traffic import Traffic, row_of
from ilp_planner.specs.training import TrainingJob

OVER = "shards of gradients, over optimizer instances"
UNITS = {
    "embedding": "embedding",
    "decoder.layers": "layer",
    "mtp.layers": "prediction layer",
    "output": "norm and output",
}


def replicas_traffic(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield the reduction of gradients and the gathering of parameters over replicas."""
    modules = rank_modules(job, pp_rank)
    if job.settings.optimizer.from_master:
        yield from _by_unit(job, pp_rank, modules)
        return
    whole = sum(module.parameters for module in modules)
    experts = sum(module.expert_parameters for module in modules)
    low, low_experts = quantised_counts(modules)
    for what, group, count, quantised in (
        ("", "dp-cp", whole - experts, low - low_experts),
        (" of routed experts", "edp", experts, low_experts),
    ):
        if count and group_size(job, group) > 1:
            yield from _reduced(job, pp_rank, what, group, _sizes(job, count, quantised))


def _gatherings(job: TrainingJob) -> tuple[int, int]:
    """Return how often parameters are gathered, per micro-batch and per iteration."""
    often = rhythm(job)
    each = often.forward + often.backward
    return each, each * job.micro_batches + often.once


def _reductions(job: TrainingJob) -> tuple[int, int]:
    """Return how often gradients are reduced, likewise."""
    return (1, job.micro_batches) if rhythm(job).reduces else (0, 1)


def _parameters(job: TrainingJob) -> str:
    """Return the name of gathered parameters."""
    again = job.settings.optimizer.sharding == "parameters"
    return "parameters, forward and backward" if again else "parameters"


def _sizes(job: TrainingJob, count: int, quantised: int) -> tuple[float, float]:
    """Return the bytes of so many gradients and parameters, some of them quantised."""
    width = job.settings.width
    saved = width - sent_width(job)
    return count * job.settings.optimizer.gradient, count * width - quantised * saved


def _by_unit(job: TrainingJob, pp_rank: int, modules: tuple[Module, ...]) -> Iterator[Traffic]:
    """Yield the messages of PyTorch's `fully_shard`, one set for every unit.

    Units are the embedding, every layer, and the last norm with the output; routed experts that are
    spread over ranks are units besides (torchtitan's `apply_fsdp`). Each micro-batch gathers a
    unit's parameters and reduces its gradients, over instances as well.

    How often is measured, in pipelines of up to three virtual stages on a rank; of more, some are
    given up in between (`pipelining/schedules.py: _add_unshard_reshard`).
    """
    name = _parameters(job)
    reduced, gathered = _reductions(job), _gatherings(job)
    units: dict[tuple[str, str, float, float], int] = defaultdict(int)
    for module in modules:
        one = module.times(1)
        low, low_experts = quantised_counts((one,))
        routed = one.expert_parameters if job.settings.ep > 1 else 0
        low_routed = low_experts if job.settings.ep > 1 else 0
        what = f", {UNITS.get(module.name, module.name)}"
        count, quantised = one.parameters - routed, low - low_routed
        units["dp-cp", what, *_sizes(job, count, quantised)] += module.repeat
        if routed:
            units["edp", f"{what}'s experts", *_sizes(job, routed, low_routed)] += module.repeat
    for (group, what, gradient, parameter), count in units.items():
        shards = group_size(job, group, INSTANCE)
        messages = [
            (name, "all_gather", parameter, gathered, INSTANCE),
            ("gradients", "reduce_scatter", gradient, reduced, INSTANCE),
            (OVER, "all_reduce", gradient / shards, reduced, ACROSS),
        ]
        if job.settings.optimizer.sharding == "none":
            messages = [("gradients", "all_reduce", gradient, reduced, "")]
        for title, collective, size, often, part in messages:
            if group_size(job, group, part) > 1:
                times = (count * often[0], count * often[1])
                yield row_of(job, pp_rank, title + what, collective, group, size, times, part=part)


def _reduced(
    job: TrainingJob, pp_rank: int, what: str, group: str, sizes: tuple[float, float]
) -> Iterator[Traffic]:
    """Yield the messages of one set of parameters. sizes: bytes of gradients and of parameters.

    How often says `rhythm`; several instances of the optimizer sum their shards once.
    """
    gradient, parameter = sizes

    def row(
        name: str, collective: str, size: float, times: tuple[int, int], part: str = ""
    ) -> Traffic:
        return row_of(job, pp_rank, name + what, collective, group, size, times, part=part)

    if job.settings.optimizer.sharding == "none":
        yield row("gradients", "all_reduce", gradient, (0, 1))
        return
    inner = row("gradients", "reduce_scatter", gradient, _reductions(job), INSTANCE)
    if inner.members > 1:
        yield inner
    if group_size(job, group, ACROSS) > 1:
        size = gradient / inner.members
        yield row(OVER, "all_reduce", size, (0, 1), ACROSS)
    if inner.members > 1:
        yield row(_parameters(job), "all_gather", parameter, _gatherings(job), INSTANCE)
