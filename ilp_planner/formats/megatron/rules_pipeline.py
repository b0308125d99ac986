"""Megatron-LM's rules on pipeline stages: even, uneven, interleaved and by layout."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ilp_planner.formats.megatron.findings import (
    BUILD,
    CONFIG,
    NEVER,
    RUN,
    Finding,
)
from ilp_planner.formats.megatron.model import layers_of
from ilp_planner.formats.megatron.pipeline import layout_of, stage_layers
from ilp_planner.formats.megatron.rules_parallel import PP, model_size
from ilp_planner.formats.megatron.settings import granularity_of
from ilp_planner.specs.degrees import nearest_divisor, nearest_multiple
from ilp_planner.specs.pipeline_layout import balanced_layout, write_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.formats.megatron.values import MegatronArguments

EACH = "num_layers_per_virtual_pipeline_stage"
VIRTUAL = "num_virtual_stages_per_pipeline_rank"
LAYOUT = "pipeline_model_parallel_layout"
FIRST, LAST = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"
EMBEDDING = "account_for_embedding_in_pipeline_split"
LOSS = "account_for_loss_in_pipeline_split"
NAMES = {
    EACH: "--num-layers-per-virtual-pipeline-stage",
    VIRTUAL: "--num-virtual-stages-per-pipeline-rank",
    LAYOUT: "--pipeline-model-parallel-layout",
    FIRST: "--decoder-first-pipeline-num-layers",
    LAST: "--decoder-last-pipeline-num-layers",
    EMBEDDING: "--account-for-embedding-in-pipeline-split",
    LOSS: "--account-for-loss-in-pipeline-split",
}
PIPELINE = "--pipeline-model-parallel-size"
LONGEST = 1_000_000  # characters of a layout


def check_stages(a: MegatronArguments) -> Iterator[Finding]:
    """What `validate_args` asks of stages."""
    pp, layers = a.whole(PP), layers_of(a)
    given = [key for key in (EACH, VIRTUAL, LAYOUT) if a.given(key)]
    if len(given) > 1:
        yield Finding(
            flag=NAMES[given[0]],
            found=f"{' and '.join(NAMES[key] for key in given[1:])} with it",
            expected="no more than one of them",
        )
        return
    counted = layers + a.on(EMBEDDING) + a.on(LOSS)
    if a.given(LAYOUT):
        stages = _flat_layout(a.text(LAYOUT)).count("|") + 1
        if stages % pp:
            yield Finding(
                flag=NAMES[LAYOUT],
                found=f"{stages} stages",
                expected=f"a multiple of {PIPELINE} ({pp})",
                fix=f"{PIPELINE} {nearest_divisor(pp, stages)}",
                others=(_even_as_can_be(a, layers, pp),),
            )
    elif a.given(EACH):
        yield from _check_each(a, counted, pp)
    elif not a.given(VIRTUAL) and not (a.given(FIRST) or a.given(LAST)) and counted % pp:
        yield Finding(
            flag="--num-layers",
            found=_counted(a, layers),
            expected=f"a multiple of {PIPELINE} ({pp}) or {NAMES[LAYOUT]}",
            fix=_even_as_can_be(a, layers, pp),
            others=(f"{PIPELINE} {nearest_divisor(pp, counted)}",),
        )
    if _virtual(a) > 1:
        least = 2 if a.on("overlap_p2p_comm") else 3
        if pp < least:
            alone = "" if least == 2 else " with --no-overlap-p2p-communication"
            yield Finding(
                flag=PIPELINE,
                found=f"{pp} with virtual stages",
                expected=f"at least {least} for an interleaved schedule{alone}",
                fix=f"{PIPELINE} {least}",
            )


def _check_each(a: MegatronArguments, counted: int, pp: int) -> Iterator[Finding]:
    each = a.whole(EACH)
    if a.given(FIRST) or a.given(LAST):
        yield Finding(
            flag=NAMES[EACH],
            found=f"{NAMES[FIRST if a.given(FIRST) else LAST]} with it",
            expected=f"{NAMES[VIRTUAL]} for uneven pipelines",
        )
    elif each < 1:
        yield Finding(
            flag=NAMES[EACH], found=str(each), expected="at least 1", fix=f"{NAMES[EACH]} 1"
        )
    elif counted % pp:
        yield Finding(
            flag="--num-layers",
            found=_counted(a, layers_of(a)),
            expected=f"a multiple of {PIPELINE} ({pp})",
            fix=f"{PIPELINE} {nearest_divisor(pp, counted)}",
            others=(_even_as_can_be(a, layers_of(a), pp),),
        )
    elif (counted // pp) % each:
        yield Finding(
            flag=NAMES[EACH],
            found=str(each),
            expected=f"a divisor of the {counted // pp} layers of a pipeline rank (virtual "
            "pipeline stages must be equal)",
            fix=f"{NAMES[EACH]} {nearest_divisor(each, counted // pp)}",
        )


def check_split(a: MegatronArguments) -> Iterator[Finding]:
    """What `TransformerConfig` asks of stages."""
    uneven = [key for key in (FIRST, LAST) if a[key] is not None]
    accounts = [key for key in (EMBEDDING, LOSS) if a.on(key)]
    if uneven and accounts:
        yield Finding(
            flag=NAMES[uneven[0]],
            found=f"{NAMES[accounts[0]]} with it",
            expected="one of them",
            stage=CONFIG,
        )
    if a.given(LAYOUT):
        if uneven or accounts:
            yield Finding(
                flag=NAMES[LAYOUT],
                found=f"{', '.join(NAMES[key] for key in uneven + accounts)} with it",
                expected="the layout alone",
                stage=CONFIG,
            )
        yield from _check_layout(a)
    elif uneven:
        yield from _check_uneven(a)
    elif accounts and a.given(VIRTUAL):
        yield from _check_counted(a)


def _check_uneven(a: MegatronArguments) -> Iterator[Finding]:
    """First and last rank have their own numbers, the rest is divided evenly."""
    pp, layers, virtual = a.whole(PP), layers_of(a), _virtual(a)
    middle = pp
    for key in (FIRST, LAST):
        count = a[key]
        if not isinstance(count, int):
            continue
        if count <= 0:
            yield Finding(flag=NAMES[key], found=str(count), expected="larger than 0", stage=CONFIG)
            return
        if count % virtual:
            yield Finding(
                flag=NAMES[key],
                found=str(count),
                expected=f"a multiple of {NAMES[VIRTUAL]} ({virtual})",
                stage=CONFIG,
                fix=f"{NAMES[key]} {nearest_multiple(count, virtual)}",
            )
            return
        layers -= count
        middle -= 1
    key = FIRST if a.given(FIRST) else LAST
    if bool(layers) != bool(middle):
        yield Finding(
            flag=NAMES[key],
            found=f"{layers} layers left for {middle} middle stages",
            expected=f"layers and stages that fit --num-layers and {PIPELINE}",
            stage=CONFIG,
            fix=_even_as_can_be(a, layers_of(a), pp),
        )
    elif middle and (layers % middle or layers < 0):
        yield Finding(
            flag=NAMES[key],
            found=f"{layers} layers left for {middle} middle stages (middle pipeline model "
            "parallel size)",
            expected="a multiple",
            stage=CONFIG,
            fix=_even_as_can_be(a, layers_of(a), pp),
        )
    elif middle and layers // middle % virtual:
        yield Finding(
            flag=NAMES[VIRTUAL],
            found=str(virtual),
            expected=f"a divisor of the {layers // middle} layers of a middle rank",
            stage=CONFIG,
        )


def _check_counted(a: MegatronArguments) -> Iterator[Finding]:
    """Embedding or loss count as layers, and ranks have virtual stages."""
    pp, virtual = a.whole(PP), _virtual(a)
    counted = layers_of(a) + a.on(EMBEDDING) + a.on(LOSS)
    if counted % pp:
        yield Finding(
            flag="--num-layers",
            found=_counted(a, layers_of(a)),
            expected=f"a multiple of {PIPELINE} ({pp})",
            stage=CONFIG,
            fix=_even_as_can_be(a, layers_of(a), pp),
        )
    elif counted // pp % virtual:
        yield Finding(
            flag=NAMES[VIRTUAL],
            found=str(virtual),
            expected=f"a divisor of the {counted // pp} layers of a rank, embedding and loss "
            "counted",
            stage=CONFIG,
            fix=f"{NAMES[VIRTUAL]} {nearest_divisor(virtual, counted // pp)}",
        )


def _check_layout(a: MegatronArguments) -> Iterator[Finding]:
    """A layout has everything once, in order, and all layers."""
    text, pp, layers = a.text(LAYOUT), a.whole(PP), layers_of(a)
    flat = _flat_layout(text)
    stages = flat.split("|")
    line = flat.replace("|", "")
    prediction = a.whole("mtp_num_layers")

    def broken(found: str, expected: str, fix: str = "") -> Finding:
        return Finding(flag=NAMES[LAYOUT], found=found, expected=expected, stage=CONFIG, fix=fix)

    if unknown := re.sub(r"[Etm|L]", "", flat):
        yield broken(f"{unknown[0]!r} in {text}", "E, t, m, L, | and x*n or (..)*n only")
        return
    if len(stages) % pp:
        return  # said already
    if not line.startswith("E") or line.count("E") != 1:
        yield broken(text, "one embedding, E, first")
    elif not line.endswith("L") or line.count("L") != 1:
        yield broken(text, "one loss, L, last")
    elif line.count("t") != layers:
        yield broken(
            f"{line.count('t')} decoder layers",
            f"--num-layers ({layers})",
            f"--num-layers {line.count('t')}",
        )
    elif line.count("m") != prediction:
        yield broken(
            f"{line.count('m')} prediction layers",
            f"--mtp-num-layers ({prediction})",
            f"--mtp-num-layers {line.count('m')}",
        )
    elif "m" in line and "t" in line[line.index("m") :]:
        yield broken("layers behind a prediction layer", "prediction layers, m, last")
    elif prediction:
        holders = [k for k, stage in enumerate(stages) if "m" in stage]
        if len(holders) > 1:
            yield broken("prediction layers in several stages", "all of them in one")
        elif holders[0] // pp != len(stages) // pp - 1:
            yield broken(
                "prediction layers before the last virtual stage of their rank",
                "them in the last one",
            )


def check_built_stages(a: MegatronArguments) -> Iterator[Finding]:
    """What only building the model shows of stages."""
    pp, layers, virtual = a.whole(PP), layers_of(a), _virtual(a)
    if a.given(LAYOUT) or a.given(EACH):
        return
    counted = layers + a.on(EMBEDDING) + a.on(LOSS)
    uneven = a.given(FIRST) or a.given(LAST)
    if a.given(VIRTUAL) and not uneven and not (a.on(EMBEDDING) or a.on(LOSS)):
        if counted % pp:
            yield Finding(
                flag="--num-layers",
                found=str(layers),
                expected=f"a multiple of {PIPELINE} ({pp})",
                stage=BUILD,
                fix=_even_as_can_be(a, layers, pp),
            )
            return
        if counted // pp % virtual:
            yield Finding(
                flag=NAMES[VIRTUAL],
                found=str(virtual),
                expected=f"a divisor of the {counted // pp} layers of a rank (vp_size)",
                stage=BUILD,
                fix=f"{NAMES[VIRTUAL]} {nearest_divisor(virtual, counted // pp)}",
            )
            return
    if not uneven and counted % pp == 0 and counted // pp % virtual == 0:
        each = counted // pp // virtual
        needed = (a.on(EMBEDDING) + a.on(LOSS)) if pp * virtual == 1 else 1
        if (a.on(EMBEDDING) or a.on(LOSS)) and each < needed:
            yield Finding(
                flag="--num-layers",
                found=str(layers),
                expected="enough layers for the first and the last stage",
                stage=BUILD,
            )


def check_interleaving(a: MegatronArguments) -> Iterator[Finding]:
    """What the interleaved schedule asks of micro-batches when it starts.

    Source: `forward_backward_pipelining_with_interleaving` in
    `megatron/core/pipeline_parallel/schedules.py`.
    """
    pp, virtual = a.whole(PP), _virtual(a)
    micro = a.whole("micro_batch_size")
    if virtual < 2 or pp < 2 or not micro:
        return
    dp = max(1, a.world // model_size(a))
    whole = a.whole("global_batch_size") or micro * dp
    batches = whole // (micro * dp)
    group = a.whole("microbatch_group_size_per_vp_stage") or pp
    flag = "--microbatch-group-size-per-virtual-pipeline-stage"
    if not pp <= group <= batches:
        given = a.given("microbatch_group_size_per_vp_stage")
        more = f"--global-batch-size {max(pp, group) * micro * dp}"
        yield Finding(
            flag=flag if given else "--global-batch-size",
            found=str(group) if given else f"{whole}, which makes {batches} micro-batches",
            expected=f"from {PIPELINE} ({pp}) to the number of micro-batches ({batches})"
            if given
            else f"at least {PIPELINE} ({pp}) of them for an interleaved schedule",
            stage=RUN,
            fix=f"{flag} {pp}" if given and pp <= batches else more,
        )
    elif 0 < batches % group < pp:
        yield Finding(
            flag="--global-batch-size",
            found=f"{whole}, which makes {batches} micro-batches with {batches % group} left over "
            f"from groups of {group}",
            expected=f"a remainder of 0 or at least {PIPELINE} ({pp}) for an interleaved schedule",
            stage=RUN,
            fix=f"--global-batch-size {nearest_multiple(batches, group) * micro * dp}",
        )


def check_recomputed_layers(a: MegatronArguments) -> Iterator[Finding]:
    """Recomputation counts the layers of one virtual stage.

    Source: `_checkpointed_forward` of `TransformerBlock`: `uniform` reads beyond the last layer
    where its groups do not come out even, `block` stops silently at the last layer.
    """
    if granularity_of(a) != "full" or not a.given("recompute_num_layers"):
        return
    count = a.whole("recompute_num_layers")
    try:
        counts = _held_layers(a)
    except ValueError:
        return
    flag = "--recompute-num-layers"
    if count < 1:
        yield Finding(
            flag=flag, found=str(count), expected="at least 1", stage=RUN, fix=f"{flag} 1"
        )
    elif a.text("recompute_method") == "uniform":
        if odd := [n for n in counts if n % count]:
            yield Finding(
                flag=flag,
                found=str(count),
                expected=f"a divisor of the {odd[0]} layers of a stage for --recompute-method "
                "uniform",
                stage=RUN,
                fix=f"{flag} {nearest_divisor(count, *(n for n in counts if n))}",
            )
    elif count > max(counts):
        yield Finding(
            flag=flag,
            found=str(count),
            expected=f"at most the {max(counts)} layers of a stage",
            stage=NEVER,
            fix=f"{flag} {max(counts)}",
        )


def _held_layers(a: MegatronArguments) -> list[int]:
    pp = a.whole(PP)
    if a.given(LAYOUT):
        layout = layout_of(a, layers_of(a), pp, 0)
        return [stage.layers for stage in layout.stages]
    return stage_layers(a, layers_of(a), pp)


def _virtual(a: MegatronArguments) -> int:
    """Return Megatron's virtual stages per rank, 1 for none."""
    pp = a.whole(PP)
    if a.given(LAYOUT):
        stages = _flat_layout(a.text(LAYOUT)).count("|") + 1
        return stages // pp if stages % pp == 0 else 1
    if a.given(VIRTUAL):
        return max(1, a.whole(VIRTUAL))
    if a.whole(EACH) > 0:
        counted = layers_of(a) + a.on(EMBEDDING) + a.on(LOSS)
        return max(1, counted // pp // a.whole(EACH))
    return 1


def _flat_layout(text: str) -> str:
    """Return a layout with its repeats written out, in the two passes that Megatron makes."""
    flat = text.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        if any(len(m[1]) * int(m[2][:8]) > LONGEST for m in re.finditer(pattern, flat)):
            return text
        flat = re.sub(pattern, lambda match: match[1] * int(match[2]), flat)
    return flat


def _counted(a: MegatronArguments, layers: int) -> str:
    extra = [name for key, name in ((EMBEDDING, "embedding"), (LOSS, "loss")) if a.on(key)]
    return f"{layers} + {' + '.join(extra)}" if extra else str(layers)


def _even_as_can_be(a: MegatronArguments, layers: int, pp: int) -> str:
    """Return the layout that spreads the layers as evenly as can be, alone as Megatron wants it."""
    stages = pp * max(1, a.whole(VIRTUAL))
    layout = balanced_layout(layers, stages, prediction_layers=a.whole("mtp_num_layers"))
    others = [NAMES[key] for key in NAMES if key != LAYOUT and a[key]]
    without = f" without {' and '.join(others)}" if others else ""
    return f"{NAMES[LAYOUT]} '{write_layout(layout)}'{without}"
