"""Plans as training jobs of Megatron-LM, and back.

Megatron has one value of every degree for all stages and layers, places consecutive ranks on whole
nodes one after the other, and computes the same layers of every (virtual) stage again. A plan that
needs more is refused, with its field, Megatron's limit and the nearest plan that can run.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from ilp_planner.base.errors import PlanError
from ilp_planner.base.units import format_seconds
from ilp_planner.costs.training.job import (
    base_settings,
    ends_of,
    job_of_groups,
    layout_of,
    node_order,
)
from ilp_planner.plan import (
    GroupPlan,
    GroupStage,
    OperatorPlan,
    OperatorStage,
    Plan,
    Replica,
    is_of_groups,
    is_of_operators,
)
from ilp_planner.specs.chain_layers import segments
from ilp_planner.specs.data_sheets import gpu_architecture
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.pipeline_layout import write_layout
from ilp_planner.specs.training import ORDERS, Recompute, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.inputs.request import Request
    from ilp_planner.plan import AnyPlan
    from ilp_planner.spaces.training.search.nearest import Nearest, Wish
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.training import Settings

CORE = ("score", "softmax", "dropout", "context")  # of attention: what selective recomputes


class _Limit(Exception):  # noqa: N818 - it becomes a PlanError, with the nearest plan
    """A limit of Megatron: the plan's field, its value, and the limit."""

    def __init__(self, field: str, found: object, limit: str) -> None:
        super().__init__(f"{field}: found {found}, but Megatron-LM {limit}")


class NoJobError(PlanError):
    """A plan that no training job of Megatron-LM says. near: the nearest plan that one does."""

    near: Nearest | None = None


def job_of_plan(
    plan: AnyPlan, model: ModelSpec, cluster: ClusterSpec, asked: Request | None = None
) -> TrainingJob:
    """Return the training job that a plan describes.

    A plan without settings says nothing of optimizer and kernels: it gets Adam with its states on
    every replica, and the kernels that the devices have.

    Parameters
    ----------
    asked: the request of the plan, if known; the nearest plan then keeps it.

    Raises
    ------
    NoJobError: Megatron-LM cannot run it; with the field, the limit and the nearest plan.
    PlanError: it is no plan of a decoder, or none at all.
    """
    decoder = as_decoder(model.architecture)
    if decoder is None:
        raise PlanError(
            f"model {model.name!r}: family: found {model.family}, but a training job of "
            "Megatron-LM is a decoder: gpt or decoder"
        )
    _check_counts(plan, cluster)
    try:
        _check_nodes(cluster)
        if is_of_groups(plan):
            return _of_groups(plan, decoder, model, cluster)
        assert is_of_operators(plan)
        return _of_operators(plan, decoder, model, cluster)
    except _Limit as limit:
        _refuse(limit, plan, model, cluster, asked)


