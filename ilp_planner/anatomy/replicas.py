"""What replicas send each other: gradients that are reduced, parameters that are gathered."""

from collections.abc import Iterator
from dataclasses import replace

from ilp_planner.anatomy.decoder import rank_modules
from ilp_planner.anatomy.groups import group_size
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
    forward and backward (Rajbhandari et al. 2020, arXiv 1910.02054, section 7).
    """
    optimizer, each = job.settings.optimizer, job.micro_batches
    gradient, parameter = sizes

    def row(name: str, collective: str, size: float, *times: int) -> Traffic:
        return row_of(job, pp_rank, name + what, collective, group, size, (times[0], times[1]))

    if optimizer.sharding == "none":
        yield row("gradients", "all_reduce", gradient, 0, 1)
    elif optimizer.sharding == "optimizer":
        yield from _sharded_optimizer(job, row("gradients", "reduce_scatter", gradient, 0, 1))
        yield _instances(job, row("parameters", "all_gather", parameter, 0, 1))
    else:
        yield row("gradients", "reduce_scatter", gradient, 1, each)
        if optimizer.sharding == "gradients":
            yield row("parameters", "all_gather", parameter, 0, 1)
        else:
            yield row("parameters, forward and backward", "all_gather", parameter, 2, 2 * each)


def _instances(job: TrainingJob, row: Traffic) -> Traffic:
    """Return a row of one instance of the distributed optimizer."""
    instances = min(job.settings.optimizer.instances, row.members)
    return replace(row, members=row.members // instances)


def _sharded_optimizer(job: TrainingJob, row: Traffic) -> Iterator[Traffic]:
    """Yield the reduction into shards; several instances of the optimizer sum their shards."""
    inner = _instances(job, row)
    yield inner
    instances = row.members // inner.members
    if instances > 1:
        yield replace(
            row,
            what=row.what.replace("gradients", "shards of gradients, over optimizer instances"),
            collective="all_reduce",
            size=row.size / inner.members,
            members=instances,
        )
