"""What replicas send each other: gradients that are reduced, parameters that are gathered."""

from collections.abc import Iterator

from ilp_planner.anatomy.decoder import rank_modules
from ilp_planner.anatomy.groups import ACROSS, INSTANCE, group_size
from ilp_planner.anatomy.quantised import quantised_counts, sent_width
from ilp_planner.anatomy.traffic import Traffic, row_of
from ilp_planner.specs.training import TrainingJob


def replicas_traffic(job: TrainingJob, pp_rank: int) -> Iterator[Traffic]:
    """Yield the reduction of gradients and the gathering of parameters over replicas."""
    modules = rank_modules(job, pp_rank)
    whole = sum(module.parameters for module in modules)
    experts = sum(module.expert_parameters for module in modules)
    low, low_experts = quantised_counts(modules)
    width = job.settings.width
    saved = width - sent_width(job)
    for what, group, count, quantised in (
        ("", "dp-cp", whole - experts, low - low_experts),
        (" of routed experts", "edp", experts, low_experts),
    ):
        if count and group_size(job, group) > 1:
            sizes = count * job.settings.optimizer.gradient, count * width - quantised * saved
            yield from _reduced(job, pp_rank, what, group, sizes)


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
        name = "shards of gradients, over optimizer instances"
        yield row(name, "all_reduce", size, (0, 1), ACROSS)
    if inner.members == 1:
        return
    if optimizer.sharding == "parameters":
        name, often = "parameters, forward and backward", (2, 2 * each)
    else:
        name, often = "parameters", (0, 1)
    yield row(name, "all_gather", parameter, often, INSTANCE)
