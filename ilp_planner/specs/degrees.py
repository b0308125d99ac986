"""Degrees that divide a model; for others, the nearest possible value."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.training import ORDERS, TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A degree or size that does not fit. name: of the setting that one value would repair."""

    name: str
    found: int | str
    rule: str
    repair: int | str | None = None


@lru_cache(maxsize=1024)
def divisors(whole: int) -> tuple[int, ...]:
    """Return all divisors of a number, ascending: products of its prime factors.

    Given numbers are at most 2^31; their factors are found in 46,000 steps.
    """
    found, rest, factor = [1], whole, 2
    while rest > 1:
        if factor * factor > rest:
            factor = rest
        powers = [1]
        while rest % factor == 0:
            rest //= factor
            powers.append(powers[-1] * factor)
        if len(powers) > 1:
            found = [part * power for part in found for power in powers]
        factor += 1
    return tuple(sorted(found))


def nearest(fitting: Iterable[int], wanted: int) -> int:
    """Return the number that is nearest to the wanted one, the smaller of two."""
    return min(fitting, key=lambda part: (abs(part - wanted), part))


def nearest_divisor(wanted: int, *wholes: int) -> int:
    """Return the divisor of all wholes that is nearest to the wanted number, the smaller of two."""
    return nearest(divisors(gcd(*wholes)), wanted)


