"""Megatron-LM's rules on pipeline stages: even, uneven, interleaved and by layout."""

import re
from collections.abc import Iterator

from ilp_planner.base.units import counted
from ilp_planner.formats.megatron.flags import flag_of
from ilp_planner.formats.megatron.hybrid import PATTERN, piped_stages
from ilp_planner.formats.megatron.model import layers_of
from ilp_planner.formats.megatron.pipeline import layout_of, stage_layers, virtual_of
from ilp_planner.formats.megatron.repairs import Finding, built, config, found, never, run
from ilp_planner.formats.megatron.rules_parallel import model_size
from ilp_planner.formats.megatron.settings import granularity_of
from ilp_planner.formats.megatron.values import PP, MegatronArguments
from ilp_planner.specs.degrees import divisors, nearest_divisor, nearest_multiple
from ilp_planner.specs.pipeline_layout import balanced_layout, write_layout

EACH = "num_layers_per_virtual_pipeline_stage"
VIRTUAL = "num_virtual_stages_per_pipeline_rank"
LAYOUT = "pipeline_model_parallel_layout"
FIRST, LAST = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"
EMBEDDING = "account_for_embedding_in_pipeline_split"
LOSS = "account_for_loss_in_pipeline_split"
SPLITS = (EACH, VIRTUAL, LAYOUT, FIRST, LAST, EMBEDDING, LOSS)
PIPELINE = "--pipeline-model-parallel-size"
LONGEST = 1_000_000  # characters of a layout


