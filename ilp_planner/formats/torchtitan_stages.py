"""The modules of torchtitan's stages, by the names of its models."""

from ilp_planner.specs.training import TrainingJob


def stage_modules(job: TrainingJob, *, output: str) -> list[list[str]]:
    """Return the names of every (virtual) stage's modules, in the order that a sample passes them.

    Part k is on pipeline rank k % pp in torchtitan's looped schedules, as in Megatron's.

    Parameters
    ----------
    output: a release's name of the product with the vocabulary.
    """
    parts = []
    for start, stage in zip(job.pipeline.starts, job.stages, strict=True):
        layers = [f"layers.{i}" for i in range(start, start + stage.layers)]
        first = ["tok_embeddings"] if stage.embedding else []
        parts.append([*first, *layers, *(["norm", output] if stage.loss else [])])
    return parts