def nearest_multiple(wanted: int, unit: int) -> int:
    """Return the positive multiple of a unit that is nearest to the wanted number."""
    return max(1, (2 * wanted + unit) // (2 * unit)) * unit


def tensor_misfits(model: Decoder, tp: int) -> Iterator[Misfit]:
    """Yield the parts that tensor parallelism of this degree cannot divide."""
    parts = {"heads": model.heads, "ffn": model.ffn}
    repair = nearest((d for d in divisors(model.heads) if _tensor_fits(model, d)), tp)
    for name, whole in parts.items():
        if whole % tp:
            rule = f"a divisor of the model's {name} ({whole})"
            yield Misfit(name="tp", found=tp, rule=rule, repair=repair)
    if model.latent is None and model.kv_heads % tp and tp % model.kv_heads:
        rule = f"a divisor or a multiple of the model's kv_heads ({model.kv_heads})"
        yield Misfit(name="tp", found=tp, rule=rule, repair=repair)


def _tensor_fits(model: Decoder, tp: int) -> bool:
    shared = model.latent is None and model.kv_heads % tp and tp % model.kv_heads
    return not (model.heads % tp or model.ffn % tp or shared)


def expert_misfits(model: Decoder, ep: int, etp: int, ranks: int = 0) -> Iterator[Misfit]:
    """Yield the parts that expert parallelism of these degrees cannot divide. ranks: that a repair
    of ep must divide as well; 0: any."""
    if model.experts is None:
        if ep > 1:
            yield Misfit(name="ep", found=ep, rule="a model with experts", repair=1)
        return
    count, ffn = model.experts.count, model.experts.ffn
    if count % ep:
        repair = nearest_divisor(ep, count, ranks)
        yield Misfit(name="ep", found=ep, rule=f"a divisor of {count} experts", repair=repair)
    if ffn % etp:
        rule = f"a divisor of the experts' ffn ({ffn})"
        yield Misfit(name="etp", found=etp, rule=rule, repair=nearest_divisor(etp, ffn))


def pipeline_misfits(layers: int, pp: int, virtual: int) -> Iterator[Misfit]:
    """Yield whether layers do not split evenly over stages; a layout would split them unevenly."""
    if virtual > 1 and pp == 1:
        yield Misfit(name="virtual", found=virtual, rule="1 with pp 1", repair=1)
    elif layers % pp:
        rule = f"a divisor of {layers} layers, or a layout"
        yield Misfit(name="pp", found=pp, rule=rule, repair=nearest_divisor(pp, layers))
    elif layers // pp % virtual:
        rule = f"a divisor of the {layers // pp} layers of a stage, or a layout"
        repair = nearest_divisor(virtual, layers // pp)
        yield Misfit(name="virtual", found=virtual, rule=rule, repair=repair)


def job_misfits(job: TrainingJob, world: int | None = None) -> Iterator[Misfit]:
    """Yield everything of a job that does not divide, the most telling first."""
    model, settings = job.model, job.settings
    yield from tensor_misfits(model, job.tp)
    ranks = job.world // job.pp // job.expert_tp
    yield from expert_misfits(model, settings.ep, job.expert_tp, ranks)
    if world is not None and world != job.world:
        rule = f"tp x pp x cp x dp = {job.tp} x {job.pp} x {settings.cp} x {job.dp}"
        yield Misfit(name="world", found=world, rule=rule, repair=job.world)
    yield from _token_misfits(job)
    each = job.micro_batch * job.dp
    if job.global_batch % each:
        rule = f"a multiple of micro-batch size x dp = {job.micro_batch} x {job.dp} = {each}"
        repair = nearest_multiple(job.global_batch, each)
        yield Misfit(name="global_batch", found=job.global_batch, rule=rule, repair=repair)
    elif job.virtual > 1 and 0 < job.micro_batches % job.pp < job.pp:
        rule = f"a multiple of micro-batch size x dp x pp = {each * job.pp} with virtual stages"
        repair = nearest_multiple(job.global_batch, each * job.pp)
        yield Misfit(name="global_batch", found=job.global_batch, rule=rule, repair=repair)
    yield from _setting_misfits(job)
    yield from expert_grid_misfits(job)


def expert_grid_misfits(job: TrainingJob) -> Iterator[Misfit]:
    """Yield whether the ranks cannot be numbered by the axes of routed experts, so that these have
    no whole number of replicas and no groups."""
    model, settings = job.model, job.settings
    experts = job.pp * settings.ep * job.expert_tp
    if model.experts is not None and job.world % experts:
        dense = job.world // job.pp // job.expert_tp
        rule = f"a divisor of tp x cp x dp / etp = {dense}"
        common = divisors(gcd(dense, model.experts.count))
        repair = max(degree for degree in common if degree <= settings.ep)
        yield Misfit(name="ep", found=settings.ep, rule=rule, repair=repair)


def _token_misfits(job: TrainingJob) -> Iterator[Misfit]:
    """Yield whether context and sequence parallelism can divide the tokens of a sample.

    Context parallelism gives each rank two pieces, one early and one late, so that the causal
    halves are equal.
    """
    sequence, cp = job.model.sequence, job.settings.cp
    share = job.tp if job.settings.sequence_parallel else 1
    if cp > 1 and sequence % (2 * cp * share):
        times = f" and tp {share}" * (share > 1)
        rule = f"a degree whose product with 2{times} divides {sequence} tokens"
        fitting = [d for d in divisors(sequence) if d == 1 or sequence % (2 * d * share) == 0]
        yield Misfit(name="cp", found=cp, rule=rule, repair=nearest(fitting, cp))
    elif sequence % share:
        rule = f"a divisor of the model's {sequence} tokens with sequence parallelism"
        fitting = [d for d in divisors(sequence) if _tensor_fits(job.model, d)]
        yield Misfit(name="tp", found=share, rule=rule, repair=nearest(fitting, share))


def _setting_misfits(job: TrainingJob) -> Iterator[Misfit]:
    """Yield faults that Megatron finds late or not at all: the order of ranks, and layers to
    recompute.

    With pp before dp, the ranks of experts and of everything else are in the same pipelines only if
    both grids have equally many ranks before pp (`parallel_state.initialize_model_parallel`).
    """
    settings = job.settings
    inner, experts = job.tp * settings.cp, job.expert_tp * settings.ep
    if settings.order != ORDERS[0] and job.pp > 1 and inner != experts:
        rule = f"{ORDERS[0]} where tp x cp = {inner} is not etp x ep = {experts}"
        yield Misfit(name="rank-order", found=settings.order, rule=rule, repair=ORDERS[0])
    counts = [stage.layers for stage in job.stages]
    again, most = settings.recompute.layers, max(counts)
    if again > most:
        rule = f"at most the {most} layers of a stage"
        yield Misfit(name="recompute-layers", found=again, rule=rule, repair=most)
    elif settings.recompute.method == "uniform" and (odd := [n for n in counts if n % again]):
        # Megatron's last chunk would reach beyond the last layer.
        rule = f"a divisor of the {odd[0]} layers of a stage, for uniform chunks"
        repair = nearest_divisor(again, *counts)
        yield Misfit(name="recompute-layers", found=again, rule=rule, repair=repair)
