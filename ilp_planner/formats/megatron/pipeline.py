"""The layers of each pipeline stage, in Megatron-LM's arguments."""

from ilp_planner.formats.megatron.flags import Value
from ilp_planner.formats.megatron.hybrid import hybrid_layout
from ilp_planner.formats.megatron.values import MegatronArguments
from ilp_planner.specs.pipeline_layout import (
    PipelineLayout,
    is_even,
    read_layout,
    split_layout,
    write_layout,
)


def virtual_of(args: MegatronArguments, layers: int, pp: int) -> int:
    """Return virtual stages per pipeline rank, 1 for none; not of a layout."""
    if args.given("num_virtual_stages_per_pipeline_rank"):
        return max(1, args.whole("num_virtual_stages_per_pipeline_rank"))
    each = args.whole("num_layers_per_virtual_pipeline_stage")
    return max(1, (layers + sum(_accounts(args))) // pp // each) if each > 0 else 1


def stage_layers(args: MegatronArguments, layers: int, pp: int) -> list[int]:
    """Return the layers of every virtual stage in order, for arguments without a layout.

    Raises
    ------
    ValueError: the layers cannot be divided so.
    """
    virtual = virtual_of(args, layers, pp)
    first = args.whole("decoder_first_pipeline_num_layers")
    last = args.whole("decoder_last_pipeline_num_layers")
    embedding, loss = _accounts(args)
    if first or last:
        ranks = _uneven(layers, pp, first, last)
    else:
        ranks = [_share(layers + embedding + loss, pp, "layers")] * pp
    stages = [_share(rank, virtual, "layers of a stage") for rank in ranks] * virtual
    stages[0] -= embedding
    stages[-1] -= loss
    if min(stages) < 0:
        raise ValueError(f"{layers} layers are too few for {pp} x {virtual} stages")
    return stages


def layout_of(
    args: MegatronArguments, layers: int, pp: int, prediction_layers: int
) -> PipelineLayout:
    """Return the layout that the arguments mean."""
    if text := args.text("pipeline_model_parallel_layout"):
        return read_layout(text)
    if piped := hybrid_layout(args, pp, prediction_layers):
        return piped
    return split_layout(stage_layers(args, layers, pp), prediction_layers=prediction_layers)


def pipeline_values(layout: PipelineLayout, pp: int) -> dict[str, Value]:
    """Return the arguments of a layout: as few as possible, the text if it is uneven."""
    values: dict[str, Value] = {"pipeline_model_parallel_size": pp}
    virtual = len(layout.stages) // pp
    if is_even(layout, layout.stages[-1].prediction_layers):
        return values | ({"num_virtual_stages_per_pipeline_rank": virtual} if virtual > 1 else {})
    return values | {"pipeline_model_parallel_layout": write_layout(layout)}


def _accounts(args: MegatronArguments) -> tuple[int, int]:
    """Return 1 for the embedding and for the loss if each counts as a layer."""
    return (
        int(args.on("account_for_embedding_in_pipeline_split")),
        int(args.on("account_for_loss_in_pipeline_split")),
    )


def _uneven(layers: int, pp: int, first: int, last: int) -> list[int]:
    middle = pp - bool(first) - bool(last)
    rest = layers - first - last
    if middle == 0 and rest:
        raise ValueError(f"{rest} layers are left for no stage")
    each = _share(rest, middle, "layers of the middle stages") if middle else 0
    if rest <= 0 < middle:
        raise ValueError(f"no layers are left for {middle} stages")
    ranks = [each] * pp
    if first:
        ranks[0] = first
    if last:
        ranks[-1] = last
    return ranks


def _share(count: int, parts: int, what: str) -> int:
    if parts < 1 or count % parts:
        raise ValueError(f"{count} {what} are not divisible by {parts}")
    return count // parts
