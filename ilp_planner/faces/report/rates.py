"""The rates and prices of a plan, in lines and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.units import DAY, GIGA, HOUR, TERA, counted, format_percent
from ilp_planner.faces.report.parallelism import parallelism, parallelism_lines, parallelism_object
from ilp_planner.spaces.throughput import throughput
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.images import image_load, images_of_documents
from ilp_planner.specs.lengths import FULL, GROUPED, JOINED, LONGEST, PACKED
from ilp_planner.specs.prices import hourly_price, nodes_of
from ilp_planner.specs.sounds import SoundEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan
    from ilp_planner.spaces.throughput import Throughput
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.images import AnyEncoder
    from ilp_planner.specs.lengths import Lengths


WORTH = (
    "parallelism", "throughput", "price_per_hour", "price_per_iteration", "price_per_1e9_tokens",
    "run",
)  # fmt: skip

FELT = 0.05  # share of an iteration in which GPUs wait for the host, that is worth a line
OF_HOST = "as it starts kernels one by one; more tokens in a micro-batch hide that"


def rates_object(done: Throughput | None) -> dict[str, float | None] | None:
    """Return rates as JSON: null if nothing is known; token rates also if samples have none."""
    if done is None:
        return None
    return {
        "gpus": done.devices,
        "samples_per_s": done.samples,
        "samples_per_s_per_gpu": done.samples / done.devices,
        "tokens_per_s": done.tokens or None,
        "tokens_per_s_per_gpu": done.tokens / done.devices or None,
        "tflops_per_gpu": done.flops / TERA,
        "mfu": done.mfu,
        "hfu": done.hfu,
        "bubble": done.bubble,
        "busy": done.busy,
        "padding": done.padding,
        "host": done.host,
    }


def rates_lines(done: Throughput | None, precision: str) -> list[tuple[str, str]]:
    """Say the same: `63,700 tokens/s, 995 per GPU; 451 TFLOP/s per GPU ...`.

    precision: of training; shares are of its peak.
    """
    if done is None:
        return []
    rate, unit = (done.tokens, "tokens") if done.tokens else (done.samples, "samples")
    text = f"{three_digits(rate)} {unit}/s, {three_digits(rate / done.devices)} per GPU; "
    text += f"{three_digits(done.flops / TERA)} TFLOP/s per GPU"
    lines = [("throughput", text)]
    if shares := list(_shares(done, precision)):
        lines.append(("utilisation", ", ".join(shares)))
    if felt(done.host):
        share = format_percent(done.host or 0.0)
        text = f"GPUs wait for the host in {share} of the iteration, {OF_HOST}"
        if done.graphs:
            text += f", and CUDA graphs (`--cuda-graphs {done.graphs}`)"
        lines.append(("host", text))
    return lines


def felt(host: float | None) -> bool:
    """Tell whether the share of an iteration in which GPUs wait for the host is worth a line."""
    return host is not None and host >= FELT


def _shares(done: Throughput, precision: str) -> Iterator[str]:
    if done.mfu is not None:
        hardware = "" if done.hfu is None else f", HFU {format_percent(done.hfu)}"
        yield f"MFU {format_percent(done.mfu)}{hardware} of the {precision} peak"
    if done.bubble is not None:
        yield f"bubble {format_percent(done.bubble)} of the iteration"
    yield f"slowest stages busy {format_percent(done.busy)}"


class Figure(NamedTuple):
    """A number with its name. note: its subject. value: in a fixed unit, nan if the ratio of two
    plans' numbers says nothing."""

    name: str
    text: str
    note: str = ""
    value: float = math.nan