def hosts_of(plan: AnyPlan, job: TrainingJob, cluster: ClusterSpec) -> tuple[str, ...]:
    """Return the nodes of a plan's ranks by node rank, in the words of the cluster file."""
    order = node_order(plan, cluster) if is_of_groups(plan) and plan.settings else None
    names: list[str] = []
    for group in cluster.nodes:
        for copy in range(group.count):
            own = f"{group.name} {copy}" if group.count > 1 else group.name
            names.append(own if group.name else f"node {len(names)}")
    nodes = max(1, -(-job.world // job.devices_per_node))
    return tuple(names[k] for k in (order or range(nodes)))


def plan_of_job(job: TrainingJob, cluster: ClusterSpec, *, model: str = "") -> GroupPlan:
    """Return the plan of a job, with ranks that fill the nodes of a cluster in order.

    Raises
    ------
    PlanError: the job has another number of ranks than the cluster has devices.
    """
    if job.world != cluster.device_count:
        raise PlanError(
            f"cluster {cluster.name!r}: found {cluster.device_count} devices, expected "
            f"{job.world}, one for each rank (tp {job.tp} x cp {job.settings.cp} x dp {job.dp} "
            f"x pp {job.pp})"
        )
    if job.global_batch % (job.micro_batch * job.dp):
        raise PlanError(
            f"global batch: found {job.global_batch}, expected a multiple of micro-batch x dp "
            f"({job.micro_batch} x {job.dp})"
        )
    width = job.tp * job.settings.cp

    def seat(stage: int, replica: int) -> int:
        if job.settings.order == ORDERS[0]:
            return (stage * job.dp + replica) * width
        return (replica * job.pp + stage) * width

    groups = [
        tuple(
            Replica(devices=tuple(range(seat(p, d), seat(p, d) + width)), samples=job.micro_batch)
            for d in range(job.dp)
        )
        for p in range(job.pp)
    ]
    ends = ends_of(job.pipeline)
    empty = [k for k, (start, stop) in enumerate(pairwise(ends)) if start == stop]
    if empty:
        raise PlanError(
            f"pipeline layout: stage {empty[0]} is empty, expected a layer, the embedding or the "
            "loss in every stage of a plan"
        )
    return Plan(
        model=model,
        global_batch=job.global_batch,
        micro_batches=job.micro_batches,
        stages=tuple(
            GroupStage(start=start, stop=stop, replicas=groups[job.rank_of(k)])
            for k, (start, stop) in enumerate(pairwise(ends))
        ),
        settings=job.settings,
        virtual=job.virtual,
    )


def _check_counts(plan: AnyPlan, cluster: ClusterSpec) -> None:
    """Refuse a plan that nobody could run at all."""
    if plan.micro_batches < 1 or plan.global_batch % plan.micro_batches:
        raise PlanError(
            f"micro_batches: found {plan.micro_batches}, expected a divisor of the "
            f"{plan.global_batch} samples of an iteration"
        )
    if plan.devices > cluster.device_count:
        raise PlanError(
            f"stages.devices: found {plan.devices} devices, expected at most the "
            f"{cluster.device_count} of cluster {cluster.name!r}"
        )


# ---- plans of whole layers ----------------------------------------------------------------------


def _check_nodes(cluster: ClusterSpec) -> None:
    sizes = sorted({group.devices for group in cluster.nodes})
    if len(sizes) > 1:
        found = f"nodes of {', '.join(map(str, sizes))} devices"
        raise _Limit("cluster", found, "is launched with one --nproc-per-node for all nodes")


def _of_groups(
    plan: GroupPlan, decoder: Decoder, model: ModelSpec, cluster: ClusterSpec
) -> TrainingJob:
    if plan.stages[-1].stop != decoder.layers + 2:
        raise PlanError(
            f"plan: found {plan.stages[-1].stop} layers, expected {decoder.layers + 2}: word "
            f"embedding, {decoder.layers} layers and output of {model.name}"
        )
    first = plan.stages[0]
    for number, stage in enumerate(plan.stages):
        where = f"stages[{number}]"
        for name, have, wanted, flag in (
            ("tp", stage.tp, first.tp, "--tensor-model-parallel-size"),
            ("dp", stage.dp, first.dp, "data-parallel size"),
        ):
            if have != wanted:
                raise _Limit(
                    f"{where}.{name}", have, f"has one {flag} for all stages ({wanted} in stage 0)"
                )
        if len(stage.degrees) > 1:
            raise _Limit(
                f"{where}.tp",
                " and ".join(map(str, stage.degrees)),
                "has one --tensor-model-parallel-size for all replicas",
            )
        shares = sorted({replica.samples for replica in stage.replicas})
        if shares != [first.replicas[0].samples]:
            raise _Limit(
                f"{where}.samples",
                ", ".join(map(str, shares)),
                "has one --micro-batch-size for all replicas and stages",
            )
    if plan.settings is not None:
        return _placed(plan, decoder, cluster)
    settings = _plain_settings(decoder, model, cluster, first.tp)
    settings = replace(settings, recompute=_of_stages(plan))
    others = [replace(plan, settings=replace(settings, order=order)) for order in ORDERS]
    for candidate in others[1:]:
        if node_order(candidate, cluster) is not None and node_order(others[0], cluster) is None:
            return _placed(candidate, decoder, cluster)
    return _placed(others[0], decoder, cluster)


def _of_stages(plan: GroupPlan) -> Recompute:
    """Return the recomputation of the stages of a plan, if Megatron has it for all of them."""
    last = plan.stages[-1].stop - 1
    layers = [min(stage.stop, last) - max(stage.start, 1) for stage in plan.stages]
    own = {k: stage.recompute for k, stage in enumerate(plan.stages) if layers[k] > 0}
    first, *others = own
    odd = next((k for k in others if own[k] != own[first]), None)
    if odd is None:
        return own[first]
    kinds = {recompute.kind for recompute in own.values()}
    counts = {k: min(r.layers, layers[k]) for k, r in own.items()}
    counts |= {k: layers[k] for k, r in own.items() if r.kind == "full"}
    most = max(counts.values())
    if "selective" not in kinds and all(n == min(most, layers[k]) for k, n in counts.items()):
        return Recompute(granularity="full", method="block", layers=most)
    raise _Limit(
        f"stages[{odd}].recompute",
        f"{own[odd]}, and {own[first]} in stage {first}",
        "computes again attention's core of all layers, all layers, or the first n of every stage "
        "(--recompute-granularity, --recompute-method, --recompute-num-layers)",
    )


def _placed(plan: GroupPlan, decoder: Decoder, cluster: ClusterSpec) -> TrainingJob:
    """Return the job of a plan with devices in rank order."""
    if node_order(plan, cluster) is None:
        raise _Limit(
            "stages.devices",
            "another order",
            "gives consecutive ranks to the devices of a node, tensor parallelism first, and "
            f"fills node after node ({' or '.join(ORDERS)}; hosts may be permuted)",
        )
    if plan.devices != cluster.device_count and plan.devices % cluster.nodes[0].devices:
        raise _Limit(
            "stages.devices", f"{plan.devices} devices", "starts equally many ranks on every node"
        )
    return job_of_groups(plan, decoder, cluster)


def _plain_settings(decoder: Decoder, model: ModelSpec, cluster: ClusterSpec, tp: int) -> Settings:
    """Return the settings of a plan that does not say any."""
    settings = base_settings(decoder, model.precision, cluster)
    return replace(
        settings,
        sequence_parallel=tp > 1 and decoder.experts is not None,
        optimizer=replace(settings.optimizer, sharding="none"),
    )


# ---- plans of operators -------------------------------------------------------------------------


def _of_operators(
    plan: OperatorPlan, decoder: Decoder, model: ModelSpec, cluster: ClusterSpec
) -> TrainingJob:
    chain = segments(model.operators)
    edges = {segment.start: number for number, segment in enumerate(chain)}
    edges[len(model.operators)] = len(chain)
    last = max(stage.stop for stage in plan.stages)
    if last != len(model.operators):
        raise PlanError(
            f"plan: found {last} operators, expected the {len(model.operators)} of {model.name}"
        )
    first = plan.stages[0].strategies[0]
    for number, stage in enumerate(plan.stages):
        where = f"stages[{number}]"
        for name in ("start", "stop"):
            at = getattr(stage, name)
            if at not in edges:
                raise _Limit(
                    f"{where}.{name}", f"operator {at} ({model.operators[at]})",
                    "cuts a pipeline between whole layers (--pipeline-model-parallel-layout)",
                )  # fmt: skip
        if stage.device_count != plan.stages[0].device_count:
            each = plan.stages[0].device_count
            limit = f"has equally many GPUs in all stages ({each} in stage 0)"
            raise _Limit(f"{where}.devices", stage.device_count, limit)
        for place, strategy in enumerate(stage.strategies):
            spot = f"{where}.strategies[{place}]"
            if strategy.tp != first.tp:
                limit = "has one --tensor-model-parallel-size for all layers and stages"
                raise _Limit(f"{spot}.tp", strategy.tp, f"{limit} ({first.tp} in stage 0)")
            if strategy.dp != first.dp:
                limit = "has one data-parallel size for all layers and stages"
                raise _Limit(f"{spot}.dp", strategy.dp, f"{limit} ({first.dp} in stage 0)")
            if strategy.split and strategy.tp > 1:
                limit = "splits every product in its own dimension only (split 0)"
                raise _Limit(f"{spot}.split", strategy.split, limit)
    if plan.micro_batch_size % first.dp:
        raise _Limit(
            "micro_batch", plan.micro_batch_size,
            f"has one --micro-batch-size for all {first.dp} replicas",
        )  # fmt: skip
    recompute = _recompute(plan, model)
    devices = [device for stage in plan.stages for device in stage.devices]
    if devices != list(range(len(devices))):
        raise _Limit("stages.first_device", "another order", "numbers ranks stage after stage")
    settings = _plain_settings(decoder, model, cluster, first.tp)
    ends = (*(edges[stage.start] for stage in plan.stages), len(chain))
    return TrainingJob(
        model=decoder,
        micro_batch=plan.micro_batch_size // first.dp,
        global_batch=plan.global_batch,
        tp=first.tp,
        pp=len(plan.stages),
        dp=first.dp,
        layout=layout_of(ends, decoder),
        settings=replace(settings, recompute=recompute),
        devices_per_node=cluster.nodes[0].devices,
        gpu_architecture=gpu_architecture(cluster),
    )


def _recompute(plan: OperatorPlan, model: ModelSpec) -> Recompute:
    """Return the recomputation of a plan cut between layers, if Megatron has it."""
    patterns = [_stage_recompute(stage, model) for stage in plan.stages]
    kinds = {kind for flags in patterns for kind in flags}
    if kinds <= {"none"}:
        return Recompute()
    if kinds == {"core"}:
        return Recompute(granularity="selective")
    if kinds == {"all"}:
        return Recompute(granularity="full", method="uniform", layers=1)
    if kinds == {"all", "none"}:
        counts = [flags.count("all") for flags in patterns]
        most = max(counts)
        first_ones = all(
            flags == ["all"] * n + ["none"] * (len(flags) - n) and n == min(most, len(flags))
            for flags, n in zip(patterns, counts, strict=True)
        )
        if first_ones:
            return Recompute(granularity="full", method="block", layers=most)
    raise _Limit(
        "stages.strategies.recompute",
        "other operators from layer to layer or stage to stage",
        "computes again attention's core of all layers, all layers, or the first n of every stage "
        "(--recompute-granularity, --recompute-method, --recompute-num-layers)",
    )


def _stage_recompute(stage: OperatorStage, model: ModelSpec) -> list[str]:
    """Return what each layer of a stage computes again: none, core, all, or some."""
    found = []
    for segment in segments(model.operators)[1:-1]:
        if not stage.start <= segment.start < stage.stop:
            continue
        flags = [
            stage.strategies[i - stage.start].recompute for i in range(segment.start, segment.stop)
        ]
        names = model.operators[segment.start : segment.stop]
        core = [any(name.endswith(f"attention-{step}") for step in CORE) for name in names]
        if not any(flags):
            found.append("none")
        elif all(flags):
            found.append("all")
        else:
            found.append("core" if flags == core else "some")
    return found


# ---- refusals -----------------------------------------------------------------------------------


def _refuse(
    limit: _Limit, plan: AnyPlan, model: ModelSpec, cluster: ClusterSpec, asked: Request | None
) -> NoReturn:
    from ilp_planner.spaces.training.search.nearest import near_request, nearest_plan

    command = f"`{_solve(plan, asked)}` finds the fastest"
    request = near_request(plan.global_batch, plan.settings, asked)
    near = nearest_plan(model, cluster, request, _wish(plan, model))
    if near is None:
        raise NoJobError(f"{limit}; {command}") from None
    job = job_of_groups(near.plan, _decoder(model), cluster)
    error = NoJobError(
        f"{limit}; nearest it can run: {describe_job(job)}, {format_seconds(near.seconds)} per "
        f"iteration; {command}"
    )
    error.near = near
    raise error from None


def _solve(plan: AnyPlan, asked: Request | None) -> str:
    """Return the command that plans the same for Megatron-LM, with the inputs that have names."""
    words = ["ilp-plan", "solve", "--runtime", "megatron"]
    for kind in ("model", "cluster"):
        name = None if asked is None else asked.name(kind)
        words += [] if name is None else [f"--{kind}", name]
    return shlex.join([*words, "--global-batch-size", str(plan.global_batch)])


def _decoder(model: ModelSpec) -> Decoder:
    decoder = as_decoder(model.architecture)
    assert decoder is not None
    return decoder


def describe_job(job: TrainingJob) -> str:
    """Return `tp 2, dp 4, pp 2, micro-batch 1, layout Et*12|t*12L, recompute full uniform 1`."""
    s = job.settings
    parts = [f"tp {job.tp}"]
    parts += [f"cp {s.cp}"] * (s.cp > 1)
    parts += [f"ep {s.ep}"] * (s.ep > 1)
    parts += [f"dp {job.dp}", f"pp {job.pp}", f"micro-batch {job.micro_batch}"]
    parts.append(f"layout {write_layout(job.pipeline)}")
    parts += [s.kernels.quantised] * (s.kernels.quantised != "")
    again = s.recompute
    if again.granularity == "selective":
        parts.append("recompute selective")
    elif again.granularity == "full":
        parts.append(f"recompute full {again.method} {again.layers}")
    return ", ".join(parts)


def _wish(plan: AnyPlan, model: ModelSpec) -> Wish:
    """Return what most of a plan has."""
    from ilp_planner.spaces.training.search.nearest import wish_of

    if is_of_groups(plan):
        cp = plan.settings.cp if plan.settings else 1
        stages = [(s.start, s.stop, max(1, s.tp // cp)) for s in plan.stages]
        samples = plan.micro_batch_size / plan.stages[0].dp
        own = [stage.recompute for stage in plan.stages]
        again = plan.settings.recompute if plan.settings else max(own, key=own.count)
        return wish_of(stages, samples, again)
    assert is_of_operators(plan)
    chain = segments(model.operators)
    starts = [segment.start for segment in chain]
    ends = [_nearest(starts, stage.stop, len(model.operators)) for stage in plan.stages]
    cuts = [0, *ends]
    wanted = []
    for (start, stop), stage in zip(pairwise(cuts), plan.stages, strict=True):
        degrees = [strategy.tp for strategy in stage.strategies]
        wanted.append((start, max(stop, start), max(set(degrees), key=degrees.count)))
    flags = [s.recompute for stage in plan.stages for s in stage.strategies]
    again = Recompute()
    if sum(flags) * 2 > len(flags):
        again = Recompute(granularity="full", method="uniform", layers=1)
    return wish_of(wanted, plan.micro_batch_size / plan.stages[0].strategies[0].dp, again)


def _nearest(starts: Sequence[int], at: int, end: int) -> int:
    """Return the number of the layer whose beginning is nearest to an operator."""
    if at >= end:
        return len(starts)
    return min(range(len(starts)), key=lambda number: abs(starts[number] - at))
