"""The training job that the options of `ilp-plan analyze` describe."""

from __future__ import annotations

import difflib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.cli.wording import option_of
from ilp_planner.errors import PlannerError, SpecError, UsageError
from ilp_planner.inputs.files import find_model
from ilp_planner.limits import RANKS
from ilp_planner.specs.data_sheets import FLASH
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.degrees import Misfit, job_misfits, nearest_multiple, pipeline_misfits
from ilp_planner.specs.pipeline_layout import PipelineLayout, even_layout, read_layout
from ilp_planner.specs.recipes import precision_of, quantised_kernels
from ilp_planner.specs.training import (
    PARTS,
    PRECISIONS,
    Kernels,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)

if TYPE_CHECKING:
    from ilp_planner.analysis.devices import Devices
    from ilp_planner.specs.model import ModelSpec

FILL = 4  # micro-batches per pipeline stage, where no global batch is given: a bubble below a fifth
# Options of experts, and of context parallelism, with their defaults.
OF_EXPERTS = {"etp": 0, "dispatcher": "alltoall", "grouped_experts": False}
CP_COMM = "p2p"
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
    """Return the job, the name of its model, and remarks on what was assumed.

    Raises
    ------
    SpecError, UsageError: what cannot be, and the values that would repair it.
    """
    try:
        return _job(asked, devices)
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


def _repairs(asked: dict[str, Any], devices: Devices, error: _UnfitError) -> dict[str, Any]:
    """Return values of options with which all would fit; empty where none are known."""
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
    model = decoder_of(spec, asked["model"], asked["sequence_length"])
    assumed = "sequence:" if asked["sequence_length"] is not None else None
    notes = tuple(note for note in spec.remarks if not (assumed and note.startswith(assumed)))
    refuse_idle(asked, model, spec.name)
    pp, micro_batch = asked["pp"], asked["micro_batch"]
    dp = asked["dp"] or replicas(asked, devices)
    batch = asked["global_batch"]
    if batch is None:
        batch = micro_batch * dp * (FILL * pp if pp > 1 else 1)
        notes += (f"--global-batch-size is not given: {batch} is assumed",)
    if asked["attention"] == "flash" and devices.generation < FLASH:
        notes += (
            f"--attention: flash is assumed, which runs from compute capability {FLASH} on, "
            f"{devices.name} has {devices.generation}; --attention unfused counts the scores",
        )
    precision, recipe = precision_of(asked["precision"] or "", spec.precision)
    if recipe and devices.recipes is not None and recipe not in devices.recipes:
        raise UsageError(
            f"--precision: found {recipe} on {devices.name}, expected one that it has: "
            f"{', '.join((*PRECISIONS, *devices.recipes))}"
        )
    layout, settings = layout_of(asked, model), settings_of(asked, precision, recipe)
    if (world := asked["tp"] * pp * dp * settings.cp) > RANKS:
        raise UsageError(f"--dp: found {dp}, {world} GPUs, expected at most {RANKS}")
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
            generation=devices.generation,
        )
    except ValueError as error:
        raise UsageError(f"--layout: {error}") from None
    for misfit in job_misfits(job, asked["world_size"]):
        raise _UnfitError(misfit)
    found, most = settings.kernels.imbalance, settings.ep
    if found > most:
        raise UsageError(
            f"--imbalance: found {found:g}, expected at most ep {most}, where one rank takes all "
            f"tokens; {most} would do"
        )
    return job, spec.name, notes


def refuse_idle(asked: dict[str, Any], model: Decoder, name: str) -> None:
    """Refuse options of what the job does not have.

    Raises
    ------
    UsageError: names the option.
    """
    if model.experts is None:
        for option in OF_EXPERTS:
            if asked[option] != OF_EXPERTS[option]:
                raise UsageError(
                    f"{option_of(option)}: found {name}, which has no experts, expected none"
                )
    if asked["cp"] == 1 and asked["cp_comm"] != CP_COMM:
        raise UsageError(f"--cp-comm: found --cp 1, expected more for {asked['cp_comm']}")


def decoder_of(spec: ModelSpec, named: str, sequence: int | None) -> Decoder:
    """Return a model as a decoder, with another sequence length if asked."""
    model = as_decoder(spec.architecture)
    if model is None:
        raise SpecError(
            f"{named}: family: found {spec.family!r}, expected a decoder-only transformer "
            "(gpt or decoder), which is what can be analysed"
        )
    if sequence is None or sequence == model.sequence:
        return model
    places = max(model.max_position_embeddings, sequence)
    return replace(model, sequence=sequence, max_position_embeddings=places)


def values_of(asked: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return some of what was asked for."""
    return {name: asked[name] for name in names}


def replicas(asked: dict[str, Any], devices: Devices) -> int:
    """Return dp: what the world or the cluster leaves for it, else 1."""
    world = asked["world_size"]
    degrees: dict[str, int] = values_of(asked, "tp", "pp", "cp")
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
        try:
            layout = read_layout(asked["layout"])
        except SpecError as error:
            raise UsageError(f"--layout: {error}") from None
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
    return Settings(
        **values_of(asked, "cp", "ep", "etp", "cp_comm", "sequence_parallel"),
        order=asked["rank_order"],
        precision=precision,
        recompute=recompute_of(asked),
        optimizer=OptimizerSettings(sharding=sharding, master=0 if precision == "fp32" else 4),
        kernels=quantised_kernels(
            Kernels(
                **values_of(
                    asked, "attention", "dispatcher", "fused_loss", "imbalance", "grouped_experts"
                )
            ),
            recipe,
        ),
    )


def recompute_of(asked: dict[str, Any]) -> Recompute:
    """Return what the recompute options say; `full` alone means every layer."""
    granularity = asked["recompute"]
    names = (asked["recompute_modules"] or "").replace(" ", ",").split(",")
    modules = tuple(name for name in names if name)
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
