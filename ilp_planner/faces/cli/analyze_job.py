"""The training job that the options of `ilp-plan analyze` describe."""

from __future__ import annotations

import difflib
import math
from dataclasses import fields, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ilp_planner.base.errors import PlannerError, SpecError, UsageError
from ilp_planner.base.files import read_document
from ilp_planner.base.limits import RANKS, beyond
from ilp_planner.faces.cli.job_options import Job
from ilp_planner.faces.cli.wording import option_of
from ilp_planner.inputs.files import find_model
from ilp_planner.job.recompute import OF_EXPERTS as PARTS_OF_EXPERTS
from ilp_planner.job.recompute import recomputed_parts
from ilp_planner.settings.beside import notes_beside, taken_beside
from ilp_planner.settings.job_options import (
    JOB_OPTIONS,
    idle_in,
    of_others,
    uncounted_in,
    value_of,
    with_options,
)
from ilp_planner.settings.rules import that_follow, tuning_rules, with_followed
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.degrees import (
    Misfit,
    divisors,
    job_misfits,
    nearest_multiple,
    pipeline_misfits,
)
from ilp_planner.specs.layer_kinds import DENSE
from ilp_planner.specs.lengths import PACKED
from ilp_planner.specs.pipeline_layout import (
    PipelineLayout,
    even_layout,
    read_layout,
    write_layout,
)
from ilp_planner.specs.recipes import precision_of, quantised_kernels
from ilp_planner.specs.samples import Samples, with_samples
from ilp_planner.specs.training import (
    PARTS,
    PRECISIONS,
    Kernels,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from ilp_planner.specs.tuning import BRIDGE_NAMES, BRIDGE_TARGETS, PEFT_TARGETS, tuned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.analysis.devices import Devices
    from ilp_planner.formats.megatron.repairs import Finding
    from ilp_planner.settings.base import JobOption
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.tuning import Tuning

FILL = 4  # micro-batches per pipeline stage, where no global batch is given: a bubble below a fifth
# Options with other possible values if they are not given, by their names, the first tried first.
OPEN = {
    name: others.values
    for others, name in sorted(
        (one.others, name) for name, one in JOB_OPTIONS.items() if one.others
    )
}
# Values of options that are not given, in the order of the help.
UNSAID = {field.name: field.default for field in fields(Job)}
STEPS = 4  # options that a repair changes at most


class _UnfitError(Exception):
    """Options that do not fit one another. misfit: the first of them."""

    def __init__(self, misfit: Misfit) -> None:
        self.misfit = misfit

    @property
    def name(self) -> str:
        """Return the parameter of the option that would be changed."""
        return {"world": "world_size"}.get(self.misfit.name, self.misfit.name.replace("-", "_"))


def job_of_options(
    asked: dict[str, Any], devices: Devices
) -> tuple[TrainingJob, str, tuple[str, ...]]:
    """Return the job, the name of its model, and remarks on assumptions.

    Raises
    ------
    SpecError, UsageError: an impossible value, with repairs.
    """
    try:
        return _first_that_runs(asked, devices)
    except _UnfitError as error:
        misfit = error.misfit
        repairs = _repairs(asked, devices, error)
        line = f"{option_of(error.name)}: found {misfit.found}, expected {misfit.rule}"
        if list(repairs) == [error.name]:
            line += f"; {repairs[error.name]} would do"
        elif repairs:
            words = (f"{option_of(name)} {value}" for name, value in repairs.items())
            line += f"; {' '.join(words)} would do"
        raise UsageError(line) from None


def _first_that_runs(
    asked: dict[str, Any], devices: Devices
) -> tuple[TrainingJob, str, tuple[str, ...]]:
    """Return the job with defaults for values that are not given; if Megatron-LM refuses that, with
    the fewest other values of `OPEN` that leave the fewest refusals."""
    best = _job(asked, devices)
    refused = first = _refused(best[0])
    still = [name for name in OPEN if asked[name] == UNSAID[name]]
    for names in (names for n in range(len(still)) for names in combinations(still, n + 1)):
        for values in product(*(OPEN[name] for name in names)) if refused else ():
            said = dict(zip(names, values, strict=True))
            try:
                job, model, notes = _job(asked | said, devices)
            except (PlannerError, _UnfitError):
                continue
            found = _refused(job)
            if len(found) < len(refused):
                words = (
                    option_of(name) + f" {value}" * (value is not True)
                    for name, value in said.items()
                )
                head = f"{' '.join(words)}: assumed"
                note = f"{head}, as Megatron-LM does not run {first[0].flag} without it"
                refused, best = found, (job, model, (*notes, note))
    return best


def _refused(job: TrainingJob) -> tuple[Finding, ...]:
    """Return Megatron-LM's refusals of a job; nothing if it has no arguments for it, or if another
    system runs it."""
    from ilp_planner.formats.megatron.arguments import arguments_of_job
    from ilp_planner.formats.megatron.rules import check_arguments

    if of_others(job.settings):
        return ()
    try:
        return tuple(check_arguments(arguments_of_job(job)))
    except SpecError:
        return ()


def _repairs(asked: dict[str, Any], devices: Devices, error: _UnfitError) -> dict[str, Any]:
    """Return values of options that would fit; empty if none are known."""
    repairs: dict[str, Any] = {}
    for _ in range(STEPS):
        if error.misfit.repair is None:
            break
        repairs[error.name] = error.misfit.repair
        try:
            _job(asked | repairs, devices)
        except _UnfitError as following:
            error = following
        except PlannerError:
            break
        else:
            return repairs
    return {}


def _job(asked: dict[str, Any], devices: Devices) -> tuple[TrainingJob, str, tuple[str, ...]]:
    """Return the same as `job_of_options`; a value that another one would repair is an
    _UnfitError."""
    spec = find_model(asked["model"], text_only=asked.get("text_only", False))
    names = ("images_per_sample", "image_size", "audio_seconds")
    images = map(asked.get, names)
    model, notes = decoder_of(spec, asked["model"], Samples(asked["sequence_length"], *images))
    model = _with_lengths(spec, model, asked)
    refuse_idle(asked, model, spec.name)
    follows = [name for name in that_follow(model) if asked[name] is None]
    asked, completed = _completed(asked, model, devices)
    notes += completed
    pp, micro_batch = asked["pp"], asked["micro_batch"]
    dp = asked["dp"] or replicas(asked, devices)
    batch = asked["global_batch"]
    if batch is None:
        batch = micro_batch * dp * (FILL * pp if pp > 1 else 1)
        notes += (f"--global-batch-size is not given: {batch} is assumed",)
    precision, recipe = precision_of(asked["precision"] or "", spec.precision)
    if recipe and devices.recipes is not None and recipe not in devices.recipes:
        raise UsageError(
            f"--precision: found {recipe} on {devices.name}, expected one that it has: "
            f"{', '.join((*PRECISIONS, *devices.recipes))}"
        )
    layout, settings = layout_of(asked, model), settings_of(asked, precision, recipe)
    if follows:
        settings = with_followed(settings, model)
    if settings.turn == pp:
        settings = replace(settings, turn=0)
    if (world := asked["tp"] * pp * dp * settings.cp) > RANKS:
        raise UsageError(f"--dp: found {dp}, {world} GPUs, expected at most {RANKS}")
    if expected := beyond("global_batch", batch):
        raise UsageError(f"--global-batch-size: found {batch}, expected {expected}")
    if model.lengths and model.lengths.batching == PACKED and micro_batch > 1:
        raise UsageError(
            f"--micro-batch-size: found {micro_batch} with packed samples, expected 1: attention "
            "reads all of a micro-batch as one row"
        )
    for name, broken in tuning_rules(model, settings.tuning):
        raise UsageError(f"{option_of(name)}: found {broken.have}, expected {broken.limit}")
    try:
        job = TrainingJob(
            model=model,
            micro_batch=micro_batch,
            global_batch=batch,
            tp=asked["tp"],
            pp=pp,
            dp=dp,
            layout=layout,
            settings=settings,
            devices_per_node=asked["devices_per_node"] or devices.per_node,
            gpu_architecture=devices.gpu_architecture,
        )
    except ValueError as error:
        raise UsageError(f"--layout: {error}") from None
    for misfit in job_misfits(job, asked["world_size"]):
        raise _UnfitError(misfit)
    notes += (
        *uncounted_in(settings),
        *idle_in(settings, asked, replicated=job.dp * settings.cp > 1),
    )
    found, most = settings.kernels.imbalance, settings.ep
    if found > most:
        raise UsageError(
            f"--imbalance: found {found:g}, expected at most ep {most}, where one rank takes all "
            f"tokens; {most} would do"
        )
    return job, spec.name, notes


def _completed(
    asked: dict[str, Any], model: Decoder, devices: Devices
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return values that the runtime runs for options that are not given and follow from others or
    from the GPUs; with remarks on assumptions.

    Raises
    ------
    UsageError: an option that does not follow and must be given.
    """
    said: dict[str, Any] = {
        name: unsaid(name, model) for name in JOB_OPTIONS if asked[name] is None
    }
    notes: list[str] = []
    pp = said["pp"] = pipeline_ranks(asked["pp"], asked["layout"])
    if asked["recompute"] is None:
        full = asked["recompute_method"] or asked["recompute_layers"]
        said["recompute"] = (
            "selective" if asked["recompute_modules"] else "full" if full else "none"
        )
    typed = partial(_typed, asked)
    said |= {other: _number(value) for _, other, value in taken_beside(typed)}
    notes += notes_beside(typed)
    if asked["attention"] is None:
        old = not devices.gpu_architecture.flash_attention
        said["attention"] = "unfused" if old else "flash"
        if old:
            notes.append(
                f"--attention is not given: unfused is assumed, as flash does not run on "
                f"{devices.name} ({devices.gpu_architecture.name})"
            )
    stages = pp * asked["virtual"]
    why = f"{model.layers} layers are no multiple of {stages} stages"
    if model.bound:  # as far as there are other layers; stages that begin elsewhere are refused
        free = "an indexer" if model.sparse else "experts that the router chooses"
        why = f"stages begin with layers that have {free}, where there are enough"
    uneven = model.layers % stages or model.bound
    if asked["layout"] is None and uneven and pp > 1 and stages <= model.layers:
        from ilp_planner.costs.training.job import plain_layout

        said |= {"layout": write_layout(plain_layout(model, stages)), "virtual": 1}
        notes.append(f"--layout is not given: {said['layout']} is assumed, as {why}")
    return asked | said, tuple(notes)


def _typed(asked: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the value of an option as it was given; empty: it is not."""
    value = asked.get(name)
    return () if value is None else (f"{value:g}" if isinstance(value, float) else str(value),)


def _number(value: str) -> int | str:
    return int(value) if value.isdigit() else value


def pipeline_ranks(pp: int | None, layout: str | None) -> int:
    """Return the pipeline ranks: as many as are given, or one if a layout leaves no choice.

    Raises
    ------
    UsageError: the stages of the layout are several, and nothing says to how many ranks they are
        dealt, or one rank alone.
    """
    stages = 1 if layout is None else len(layout_said(layout).stages)
    if stages == 1 or (pp or 1) > 1:
        return pp or 1
    possible = [ranks for ranks in divisors(stages) if ranks > 1]
    raise UsageError(
        f"--pp: found {pp or 'none'} beside a --layout of {stages} stages, expected the number of "
        f"ranks that they are dealt to, one of {', '.join(map(str, possible))}; {stages} would do"
    )


def layout_said(text: str) -> PipelineLayout:
    """Return the layout in Megatron's letters.

    Raises
    ------
    UsageError: it is none.
    """
    try:
        return read_layout(text)
    except SpecError as error:
        raise UsageError(f"--layout: {error}") from None


def refuse_idle(asked: dict[str, Any], model: Decoder, name: str) -> None:
    """Refuse options for parts that the job lacks.

    Raises
    ------
    UsageError: names the option.
    """
    for own, option in JOB_OPTIONS.items():
        changes = asked[own] is True or asked[own] not in (None, False, UNSAID[own], option.unsaid)
        if changes and (parts := lacks(model, option)):
            raise UsageError(f"{option_of(own)}: found {name}, which has no {parts}, expected none")
    if model.experts is None:
        for part in modules_of(asked):
            if part in PARTS_OF_EXPERTS:
                raise UsageError(
                    f"--recompute-modules: found {part} for {name}, which has no experts, expected "
                    f"some of {', '.join(recomputed_parts(kind=DENSE))}"
                )
    for own, option in JOB_OPTIONS.items():
        degree, value = option.degree, asked[own]
        if degree and asked[degree] == 1 and value not in (None, option.unsaid):
            found = f"{option_of(own)}: found {option_of(degree)} 1"
            raise UsageError(f"{found}, expected more for {value}")


def unsaid(name: str, model: Decoder) -> Any:
    """Return what an option is where nobody says it: of parts that the model lacks, nothing."""
    option = JOB_OPTIONS.get(name)
    if option is None:
        return None
    return value_of(name, Settings()) if lacks(model, option) else option.unsaid


def lacks(model: Decoder, option: JobOption) -> str:
    """Return the parts that an option is of and a model has not; empty: it lacks none."""
    if option.of_experts and model.experts is None:
        return "experts"
    return "encoders" if option.of_encoders and not model.encoders else ""


def decoder_of(spec: ModelSpec, named: str, samples: Samples) -> tuple[Decoder, tuple[str, ...]]:
    """Return a model as a decoder, with other samples if asked, and remarks on it."""
    model = as_decoder(spec.architecture)
    if model is None:
        raise SpecError(
            f"{named}: family: found {spec.family!r}, expected a decoder-only transformer "
            "(gpt or decoder), which is what can be analysed"
        )
    found = with_samples(replace(spec, architecture=model), samples)
    return cast("Decoder", found.architecture), found.remarks


def _with_lengths(spec: ModelSpec, model: Decoder, asked: dict[str, Any]) -> Decoder:
    """Return the model with samples made of documents, if a file says their lengths."""
    named, batching = asked.get("lengths"), asked.get("batching")
    if named is None:
        if batching:
            raise UsageError(
                f"--batching: found {batching} without --lengths, expected none, or a file of "
                "lengths beside it"
            )
        return model
    from ilp_planner.specs.lengths_reader import of_samples, read_lengths

    lengths = read_lengths(read_document(Path(named), SpecError), batching or PACKED)
    said = asked.get("images_per_sample"), asked.get("audio_seconds")
    return of_samples(replace(spec, architecture=model), lengths, named, *said)


def replicas(asked: dict[str, Any], devices: Devices) -> int:
    """Return dp: the rest of the world or the cluster, else 1."""
    world = asked["world_size"]
    degrees: dict[str, int] = {name: asked[name] for name in ("tp", "pp", "cp")}
    each = math.prod(degrees.values())
    if world is None:
        return max(1, devices.count // each)
    if world % each:
        text = " x ".join(f"{name} {size}" for name, size in degrees.items())
        rule, repair = f"a multiple of {text} = {each}", nearest_multiple(world, each)
        raise _UnfitError(Misfit(name="world", found=world, rule=rule, repair=repair))
    return int(world // each)


def layout_of(asked: dict[str, Any], model: Decoder) -> PipelineLayout:
    """Return the layout that is asked for, or Megatron's even one."""
    if asked["layout"] is not None:
        if asked["virtual"] > 1:
            raise UsageError("--virtual-stages: found --layout too, which says the stages itself")
        layout = layout_said(asked["layout"])
        found = sum(stage.prediction_layers for stage in layout.stages)
        if found != model.prediction_layers:
            raise UsageError(
                f"--layout: found {found} layers of multi-token prediction (m), expected the "
                f"model's {model.prediction_layers}"
            )
        return layout
    for misfit in pipeline_misfits(model.layers, asked["pp"], asked["virtual"]):
        raise _UnfitError(misfit)
    return even_layout(
        model.layers, asked["pp"], asked["virtual"], prediction_layers=model.prediction_layers
    )


def settings_of(asked: dict[str, Any], precision: str, recipe: str = "") -> Settings:
    """Return how every rank trains. recipe: of quantised products."""
    sharding = asked["sharding"]
    if asked["distributed_optimizer"]:
        if sharding not in ("none", "optimizer"):
            raise UsageError(
                f"--distributed-optimizer: found --sharding {sharding} too, expected one of them"
            )
        sharding = "optimizer"
    kernels = quantised_kernels(Kernels(), recipe)
    if sharding == "none":  # parameters that nobody gathers are kept in full
        kernels = replace(kernels, quantised_parameters=False)
    settings = Settings(
        precision=precision,
        recompute=recompute_of(asked),
        optimizer=OptimizerSettings(master=0 if precision == "fp32" else 4),
        kernels=kernels,
    )
    settings = with_options(settings, asked | {"sharding": sharding})
    return replace(settings, tuning=_tuned(settings))


def _tuned(settings: Settings) -> Tuning:
    """Return a tuning as PEFT has it, if it is in its names or beside a setting that Megatron-LM
    has not, as 4 bits; else as Megatron-Bridge has it."""
    named = any(name not in BRIDGE_NAMES for name in settings.tuning.targets)
    by_peft = named or of_others(settings)
    own = (PEFT_TARGETS, "fp32") if by_peft else (BRIDGE_TARGETS, "")
    return tuned(settings.tuning, *own)


def modules_of(asked: dict[str, Any]) -> tuple[str, ...]:
    """Return the parts of layers that are recomputed, by name."""
    names = (asked["recompute_modules"] or "").replace(" ", ",").split(",")
    return tuple(name for name in names if name)


def recompute_of(asked: dict[str, Any]) -> Recompute:
    """Return the recomputation of the options; `full` alone means every layer."""
    granularity, modules = asked["recompute"], modules_of(asked)
    for name in modules:
        if name not in PARTS:
            near = difflib.get_close_matches(name, PARTS, n=1)
            hint = f"; {near[0]} would do" if near else ""
            raise UsageError(
                f"--recompute-modules: found {name}, expected one of {', '.join(PARTS)}{hint}"
            )
    method, layers = asked["recompute_method"], asked["recompute_layers"]
    for option, value, expected in (
        ("--recompute-modules", modules, "selective"),
        ("--recompute-method", method, "full"),
        ("--recompute-layers", layers, "full"),
    ):
        if value and granularity != expected:
            raise UsageError(f"{option}: found --recompute {granularity}, expected {expected}")
    if granularity != "full":
        return Recompute(granularity=granularity, modules=modules)
    return Recompute(granularity="full", method=method or "uniform", layers=layers or 1)
