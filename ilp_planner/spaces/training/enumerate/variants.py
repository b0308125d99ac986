"""Schedules and recomputations of one choice of degrees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.schedule.formulas import DIVIDED, USUAL, v_shaped
from ilp_planner.settings.rules import divided_rules
from ilp_planner.spaces.training.enumerate.keeping import leaves_room
from ilp_planner.spaces.training.enumerate.layouts import layout_asked_of, layouts_of
from ilp_planner.spaces.training.enumerate.recomputations import FULL, NOTHING
from ilp_planner.specs.pipeline_layout import ALONE, ANYHOW, FIRST, LAST
from ilp_planner.specs.training import RECOMPUTATIONS, Recompute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ilp_planner.spaces.training.search.parts import MegatronPart


@dataclass(frozen=True, slots=True)
class Variant:
    """virtual: stages per pipeline rank. remainder: the ones with the remaining layers of a rank
    (`costs.training.job.spread`). turn: size of microbatch groups, which pass one of them before
    the next one; 0: as many as there are ranks. schedule: one of `PIPELINES`."""

    virtual: int
    recompute: Recompute
    remainder: str = FIRST
    turn: int = 0
    schedule: str = USUAL

    @property
    def divided(self) -> bool:
        """Some backward passes run in two parts."""
        return self.schedule in DIVIDED

    @property
    def v_shaped(self) -> bool:
        """Virtual stages go down the ranks and back up."""
        return v_shaped(self.schedule)

    def computing(self, recompute: Recompute) -> Variant:
        """Return the same with another recomputation."""
        return Variant(self.virtual, recompute, self.remainder, self.turn, self.schedule)

    @property
    def again(self) -> str:
        """The recomputation."""
        again = self.recompute
        text = again.granularity
        if text == "full":
            text = f"{again.method} {again.layers}"
        elif text == "selective":
            text = " ".join(again.modules)
        return text

    def __str__(self) -> str:
        name = f"{self.schedule}, " if self.divided else ""
        turns = f" in turns of {self.turn}" * bool(self.turn)
        return f"{name}virtual {self.virtual}{turns}, recompute {self.again}"


def virtual_stages(part: MegatronPart) -> tuple[int, ...]:
    """Return the possible numbers of virtual stages per rank that are allowed with the usual
    schedules: 1F1B, and interleaved, with microbatch groups."""
    asked, runtime = part.problem.constraints, part.costs.runtime
    if not asked.allows("schedule", USUAL) or not part.usual:
        return ()
    every = (v for v in range(1, most_virtual(part) + 1) if asked.allows("virtual_stages", v))
    every = (v for v in every if runtime.has_stages(part.settings, part.degrees.pp, v))
    every = (v for v in every if not asked.keep or leaves_room(part, v))
    every = (v for v in every if not asked.remainder or remainders(part, v))
    return tuple(v for v in every if asked.one_layout is None or layout_asked_of(part, v))


def most_virtual(part: MegatronPart) -> int:
    """Return how many virtual stages a rank may have at most with the usual schedules, in allowed
    microbatch groups."""
    if part.degrees.pp == 1 or not turns(part, 2):
        return 1
    return _most_stages(part) if part.costs.runtime.interleaves else 1


def _most_stages(part: MegatronPart) -> int:
    """Return how many virtual stages there are elements for on every rank."""
    # the first virtual stage may have the embedding alone, and the last one the output
    return max(1, (part.costs.model.layers + 2) // part.degrees.pp)


def divided_variants(part: MegatronPart) -> Iterator[Variant]:
    """Yield the allowed variants with divided backward passes: with layouts of their own
    (`layouts_of`), so there are none if a remainder is asked for."""
    asked, runtime, pp = part.problem.constraints, part.costs.runtime, part.degrees.pp
    if pp == 1 or asked.remainder or NOTHING not in part.recomputations:
        return
    for name in runtime.schedules:
        if name not in DIVIDED or not asked.allows("schedule", name):
            continue
        every = (
            Variant(v, NOTHING, schedule=name)
            for v in range(1, _most_stages(part) + 1)
            if asked.allows("virtual_stages", v)
            and not any(divided_rules(name, pp, v, part.micro_batches))
        )
        some = asked.layout is not None or part.kept  # others have layouts for every number
        found = [v for v in every if not some or len(layouts_of(part, v))]
        # what the runtime refuses of one it refuses of all
        if found and not any(runtime.refusals(part.variant_job(found[0]))):
            yield from found


def pipelines(part: MegatronPart) -> Iterator[Variant]:
    """Yield the schedules with their virtual stages that are allowed, without recomputation."""
    for virtual in virtual_stages(part):
        for remainder in remainders(part, virtual):
            yield Variant(virtual, NOTHING, remainder, turns(part, virtual)[0])
    yield from part.divided


def turns(part: MegatronPart, virtual: int) -> tuple[int, ...]:
    """Return the possible sizes of microbatch groups, 0 for as many as there are ranks; other
    numbers only if they are asked for.

    Megatron core takes ranks at least, micro-batches at most, and leaves none over, or as many as
    ranks or more (`forward_backward_pipelining_with_interleaving`).
    """
    if virtual == 1:
        return (0,)
    pp, batches = part.degrees.pp, part.micro_batches
    asked = part.problem.constraints.micro_batch_group_size
    every = range(pp, batches + 1 if asked and part.costs.runtime.other_turns else pp + 1)
    possible = (n for n in every if n <= batches and not 0 < batches % n < pp)
    return tuple(n if n > pp else 0 for n in possible if asked is None or n in asked)


def in_turns(part: MegatronPart, variant: Variant) -> tuple[Variant, ...]:
    """Return a variant with all allowed microbatch groups, the smallest first; if backward passes
    are divided, micro-batches take none. Arithmetic bounds them alike (`variant_bound`)."""
    if variant.divided:
        return (variant,)
    return tuple(replace(variant, turn=turn) for turn in turns(part, variant.virtual))


def remainders(part: MegatronPart, virtual: int) -> tuple[str, ...]:
    """Return the virtual stages that may take the remaining layers of a rank; if layers differ, or
    a layout is asked for, stages are chosen one by one; of any layout, anyhow."""
    if virtual > 1 and part.problem.constraints.layout and not part.problem.constraints.one_layout:
        return (ANYHOW,)
    if virtual == 1 or not part.spread(Variant(virtual, NOTHING)):
        return (FIRST,)
    spare = part.costs.model.layers + 2 - part.degrees.pp * virtual
    every = (FIRST, LAST, ALONE) if spare else (LAST,)  # which leaves the ends alone
    return tuple(one for one in every if part.problem.constraints.allows("remainder", one))


def variants(part: MegatronPart) -> tuple[Variant, ...]:
    """Return all variants of a part that are allowed, with the smallest microbatch groups
    (`in_turns`); none if its degrees have none."""
    return tuple(each_variant(part))


def each_variant(part: MegatronPart) -> Iterator[Variant]:
    """Yield the result of `variants`."""
    for pipeline in pipelines(part):
        for again in recomputations_in(part, pipeline):
            yield pipeline.computing(again)


def recomputations_in(part: MegatronPart, pipeline: Variant) -> Iterator[Recompute]:
    """Yield the possible recomputations with the schedule, the virtual stages and the remainder of
    a variant."""
    if pipeline.divided:
        yield NOTHING
        return
    yield from part.recomputations
    yield from map(block_of, block_layers(part, pipeline).tolist())


def block_layers(part: MegatronPart, pipeline: Variant) -> NDArray[np.int64]:
    """Return the numbers of first layers of a virtual stage that may be computed again with a
    schedule, ascending."""
    if pipeline.divided or not part.costs.runtime.blocks:
        return np.zeros(0, np.int64)
    allowed = part.allowed_blocks
    return allowed[: np.searchsorted(allowed, _longest(part, pipeline))]


def _longest(part: MegatronPart, pipeline: Variant) -> int:
    """Return how many layers are more than any number of first layers of a virtual stage: as many
    as there are would be the same as `full`."""
    pp, virtual, layers = part.degrees.pp, pipeline.virtual, part.costs.model.layers
    # Layers in a virtual stage, at most: the others of the rank have as many, the other
    # ranks one in each, but for those of the embedding and of the output.
    longest = most = layers - max(0, pp * virtual - 2)
    if layout := layout_asked_of(part, virtual):
        longest = max(stage.layers for stage in layout.stages)
    elif virtual > 1 and part.alike and pipeline.remainder != ANYHOW:
        longest = 1 + -(-most // (virtual - (pipeline.remainder == ALONE)))
    return longest + (FULL not in part.recomputations)


@cache
def block_of(layers: int) -> Recompute:
    """Return the recomputation of the first so many layers."""
    return Recompute(granularity="full", method="block", layers=layers)


def lightest(part: MegatronPart) -> Variant:
    """Return the allowed variant that computes least again, with the fewest virtual stages."""
    first = next(pipelines(part))
    return first.computing(next(recomputations_in(part, first)))


def leanest(part: MegatronPart) -> Variant:
    """Return the allowed variant that keeps least between the passes."""
    first = next(pipelines(part))
    if FULL in part.recomputations and not first.divided:
        return replace(first, recompute=FULL)
    return max(
        (v for v in variants(part) if v.virtual == first.virtual),
        key=lambda v: (RECOMPUTATIONS.index(v.recompute.kind), v.recompute.layers),
    )
