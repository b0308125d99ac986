"""Between plans of whole layers and training jobs of Megatron-LM.

A plan's chain is the word embedding, the transformer layers and the output (`chain_names`). Rank
numbers follow the plan: stage after stage, replica after replica.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import PlanError
from ilp_planner.plan import first_devices
from ilp_planner.specs.data_sheets import gpu_architecture
from ilp_planner.specs.pipeline_layout import (
    ALONE,
    FIRST,
    LayoutStage,
    PipelineLayout,
    balanced_layout,
    split_layout,
)
from ilp_planner.specs.recipes import quantised_kernels
from ilp_planner.specs.training import (
    ORDERS,
    Settings,
    TrainingJob,
    usual_kernels,
    usual_settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder


def base_settings(
    model: Decoder, precision: str, cluster: ClusterSpec, recipe: str = ""
) -> Settings:
    """Return the planner's settings for every plan. recipe: of quantised products.

    The usual kernels, flash attention if every device type has it. Keys that an indexer chooses are
    gathered.
    """
    flash = gpu_architecture(cluster).flash_attention
    kernels = usual_kernels(flash=flash, experts=model.experts is not None)
    kernels = quantised_kernels(kernels, recipe)
    return usual_settings(precision, kernels, gathers_keys=model.sparse is not None)


def layout_of(ends: Sequence[int], model: Decoder) -> PipelineLayout:
    """Return the layout of a chain cut at `ends`, from 0 to the length of the chain."""
    return _layout(tuple(ends), model.layers, model.prediction_layers)


def begins(model: Decoder) -> NDArray[np.bool_]:
    """Return whether a stage may begin at each place of the chain, bool [layers + 3]: no layer sees
    keys that an indexer on another stage chose (`experimental_attention_variant_module_specs.py` of
    `megatron.core` 0.19.0: `_validate_dsa_index_share_pipeline_split`), and those whose experts a
    table says are with the embedding (`transformer_config.py` of its branch dev)."""
    found = np.ones(model.layers + 3, np.bool_)
    found[1 : 1 + len(model.bound)] = np.logical_not(model.bound)
    return found


def nearest_beginnings(ends: Sequence[int], model: Decoder) -> tuple[int, ...]:
    """Return the ends of stages, each moved to the nearest place where one may begin; empty: there
    are too few of them."""
    places = np.flatnonzero(begins(model))[1:-1]
    found: list[int] = []
    for number, end in enumerate(ends[1:-1]):
        left = len(ends) - 3 - number
        free = places[places > (found[-1] if found else 0)]
        free = free[: free.size - left]
        if not free.size:
            return ()
        found.append(int(free[np.abs(free - end).argmin()]))
    return (ends[0], *found, ends[-1])


def plain_layout(model: Decoder, stages: int) -> PipelineLayout:
    """Return a layout of so many stages with layers in all; if they are too few, with the embedding
    and the output alone in the first and the last one."""
    if stages > model.layers:
        return layout_of([(model.layers + 2) * k // stages for k in range(stages + 1)], model)
    even = balanced_layout(model.layers, stages, prediction_layers=model.prediction_layers)
    if not model.bound:
        return even
    return layout_of(nearest_beginnings(ends_of(even), model) or ends_of(even), model)


@lru_cache(maxsize=4096)  # thousands of jobs of a search have the same few layouts
def _layout(ends: tuple[int, ...], layers: int, prediction_layers: int) -> PipelineLayout:
    last = layers + 1
    return PipelineLayout(
        tuple(
            LayoutStage(
                layers=max(0, min(stop, last) - max(start, 1)),
                embedding=start == 0,
                prediction_layers=prediction_layers if stop == last + 1 else 0,
                loss=stop == last + 1,
            )
            for start, stop in pairwise(ends)
        )
    )


def ends_of(layout: PipelineLayout) -> tuple[int, ...]:
    """Return the ends of a layout's (virtual) stages on the chain, from 0 on."""
    ends, done = [0], 0
    for stage in layout.stages:
        done += stage.layers + stage.embedding + stage.loss
        ends.append(done)
    return tuple(ends)


def job_of_groups(plan: GroupPlan, model: Decoder, cluster: ClusterSpec) -> TrainingJob:
    """Return the job that a plan of equal stages describes.

    Raises
    ------
    PlanError: the plan has no settings, or differs from stage to stage unlike any job.
    """
    settings = plan.settings
    if settings is None:
        raise PlanError("plan: settings: found none, expected those of a training job")
    first = plan.stages[0]
    width = first.tp
    if width % settings.cp:
        raise PlanError(
            f"plan: stage 0: found {width} devices per replica, expected tp x cp with "
            f"cp {settings.cp}"
        )
    for number, stage in enumerate(plan.stages):
        if stage.tp != width or stage.dp != first.dp:
            raise PlanError(
                f"plan: stage {number}: found {stage.dp} replicas of {stage.tp} devices, expected "
                f"{first.dp} of {width} as in stage 0"
            )
        shares = {replica.samples for replica in stage.replicas}
        if shares != {first.replicas[0].samples}:
            raise PlanError(
                f"plan: stage {number}: found replicas of {', '.join(map(str, sorted(shares)))} "
                f"samples, expected {first.replicas[0].samples} each as in stage 0"
            )
    ends = (0, *(stage.stop for stage in plan.stages))
    try:
        return TrainingJob(
            model=model,
            micro_batch=first.replicas[0].samples,
            global_batch=plan.global_batch,
            tp=width // settings.cp,
            pp=plan.ranks,
            dp=first.dp,
            layout=layout_of(ends, model),
            settings=settings,
            devices_per_node=cluster.nodes[0].devices,
            gpu_architecture=gpu_architecture(cluster),
        )
    except ValueError as error:
        raise PlanError(f"plan: {error}") from None


