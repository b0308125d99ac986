"""What replicas send each other: gradients that are reduced, parameters that are gathered."""

from collections import defaultdict
from collections.abc import Iterator

from ilp_planner.anatomy.decoder import rank_modules
from ilp_planner.anatomy.groups import ACROSS, INSTANCE, group_size
from ilp_planner.anatomy.modules import Module
from ilp_planner.anatomy.quantised import quantised_counts, sent_width
from ilp_planner.anatomy.states import reduces_late
from ilp_planner.anatomy.traffic import Traffic, row_of
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


def _sizes(job: TrainingJob, count: int, quantised: int) -> tuple[float, float]:
    """Return the bytes of so many gradients and parameters, of which some are quantised."""
    width = job.settings.width
    saved = width - sent_width(job)
    return count * job.settings.optimizer.gradient, count * width - quantised * saved


def _by_unit(job: TrainingJob, pp_rank: int, modules: tuple[Module, ...]) -> Iterator[Traffic]:
    """Yield the messages of PyTorch's `fully_shard`, of which every unit has its own.

    Units are the embedding, every layer, and the last norm with the output; routed experts that are
    spread over ranks are units besides (torchtitan's `apply_fsdp`). Each micro-batch gathers a
    unit's parameters and reduces its gradients, over instances as well.

    In a pipeline gradients are reduced after the last micro-batch, and parameters stay after a
    backward pass: one right after another gathers none, nor does the next forward pass, so that M
    micro-batches gather M + 1 times where a forward pass gives them up, and once where it does not
    (measured; of up to three virtual stages on a rank, more are given up in between:
    `pipelining/schedules.py: _add_unshard_reshard`).
    """
    again, batches = job.settings.optimizer.sharding == "parameters", job.micro_batches
    name = "parameters, forward and backward" if again else "parameters"
    reduced, gathered = (1, batches), (1 + again, (1 + again) * batches)
    if reduces_late(job):
        reduced, gathered = (0, 1), (0, batches + 1 if again else 1)
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
        for title, collective, size, often, part in messages:
            if group_size(job, group, part) > 1:
                times = (count * often[0], count * often[1])
                yield row_of(job, pp_rank, title + what, collective, group, size, times, part=part)


def _reduced(
    job: TrainingJob, pp_rank: int, what: str, group: str, sizes: tuple[float, float]
) -> Iterator[Traffic]:
    """Yield the messages of one set of parameters. sizes: bytes of gradients and of parameters.

    Megatron reduces gradients after the last micro-batch, into shards with the distributed
    optimizer, and gathers the stepped parameters. With sharded gradients (ZeRO-2) every micro-batch
    reduces; with sharded parameters (ZeRO-3) every micro-batch gathers them twice, to compute
    forward and backward (Rajbhandari et al. 2020, arXiv 1910.02054, section 7). Several instances
    of the optimizer sum their shards after the last micro-batch (`megatron_fsdp.py:
    outer_fsdp_group_grad_reduce`).
    """
    optimizer, each = job.settings.optimizer, job.micro_batches
    gradient, parameter = sizes

    def row(
        name: str, collective: str, size: float, times: tuple[int, int], part: str = ""
    ) -> Traffic:
        return row_of(job, pp_rank, name + what, collective, group, size, times, part=part)

    if optimizer.sharding == "none":
        yield row("gradients", "all_reduce", gradient, (0, 1))
        return
    often = (0, 1) if optimizer.sharding == "optimizer" else (1, each)
    inner = row("gradients", "reduce_scatter", gradient, often, INSTANCE)
    if inner.members > 1:
        yield inner
    if group_size(job, group, ACROSS) > 1:
        size = gradient / inner.members
        yield row(OVER, "all_reduce", size, (0, 1), ACROSS)
    if inner.members == 1:
        return
    if optimizer.sharding == "parameters":
        name, often = "parameters, forward and backward", (2, 2 * each)
    else:
        name, often = "parameters", (0, 1)
    yield row(name, "all_gather", parameter, often, INSTANCE)