def check_stages(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of `validate_args` on stages."""
    pp, layers = a.whole(PP), layers_of(a)
    given = [key for key in (EACH, VIRTUAL, LAYOUT) if a.given(key)]
    if len(given) > 1:
        yield found(
            given[0], f"{' and '.join(flag_of(key) for key in given[1:])} with it"
        ).expected("no more than one of them")
        return
    counted = layers + a.on(EMBEDDING) + a.on(LOSS)
    if stages := piped_stages(a):
        if stages % pp:
            yield found(flag_of(PATTERN), f"{stages} stages").expected(
                f"a multiple of {PIPELINE} ({pp})", f"{PIPELINE} {nearest_divisor(pp, stages)}"
            )
        if given:
            yield found(given[0], f"{flag_of(PATTERN)} with stages").expected("one of them")
    elif a.given(LAYOUT):
        stages = flat_layout(a.text(LAYOUT)).count("|") + 1
        if stages % pp:
            yield found(LAYOUT, f"{stages} stages").expected(
                f"a multiple of {PIPELINE} ({pp})",
                f"{PIPELINE} {nearest_divisor(pp, stages)}",
                _even_as_can_be(a, layers, pp),
            )
    elif a.given(EACH):
        yield from _check_each(a, counted, pp)
    elif not a.given(VIRTUAL) and not (a.given(FIRST) or a.given(LAST)) and counted % pp:
        yield found("--num-layers", _counted(a, layers)).expected(
            f"a multiple of {PIPELINE} ({pp}) or {flag_of(LAYOUT)}",
            _even_as_can_be(a, layers, pp),
            f"{PIPELINE} {nearest_divisor(pp, counted)}",
        )
    if virtual_stages(a) > 1:
        least = 2 if a.on("overlap_p2p_comm") else 3
        if pp < least:
            alone = "" if least == 2 else " with --no-overlap-p2p-communication"
            stages = virtual_stages(a) * pp
            fitting = [n for n in divisors(stages) if n >= least and a.given(LAYOUT)]
            every = ", ".join(map(str, fitting))
            dealt = f", one of {every}, to which the {stages} stages of the layout can be dealt"
            yield found(PIPELINE, f"{pp} with virtual stages").expected(
                f"at least {least} for an interleaved schedule{alone}{dealt * bool(fitting)}",
                f"{PIPELINE} {(fitting or [least])[-1]}",
            )


def _check_each(a: MegatronArguments, counted: int, pp: int) -> Iterator[Finding]:
    each = a.whole(EACH)
    if a.given(FIRST) or a.given(LAST):
        yield found(EACH, f"{flag_of(FIRST if a.given(FIRST) else LAST)} with it").expected(
            f"{flag_of(VIRTUAL)} for uneven pipelines"
        )
    elif each < 1:
        yield found(EACH, each).expected("at least 1", f"{flag_of(EACH)} 1")
    elif counted % pp:
        yield found("--num-layers", _counted(a, layers_of(a))).expected(
            f"a multiple of {PIPELINE} ({pp})",
            f"{PIPELINE} {nearest_divisor(pp, counted)}",
            _even_as_can_be(a, layers_of(a), pp),
        )
    elif (counted // pp) % each:
        yield found(EACH, each).expected(
            f"a divisor of the {counted // pp} layers of a pipeline rank (virtual "
            "pipeline stages must be equal)",
            f"{flag_of(EACH)} {nearest_divisor(each, counted // pp)}",
        )


def check_split(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of `TransformerConfig` on stages."""
    uneven = [key for key in (FIRST, LAST) if a[key] is not None]
    accounts = [key for key in (EMBEDDING, LOSS) if a.on(key)]
    if uneven and accounts:
        yield config(uneven[0], f"{flag_of(accounts[0])} with it").expected("one of them")
    if a.given(LAYOUT):
        if uneven or accounts:
            yield config(
                LAYOUT, f"{', '.join(flag_of(key) for key in uneven + accounts)} with it"
            ).expected("the layout alone")
        yield from _check_layout(a)
    elif uneven:
        yield from _check_uneven(a)
    elif accounts and a.given(VIRTUAL):
        yield from _check_counted(a)


def _check_uneven(a: MegatronArguments) -> Iterator[Finding]:
    """First and last rank have their own numbers, the rest is divided evenly."""
    pp, layers, virtual = a.whole(PP), layers_of(a), virtual_stages(a)
    middle = pp
    for key in (FIRST, LAST):
        count = a[key]
        if not isinstance(count, int):
            continue
        if count <= 0:
            yield config(key, count).expected("larger than 0")
            return
        if count % virtual:
            yield config(key, count).multiple(virtual, flag_of(VIRTUAL))
            return
        layers -= count
        middle -= 1
    key = FIRST if a.given(FIRST) else LAST
    if bool(layers) != bool(middle):
        yield config(key, f"{layers} layers left for {middle} middle stages").expected(
            f"layers and stages that fit --num-layers and {PIPELINE}",
            _even_as_can_be(a, layers_of(a), pp),
        )
    elif middle and (layers % middle or layers < 0):
        yield config(
            key,
            f"{layers} layers left for {middle} middle stages (middle pipeline model "
            "parallel size)",
        ).expected("a multiple", _even_as_can_be(a, layers_of(a), pp))
    elif middle and layers // middle % virtual:
        yield config(VIRTUAL, virtual).expected(
            f"a divisor of the {layers // middle} layers of a middle rank"
        )


def _check_counted(a: MegatronArguments) -> Iterator[Finding]:
    """Embedding or loss count as layers, and ranks have virtual stages."""
    pp, virtual = a.whole(PP), virtual_stages(a)
    counted = layers_of(a) + a.on(EMBEDDING) + a.on(LOSS)
    if counted % pp:
        yield config("--num-layers", _counted(a, layers_of(a))).expected(
            f"a multiple of {PIPELINE} ({pp})", _even_as_can_be(a, layers_of(a), pp)
        )
    elif counted // pp % virtual:
        yield config(VIRTUAL, virtual).expected(
            f"a divisor of the {counted // pp} layers of a rank, embedding and loss counted",
            f"{flag_of(VIRTUAL)} {nearest_divisor(virtual, counted // pp)}",
        )


def _check_layout(a: MegatronArguments) -> Iterator[Finding]:
    """A layout has everything once, in order, and all layers."""
    text, pp, layers = a.text(LAYOUT), a.whole(PP), layers_of(a)
    flat = flat_layout(text)
    stages = flat.split("|")
    line = flat.replace("|", "")
    prediction = a.whole("mtp_num_layers")

    if unknown := re.sub(r"[Etm|L]", "", flat):
        yield config(LAYOUT, f"{unknown[0]!r} in {text}").expected(
            "E, t, m, L, | and x*n or (..)*n only"
        )
        return
    if len(stages) % pp:
        return  # said already
    if not line.startswith("E") or line.count("E") != 1:
        yield config(LAYOUT, text).expected("one embedding, E, first")
    elif not line.endswith("L") or line.count("L") != 1:
        yield config(LAYOUT, text).expected("one loss, L, last")
    elif line.count("t") != layers:
        yield config(LAYOUT, f"{line.count('t')} decoder layers").expected(
            f"--num-layers ({layers})", f"--num-layers {line.count('t')}"
        )
    elif line.count("m") != prediction:
        yield config(LAYOUT, f"{line.count('m')} prediction layers").expected(
            f"--mtp-num-layers ({prediction})", f"--mtp-num-layers {line.count('m')}"
        )
    elif "m" in line and "t" in line[line.index("m") :]:
        yield config(LAYOUT, "layers behind a prediction layer").expected(
            "prediction layers, m, last"
        )
    elif prediction:
        holders = [k for k, stage in enumerate(stages) if "m" in stage]
        if len(holders) > 1:
            yield config(LAYOUT, "prediction layers in several stages").expected(
                "all of them in one"
            )
        elif holders[0] // pp != len(stages) // pp - 1:
            yield config(
                LAYOUT, "prediction layers before the last virtual stage of their rank"
            ).expected("them in the last one")


def check_built_stages(a: MegatronArguments) -> Iterator[Finding]:
    """Faults of stages that appear when the model is built."""
    pp, layers, virtual = a.whole(PP), layers_of(a), virtual_stages(a)
    if a.given(LAYOUT) or a.given(EACH) or piped_stages(a):
        return
    counted = layers + a.on(EMBEDDING) + a.on(LOSS)
    uneven = a.given(FIRST) or a.given(LAST)
    if a.given(VIRTUAL) and not uneven and not (a.on(EMBEDDING) or a.on(LOSS)):
        if counted % pp:
            yield built("--num-layers", layers).expected(
                f"a multiple of {PIPELINE} ({pp})", _even_as_can_be(a, layers, pp)
            )
            return
        if counted // pp % virtual:
            yield built(VIRTUAL, virtual).expected(
                f"a divisor of the {counted // pp} layers of a rank (vp_size)",
                f"{flag_of(VIRTUAL)} {nearest_divisor(virtual, counted // pp)}",
            )
            return
    if not uneven and counted % pp == 0 and counted // pp % virtual == 0:
        each = counted // pp // virtual
        needed = (a.on(EMBEDDING) + a.on(LOSS)) if pp * virtual == 1 else 1
        if (a.on(EMBEDDING) or a.on(LOSS)) and each < needed:
            yield built("--num-layers", layers).expected(
                "enough layers for the first and the last stage"
            )


def check_interleaving(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of the interleaved schedule on micro-batches when it starts.

    Source: `forward_backward_pipelining_with_interleaving` in
    `megatron/core/pipeline_parallel/schedules.py`.
    """
    pp, virtual = a.whole(PP), virtual_stages(a)
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
        yield run(
            flag if given else "--global-batch-size",
            str(group) if given else f"{whole}, which makes {counted(batches, 'micro-batch')}",
        ).expected(
            f"from {PIPELINE} ({pp}) to the number of micro-batches ({batches})"
            if given
            else f"at least {PIPELINE} ({pp}) of them for an interleaved schedule",
            f"{flag} {pp}" if given and pp <= batches else more,
        )
    elif 0 < batches % group < pp:
        yield run(
            "--global-batch-size",
            f"{whole}, which makes {counted(batches, 'micro-batch')} with {batches % group} left "
            f"over from groups of {group}",
        ).expected(
            f"a remainder of 0 or at least {PIPELINE} ({pp}) for an interleaved schedule",
            f"--global-batch-size {nearest_multiple(batches, group) * micro * dp}",
        )


def check_recomputed_layers(a: MegatronArguments) -> Iterator[Finding]:
    """Recomputation counts the layers of one virtual stage.

    Source: `_checkpointed_forward` of `TransformerBlock`: `uniform` reads beyond the last layer if
    its groups do not come out even, `block` stops silently at the last layer.
    """
    if granularity_of(a) != "full" or not a.given("recompute_num_layers"):
        return
    count = a.whole("recompute_num_layers")
    try:
        counts = _held_layers(a)
    except ValueError:
        return
    flag = "--recompute-num-layers"
    if count < 1 and (count < 0 or a.text("recompute_method") != "block"):
        yield run(flag, count).expected("at least 1", f"{flag} 1")
    elif a.text("recompute_method") == "uniform":
        if odd := [n for n in counts if n % count]:
            yield run(flag, count).expected(
                f"a divisor of the {odd[0]} layers of a stage for --recompute-method uniform",
                f"{flag} {nearest_divisor(count, *(n for n in counts if n))}",
            )
    elif count > max(counts):
        yield never(flag, count).expected(
            f"at most the {max(counts)} layers of a stage", f"{flag} {max(counts)}"
        )


def _held_layers(a: MegatronArguments) -> list[int]:
    pp = a.whole(PP)
    if a.given(LAYOUT) or piped_stages(a):
        layout = layout_of(a, layers_of(a), pp, 0)
        return [stage.layers for stage in layout.stages]
    return stage_layers(a, layers_of(a), pp)


def virtual_stages(a: MegatronArguments) -> int:
    """Return Megatron's virtual stages per rank, 1 for none."""
    pp = a.whole(PP)
    if a.given(LAYOUT) or piped_stages(a):
        stages = piped_stages(a) or flat_layout(a.text(LAYOUT)).count("|") + 1
        return stages // pp if stages % pp == 0 else 1
    return virtual_of(a, layers_of(a), pp)


def flat_layout(text: str) -> str:
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
    others = [flag_of(key) for key in SPLITS if key != LAYOUT and a[key]]
    without = f" without {' and '.join(others)}" if others else ""
    return f"{flag_of(LAYOUT)} '{write_layout(layout)}'{without}"
