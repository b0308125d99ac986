"""Megatron's names of what modules hold, for comparing them with models that Megatron builds."""

from collections.abc import Iterator
from dataclasses import replace

from ilp_planner.job.decoder import stage_modules
from ilp_planner.job.modules import Module
from ilp_planner.specs.training import TrainingJob


def parameter_names(job: TrainingJob, pp_rank: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield Megatron's name and shape of every parameter of a rank, layer by layer.

    With virtual stages each has its own numbers from 0, as in Megatron.
    """
    for number in job.stages_of(pp_rank):
        layer = 0
        for module in stage_modules(job, number):
            if module.name == "decoder.layers":
                for _ in range(module.repeat):
                    yield from _names(replace(module, repeat=1), f"decoder.layers.{layer}")
                    layer += 1
            elif module.name == "mtp.layers":
                for i in range(module.repeat):
                    yield from _names(replace(module, repeat=1), f"mtp.layers.{i}")
            elif module.name == "output":
                yield from _names(module, "")
            else:
                yield from _names(module, module.name)


def _names(module: Module, prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for weight in module.weights:
        yield f"{prefix}.{weight.name}", weight.shape
    for child in module.children:
        name = f"{prefix}.{child.name}" if prefix else child.name
        if child.repeat == 1 and child.name != "local_experts":  # numbered even when alone
            yield from _names(child, name)
        else:
            for i in range(child.repeat):
                yield from _names(replace(child, repeat=1), f"{name}.{i}")
