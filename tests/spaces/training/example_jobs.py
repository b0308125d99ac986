"""Small examples of a runtime's search: the jobs of a few models on four GPUs."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from ilp_planner.costs.training.job import base_layout
from ilp_planner.inputs.constraints import ANY, Constraints, constraints_of, names_of
from ilp_planner.spaces.training.enumerate.choices import decided
from ilp_planner.spaces.training.enumerate.degrees import megatron_space
from ilp_planner.spaces.training.runtime import Runtime
from ilp_planner.specs.data_sheets import gpu_architecture
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.training import PARTS, QUANTISED, RECOMPUTATIONS, TrainingJob
from tests.training_jobs import decoder_named

BATCH = 8  # samples per iteration


class Example(NamedTuple):
    """An example: a model of the catalogue in a precision on GPUs, with a recipe."""

    model: str
    precision: str
    gpus: str
    recipe: str = ""

    @property
    def decoder(self) -> Decoder:
        """The model's dimensions."""
        return decoder_named(self.model)


# Without and with experts, without flash attention, and in every precision and recipe.
DENSE, MIXTURE = "llama3-8b", "deepseek-v3"
PLAIN = Example(DENSE, "bf16", "4xH100")
EXPERTS = Example(MIXTURE, "bf16", "4xH100")
LOW = Example(DENSE, "bf16", "4xH100", "fp8-delayed")
STREAMS = Example("deepseek-v4-flash", "bf16", "4xH100")
SEEING = Example("qwen2-vl-2b", "bf16", "4xH100")
EXAMPLES = (
    PLAIN,
    EXPERTS,
    Example(DENSE, "fp16", "4xV100-32GB"),
    Example(DENSE, "fp32", "4xH100"),
    *(Example(DENSE, "bf16", "4xB200", recipe) for recipe in QUANTISED),
)


def jobs_of(runtime: Runtime, example: Example, asked: Constraints = ANY) -> Iterator[TrainingJob]:
    """Yield the jobs, but for layouts and recomputation, that a runtime tries of an example."""
    model, cluster = example.decoder, gpu_cluster(parse_gpus(example.gpus))
    base = runtime.settings(model, example.precision, cluster, example.recipe)
    choices = runtime.choices(base, asked, cluster.device_count, model)
    space = megatron_space(
        model,
        cluster,
        BATCH,
        micro_batches=divisors(BATCH),
        max_cp=runtime.most_cp,
        title=runtime.title,
        orders=runtime.orders,
    )
    for degrees, choice in itertools.product(space, choices):
        job = TrainingJob(
            model=model,
            micro_batch=degrees.micro_batch,
            global_batch=BATCH,
            tp=degrees.tp,
            pp=degrees.pp,
            dp=degrees.dp,
            layout=base_layout(model, degrees.pp),
            settings=runtime.with_degrees(choice, choices[0], degrees),
            gpu_architecture=gpu_architecture(cluster),
        )
        own = decided(job.settings, replicated=degrees.replicated)
        if not any(asked.broken(own)) and not any(runtime.refusals(job)):
            yield job


def said_recomputations(runtime: Runtime, asked: Constraints = ANY) -> tuple[str, ...]:
    """Return the recomputations that a runtime tries, a part of a layer after the other."""
    found: set[str] = set()
    for example, models in ((PLAIN, (PLAIN,)), (EXPERTS, (EXPERTS, STREAMS))):
        kernels = next(jobs_of(runtime, example)).settings.kernels
        for one in models:
            for again in runtime.recomputations(one.decoder, kernels, asked):
                found |= set(names_of(again))
    first, *whole = (kind for kind in RECOMPUTATIONS if kind in found)
    parts = (name for name in PARTS if name in found)
    blocks = ("block of any number of layers",) if runtime.blocks else ()
    return (first, *parts, *whole, *blocks)


def more_recomputations(runtime: Runtime) -> tuple[str, ...]:
    """Return the parts of a layer that a runtime tries to compute again for being asked alone."""
    every = constraints_of({"recompute": (RECOMPUTATIONS[0], *PARTS)})
    tried = said_recomputations(runtime)
    return tuple(name for name in said_recomputations(runtime, every) if name not in tried)
