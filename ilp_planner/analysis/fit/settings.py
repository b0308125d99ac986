"""The settings of a job that may be changed to make it fit, with their values.

They change how a model is trained, and not the computation: the samples of an iteration, the types
of gradients and moments and the model itself stay as they are.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.costs.training.job import plain_layout
from ilp_planner.inputs.constraints import ANY
from ilp_planner.settings.table import SETTINGS
from ilp_planner.settings.values import with_fields
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import METHODS, OFFLOADED, Offload, Recompute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ilp_planner.analysis.fit.fit import Draft
    from ilp_planner.settings.base import Change, JobOption
    from ilp_planner.settings.values import Choice
    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.specs.pipeline_layout import PipelineLayout

OF_EXPERTS = ("expert_fc1", "moe_act")  # of the modules whose activations can go to the host


class Variable(NamedTuple):
    """One setting that may be changed. values: for a draft with other settings changed before it.
    write: the draft with a value; None where that goes with none. choice: the name of its row, if
    a job as a whole has one value; not every training system has all."""

    name: str
    values: Callable[[Draft], Iterable[Any]]
    write: Callable[[Draft, Any], Draft | None]
    choice: str = ""


def _of_settings(name: str) -> Callable[[Draft, Any], Draft]:
    """Return a writer of a field of `Settings`, such as `kernels.graphs`."""

    def write(draft: Draft, value: Any) -> Draft:
        return replace(draft, settings=with_fields(draft.settings, {name: value}))

    return write


def _of_draft(name: str) -> Callable[[Draft, Any], Draft]:
    """Return a writer of a field of `Draft`."""

    def write(draft: Draft, value: Any) -> Draft:
        changed: dict[str, Any] = {name: value}
        return replace(draft, **changed)

    return write


def _of_choice(name: str, choice: Choice, change: Change) -> Variable:
    """Return a setting that searches choose for a whole job as well."""

    def write(draft: Draft, value: str) -> Draft | None:
        settings = choice.write(draft.settings, value)
        return None if settings is None else replace(draft, settings=settings)

    return Variable(name.replace("_", " "), lambda draft: change.values, write, name)


def _of_option(name: str, option: JobOption, change: Change) -> Variable:
    """Return a setting that follows from others in searches, and has an option of one job."""

    def values(draft: Draft) -> Iterable[Any]:
        return change.values if draft.base.model.experts or not option.of_experts else ()

    return Variable(name.replace("_", " "), values, _of_settings(option.field))


def _of_table() -> Iterator[Variable]:
    """Yield the settings that the table of settings has a change of, in the order of `Change`."""
    rows = [(row.change, row.name, row.choice, row.job_option) for row in SETTINGS if row.change]
    for change, name, choice, option in sorted(rows, key=itemgetter(0)):
        if choice:
            yield _of_choice(name, choice, change)
        elif option:
            yield _of_option(name, option, change)


def _experts(draft: Draft) -> Iterable[int]:
    """Return the expert-parallel degrees that divide the experts."""
    experts = draft.base.model.experts
    return () if experts is None else divisors(experts.count)


def _recomputations(runtime: Runtime) -> Callable[[Draft], Iterator[Recompute]]:
    """Return a generator of the values that searches try for a training system, and, if it has
    them, chunks of every size and the first layers of each stage."""

    def values(draft: Draft) -> Iterator[Recompute]:
        model, layout = draft.base.model, draft.layout or draft.base.pipeline
        most = max(stage.layers for stage in layout.stages)
        if draft.layout is None and draft.pp != draft.base.pp:
            most = -(-model.layers // draft.stages)
        yield from runtime.recomputations(model, draft.settings.kernels, ANY)
        for method in METHODS if runtime.blocks else ():
            for layers in range(1, most + 1):
                yield Recompute(granularity="full", method=method, layers=layers)

    return values


def _layouts(draft: Draft) -> Iterator[PipelineLayout]:
    """Yield as even layouts with every number of virtual stages; and one stage per rank with fewer
    layers on the first and the last rank, the others with at most one more than evenly."""
    model, pp = draft.base.model, draft.pp
    if not 1 < pp <= model.layers:
        return
    for virtual in range(1, model.layers // pp + 1):
        yield plain_layout(model, pp * virtual)
    for each in range(-(-model.layers // pp), -(-model.layers // pp) + 2):
        ends = model.layers - each * (pp - 2)
        for first in range(max(0, ends - each), min(each, ends) + 1):
            middle = [each] * (pp - 2)
            layers = [first, *middle, ends - first]
            yield split_layout(layers, prediction_layers=model.prediction_layers)


def _micro_batches(draft: Draft) -> Iterable[int]:
    """Return the sizes that divide the samples of a replica."""
    batch, dp = draft.base.global_batch, draft.dp
    return divisors(batch // dp) if dp and batch % dp == 0 else ()


def _offloads(draft: Draft) -> Iterator[Offload]:
    """Yield every number of whole layers, if none are recomputed nor in a pipeline, every module
    alone and all of the model."""
    model = draft.base.model
    whole = draft.pp == 1 and draft.settings.recompute.granularity == "none"
    yield Offload()
    for layers in range(1, model.layers if whole else 1):
        yield Offload(layers=layers)
    there = tuple(name for name in OFFLOADED if model.experts or name not in OF_EXPERTS)
    for modules in (*((name,) for name in there), there):
        yield Offload(modules=modules)


def _degrees(draft: Draft) -> Iterable[int]:
    return divisors(draft.world)


def _tensor_degrees(draft: Draft) -> Iterator[tuple[int, bool]]:
    """Yield degrees with sequence parallelism as the draft has it, and with it where the job has no
    tensor parallelism, without which it means nothing."""
    own = draft.settings.sequence_parallel
    for tp in divisors(draft.base.devices_per_node):
        yield from ((tp, on) for on in dict.fromkeys((own, own or draft.base.tp == 1 < tp)))


def _with_tensor(draft: Draft, value: tuple[int, bool]) -> Draft:
    tp, divided = value
    return replace(draft, tp=tp, settings=replace(draft.settings, sequence_parallel=divided))


def settings_of(runtime: Runtime) -> tuple[Variable, ...]:
    """Return the settings of a training system's jobs. Settings that determine values of others are
    first."""
    again = Variable("recomputation", _recomputations(runtime), _of_settings("recompute"))
    return (*DEGREES, again, *(s for s in OTHERS if not s.choice or s.choice in runtime.listens))


DEGREES = (
    Variable("tp", _tensor_degrees, _with_tensor),
    Variable("cp", _degrees, _of_settings("cp")),
    Variable("pp", _degrees, _of_draft("pp")),
    Variable("ep", _experts, _of_settings("ep")),
    Variable("etp", lambda draft: (0, 1) if draft.base.model.experts else (), _of_settings("etp")),
    Variable(
        "sequence parallelism", lambda draft: (False, True), _of_settings("sequence_parallel")
    ),
    Variable("micro-batch size", _micro_batches, _of_draft("micro_batch")),
    Variable("layout", _layouts, _of_draft("layout")),
)
OTHERS = (
    Variable("activations on the host", _offloads, _of_settings("offload")),
    *_of_table(),
)
