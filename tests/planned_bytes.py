"""Bytes of layers and ranks as the planner counts them, in the order of `checker.KEPT`, `STATES`
and `ENDS`."""

from dataclasses import replace

from ilp_planner.job.memory import beyond_units, stage_memory, start_bytes, whole_gradients
from ilp_planner.job.parts import MemoryParts
from ilp_planner.job.recompute import checkpoint
from ilp_planner.job.states import copies_parameters, stay_gathered
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.specs.layer_kinds import LAYER_KINDS, PLAIN
from ilp_planner.specs.training import Recompute


def kept_bytes(part: MegatronPart, way: Recompute, parts: MemoryParts) -> list[float]:
    """Return the bytes that a micro-batch keeps of a layer, of the input of one that is computed
    again, of the embedding, and around the loss; and what a layer needs for a moment, or when it is
    computed again, alone or after others of a chunk.

    parts: with a recomputation that embedding and output keep as much with.
    """
    job, output = parts.job, parts.parts["output"]
    layer = part.activations(way, LAYER_KINDS[job.layer_kinds[0]].name)
    settings = replace(job.settings, recompute=way)
    loss = output.kept + parts.parts["final norm"].kept + output.moment
    return [
        layer.kept - layer.moved,
        checkpoint(replace(job, settings=settings)).size,
        parts.parts["embedding"].kept,
        loss,
        layer.moment,
        layer.again,
        layer.chunk,
    ]


def rank_states(parts: MemoryParts) -> list[list[float]]:
    """Return the bytes of states that a layer adds to a rank, and those of a rank besides: of the
    first, an inner and the last one, or of fewer if there are no more.

    docs/reference/certificate.md says each. parts: of a job with several virtual stages or one.
    """
    job, named = parts.job, parts.parts
    number = job.layer_kinds[0]

    def figures(layers: int, rank: int) -> tuple[list[float], list[float]]:
        first, last = rank == 0, rank == job.pp - 1
        kinds = [layers if own == number else 0 for own in range(max(PLAIN, number + 1))]
        stage = stage_memory(
            parts,
            layers=kinds[0],
            expert_layers=kinds[1],
            others=tuple(kinds[PLAIN:]),
            embedding=first,
            output=last,
            in_flight=0,
        )
        pairs = zip(LAYER_KINDS, kinds, strict=False)
        counts = {kind.name: n for kind, n in pairs if kind.name in named}
        counts |= {"embedding": int(first), "output": int(last), "final norm": int(last)}
        counts |= dict.fromkeys(("prediction layer", "copied words"), 0)
        backward, ending = whole_gradients(parts, counts)
        end = counts["embedding"] * named["embedding"].moment + ending
        step = sum(counts[kind] * named[kind].stepped for kind in counts)
        copied = start_bytes(parts, counts) if copies_parameters(job) else (0.0, 0.0)
        stays = stay_gathered(job)
        left = beyond_units(parts, counts) if stays and job.virtual == 1 else 0.0
        growing = (sum(stage.always.values()), step, *copied, left)
        rest = (backward, end, stays, sum(stage.reserved.values()))
        return [*map(float, growing)], [*map(float, rest)]

    ranks = [0, 1, job.pp - 1] if job.pp > 2 else list(range(job.pp))
    ones, (two, _) = [figures(1, rank) for rank in ranks], figures(2, 0)
    each = [b - a for a, b in zip(ones[0][0], two, strict=True)]
    found = [each]
    for growing, rest in ones:
        found.append([*(x - y for x, y in zip(growing, each, strict=True)), *rest])
    return found