def rank_devices(plan: GroupPlan) -> tuple[int, ...]:
    """Return the device of every rank of the job that the plan describes.

    In the order `tp-cp-ep-pp-dp` the replicas of a stage lie a whole pipeline apart.
    """
    if plan.settings is None or plan.settings.order == ORDERS[0]:
        return plan.used
    stages = plan.stages[: plan.ranks]
    return tuple(
        d
        for replica in range(stages[0].dp)
        for stage in stages
        for d in stage.replicas[replica].devices
    )


def seats_of(
    each: int, nodes: Sequence[int], order: int, shape: tuple[int, int, int]
) -> NDArray[np.int64]:
    """Return the device of every rank, [pp, dp, tp x cp].

    Parameters
    ----------
    each: devices of a node. nodes: as ranks fill them. order: number in `ORDERS`. shape: pp, dp,
        tp x cp.
    """
    devices = (np.array(nodes)[:, None] * each + np.arange(each)).ravel()
    pp, dp, width = shape
    if order == 0:
        return devices.reshape(pp, dp, width)
    return devices.reshape(dp, pp, width).transpose(1, 0, 2)


def node_order(plan: GroupPlan, cluster: ClusterSpec) -> tuple[int, ...] | None:
    """Return the nodes in the order of a plan's ranks; None if ranks do not fill nodes."""
    if len({group.devices for group in cluster.nodes}) > 1:
        return None
    each = cluster.nodes[0].devices
    devices = rank_devices(plan)
    if devices == first_devices(len(devices)):  # as nearly always, and there may be many of them
        return first_devices(-(-len(devices) // each))
    order = [device // each for device in devices[::each]]
    expected = [node * each + i for node in order for i in range(each)]
    if len(set(order)) < len(order) or list(devices) != expected[: len(devices)]:
        return None
    return tuple(order)


def base_layout(model: Decoder, stages: int) -> PipelineLayout:
    """Return a layout of so many (virtual) stages, for values that do not depend on the layout."""
    return split_layout(
        [model.layers] + [0] * (stages - 1), prediction_layers=model.prediction_layers
    )


def spread(
    layers: Any,
    virtual: int,
    remainder: str = FIRST,
    *,
    embedding: bool = False,
    output: bool = False,
) -> tuple[Any, ...]:
    """Return how a rank's layers, a number or an array, are spread over its virtual stages: as
    evenly as possible.

    Parameters
    ----------
    remainder: the stages that take the remaining layers: the first ones, or the last ones but on
        the rank of the output; `ALONE`: likewise, and the embedding and the output have a stage
        each that has no layers. embedding, output: whether the rank has it.
    """
    alone = [bool(remainder == ALONE and edge) for edge in (embedding, output)]
    count = virtual - sum(alone)
    each, extra = divmod(layers, count)
    more = [each + (k < extra) for k in range(count)]
    if remainder != FIRST and not output:
        more.reverse()
    nothing = [0 * each]
    return (*nothing * alone[0], *more, *nothing * alone[1])


def virtual_sizes(
    ends: Sequence[int], virtual: int, layers: int, remainder: str = FIRST
) -> tuple[int, ...]:
    """Return the elements of every virtual stage, with each rank's number from `ends`.

    remainder: as in `spread`.
    """
    ranks = len(ends) - 1
    held = [min(stop, layers + 1) - max(start, 1) for start, stop in pairwise(ends)]
    sizes = [0] * (ranks * virtual)
    for rank, count in enumerate(held):
        edges = {"embedding": rank == 0, "output": rank == ranks - 1}
        sizes[rank::ranks] = spread(max(0, count), virtual, remainder, **edges)
    sizes[0] += 1
    sizes[-1] += 1
    return tuple(sizes)


def uncounted_settings(every: Iterable[Settings]) -> str:
    """Return why the independent checker cannot compute the costs of some settings; empty if it
    can."""
    for one in every:
        kernels, optimizer = one.kernels, one.optimizer
        reasons = {
            "adapters or frozen parts": one.tuning,
            "products in 8 or 4 bits": kernels.quantised,
            "CUDA graphs": kernels.graphs,
            "deferred gradients of the output": kernels.deferred_output,
            "kernels without Transformer Engine": kernels.implementation != "transformer_engine",
            "masks of the data loader": kernels.loader_mask,
            "a loss in chunks": kernels.chunked_loss,
            "states on the host, or in blocks": optimizer.offload or optimizer.moment_format,
            "optimizers but Adam": optimizer.name != "adam",
            "activations on the host": one.offload.layers or one.offload.modules,
            "divided checkpoints": one.recompute.distribute,
        }
        if found := next((text for text, holds in reasons.items() if holds), ""):
            return found
    return ""