def rate_figures(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> Iterator[Figure]:
    """Yield the rates of a plan one by one; nothing if none is known."""
    done = throughput(problem, plan, evaluation)
    if done is None:
        return
    rate, unit = (done.tokens, "tokens/s") if done.tokens else (done.samples, "samples/s")
    yield Figure(unit, three_digits(rate), "of all devices", rate)
    each = rate / done.devices
    yield Figure(f"{unit} per GPU", three_digits(each), "", each)
    flops = done.flops / TERA
    yield Figure("TFLOP/s per GPU", three_digits(flops), "of the model", flops)
    assert problem.spec is not None
    peak = f"of the {problem.spec.precision} peak"
    for name, share, note in (
        ("MFU", done.mfu, peak),
        ("HFU", done.hfu, f"{peak}, with what is computed again"),
        ("bubble", done.bubble, "of the iteration"),
    ):
        if share is not None:
            yield Figure(name, format_percent(share), note)


def three_digits(number: float) -> str:
    """Return three significant digits, thousands grouped."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def worth_object(
    problem: Problem[Any],
    plan: AnyPlan,
    evaluation: Evaluation | None,
    tokens: float | None = None,
    *,
    bubble: float | None = None,
) -> dict[str, Any]:
    """Return a plan in the numbers that people talk in: Megatron's words, rates, prices, and a
    training run.

    Parameters
    ----------
    tokens: of the run; None: nothing is said of one. bubble: if another schedule than the plan's
        was run.
    """
    run = run_in(problem, plan, evaluation, tokens) if tokens else None
    return {
        "parallelism": parallelism_object(parallelism(problem, plan, evaluation)),
        "throughput": rates_object(_done(problem, plan, evaluation, bubble)),
        **price_object(price_of(problem, plan, evaluation)),
        "run": run_object(run),
    }


def worth_lines(
    problem: Problem[Any],
    plan: AnyPlan,
    evaluation: Evaluation,
    tokens: float | None = None,
    *,
    bubble: float | None = None,
) -> list[tuple[str, str]]:
    """Say the same."""
    run = run_in(problem, plan, evaluation, tokens) if tokens else None
    precision = "" if problem.spec is None else problem.spec.precision
    return [
        *parallelism_lines(parallelism(problem, plan, evaluation)),
        *rates_lines(_done(problem, plan, evaluation, bubble), precision),
        *samples_of_plan(problem, plan),
        *price_lines(price_of(problem, plan, evaluation)),
        *run_lines(run),
    ]


def _done(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation | None, bubble: float | None
) -> Throughput | None:
    done = None if evaluation is None else throughput(problem, plan, evaluation)
    return done if done is None or bubble is None else done._replace(bubble=bubble)


class Price(NamedTuple):
    """The price of a plan, in the currency of its cluster.

    hourly: of all nodes that it uses, whole. nodes: how many these are. once: of an iteration.
    tokens: of 10^9 tokens; None if samples have none, or the model is not known.
    """

    hourly: float
    nodes: int
    once: float
    tokens: float | None


class Run(NamedTuple):
    """Training on so many tokens. price: of all nodes in use, None if it is not known."""

    tokens: float
    seconds: float
    price: float | None

    @property
    def days(self) -> float:
        """How many days it takes."""
        return self.seconds / DAY


def price_of_tokens(hourly: float, rate: float) -> float:
    """Return the price of 10^9 tokens. hourly: price per hour. rate: tokens per second."""
    return hourly / HOUR / rate * GIGA


def run_of(tokens: float, rate: float, hourly: float | None) -> Run:
    """Return the days and the price of training on so many tokens.

    Parameters
    ----------
    rate: tokens per second. hourly: price per hour; None: not known.
    """
    seconds = tokens / rate
    return Run(tokens, seconds, None if hourly is None else hourly * seconds / HOUR)


def price_of(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation | None) -> Price | None:
    """Return the price of a plan; None if a price or the plan's time is unknown."""
    if evaluation is None or evaluation.cost is None:
        return None
    used = nodes_of(problem.cluster, plan.used)
    hourly = hourly_price(problem.cluster, used)
    if hourly is None:
        return None
    done = throughput(problem, plan, evaluation)
    rate = 0.0 if done is None else done.tokens
    return price_in(evaluation.iteration_time, hourly, len(used), rate)


def price_in(seconds: float, hourly: float, nodes: int, rate: float) -> Price:
    """Return the price of an iteration of so many seconds, and of tokens at so many per second, 0
    if samples have none. hourly: price per hour of all the nodes."""
    tokens = price_of_tokens(hourly, rate) if rate else None
    return Price(hourly, nodes, hourly * seconds / HOUR, tokens)


def price_lines(price: Price | None) -> list[tuple[str, str]]:
    """Say the price of a plan; nothing if it is unknown."""
    if price is None:
        return []
    text = f"{price.hourly:,.2f} per hour for {counted(price.nodes, 'node')}, "
    text += f"{price.once:.4g} per iteration"
    if price.tokens is not None:
        text += f", {price.tokens:,.2f} per 10^9 tokens"
    return [("price", text)]


def price_object(price: Price | None) -> dict[str, float | None]:
    """Return the price of a plan; null if that is not known."""
    return {
        "price_per_hour": None if price is None else price.hourly,
        "price_per_iteration": None if price is None else price.once,
        "price_per_1e9_tokens": None if price is None else price.tokens,
    }


def run_in(
    problem: Problem[Any], plan: AnyPlan | None, evaluation: Evaluation | None, tokens: float
) -> Run | None:
    """Return how long a plan trains on so many tokens, and the price; None without a plan, if
    samples have no tokens, or if the model's dimensions are unknown."""
    done = None if plan is None or evaluation is None else throughput(problem, plan, evaluation)
    if plan is None or done is None or not done.tokens:
        return None
    price = price_of(problem, plan, evaluation)
    return run_of(tokens, done.tokens, None if price is None else price.hourly)


def run_object(run: Run | None) -> dict[str, float | None] | None:
    """Return days, and the price if it is known; null if there is nothing to say."""
    if run is None:
        return None
    return {"tokens": run.tokens, "seconds": run.seconds, "days": run.days, "price": run.price}


def run_lines(run: Run | None) -> list[tuple[str, str]]:
    """Say the same."""
    if run is None:
        return []
    cost = "" if run.price is None else f" and cost {run.price:,.0f}"
    return [("run", f"{run.tokens:g} tokens take {run.days:,.2f} days{cost}")]


# How samples are made, in words.
# Samples, and their making: images, or documents of different lengths, and what packing gains.

WORDS = {
    PACKED: "packed",
    JOINED: "joined and cut",
    LONGEST: "a document each, padded to the longest of its micro-batch",
    GROUPED: "a document each, sorted in groups, padded to the longest of its micro-batch",
    FULL: "a document each, padded to the sequence length",
}


def samples_of_plan(problem: Problem[Any], plan: AnyPlan) -> list[tuple[str, str]]:
    """Say the samples of a plan, if they have images or are made of documents."""
    model = None if problem.spec is None else as_decoder(problem.spec.architecture)
    if model is None:
        return []
    if plan.settings is not None:
        model = model.on_ranks(plan.settings.cp)
    found = samples_lines(model, plan.micro_batch_size // getattr(plan.stages[0], "dp", 1))
    alone = model.lengths is not None and plan.settings is None  # layer-level plans
    return [(name, f"{text}; counted as in the mean") for name, text in found] if alone else found


def samples_lines(model: Decoder, micro_batch: int) -> list[tuple[str, str]]:
    """Say the samples of micro-batches of so many: `packed, 13.6 documents of 301 tokens, 0.4 %
    padding (a document each, padded to the sequence length: 92.7 %)`, or `1 image of 448 x 448
    pixels: 256 of 4,096 tokens`."""
    lengths = model.lengths
    text = [] if lengths is None else [_documents(model, lengths, micro_batch)]
    text[:0] = [_images(model, one) for one in model.encoders if lengths or one.images]
    return [("samples", "; ".join(text))] if text else []


def _images(model: Decoder, encoder: AnyEncoder) -> str:
    """Say the images of a sample, or the seconds of its sound."""
    lengths, size = model.lengths, model.sequence
    if isinstance(encoder, SoundEncoder):
        return _sounds(model, encoder)
    if lengths and lengths.images:
        each = images_of_documents(encoder, lengths)
        most = image_load(encoder, lengths, size, 1)
        return f"{each:,.2f} images a document, at most {most.tokens:,} of {size:,} tokens"
    count = encoder.images
    text = f"{counted(count, 'image')} of {encoder.image_size} x {encoder.image_size} pixels"
    if lengths:
        return f"{text} a document"
    return f"{text}: {encoder.image_tokens:,} of {size:,} tokens"


def _sounds(model: Decoder, encoder: SoundEncoder) -> str:
    lengths, size = model.lengths, model.sequence
    if lengths and lengths.seconds:
        heard = sum(a * b for a, b in zip(lengths.seconds, lengths.counts, strict=True))
        most = image_load(encoder, lengths, size, 1)
        each = heard / lengths.documents
        return (
            f"{each:,.1f} seconds of sound a document, at most {most.tokens:,} of {size:,} tokens"
        )
    text = f"{encoder.seconds} seconds of sound"
    if lengths:
        return f"{text} a document"
    return f"{text}: {encoder.image_tokens:,} of {size:,} tokens"


def _documents(model: Decoder, lengths: Lengths, micro_batch: int) -> str:
    """Say `packed, 13.6 documents of 301 tokens, 0.4 % padding (...)`."""
    size, text = model.sequence, WORDS[lengths.batching]
    each = lengths.trained(size) / lengths.mean
    if lengths.batching in (PACKED, JOINED):
        text += f", {each:,.1f} documents of {lengths.mean:,.0f} tokens"
    text += f", {format_percent(lengths.padding(size, micro_batch))} padding"
    other = lengths.made(FULL if lengths.batching in (PACKED, JOINED) else PACKED)
    share = format_percent(other.padding(size, micro_batch))
    return f"{text} ({WORDS[other.batching]}: {share})"
