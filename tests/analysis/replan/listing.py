"""What ranks hold, parameter by parameter: listed, without a line of the planner's arithmetic."""

from itertools import product

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ilp_planner.job.holdings import COLUMNS, KINDS, ROWS
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import ORDERS, SHARDINGS, OptimizerSettings, Settings, TrainingJob
from tests.training_jobs import TUNINGS, llama

LAYERS = 4
MODEL = llama(
    layers=LAYERS, vocab=96, experts=Experts(count=4, top_k=2, ffn=96, shared_ffn=64, dense_first=1)
)
SHAPE = {False: (1, 16, 4), True: (4, 16, 4)}  # experts, rows, columns; of an expert's tensors

Listing = list[set[tuple[object, ...]]]


@st.composite
def jobs(draw: st.DrawFn, worlds: tuple[int, ...] = (4, 8)) -> TrainingJob:
    """Draw a job of some ranks of a small model with experts."""
    world = draw(st.sampled_from(worlds))
    degrees = [d for d in product((1, 2, 4), repeat=4) if np.prod(d) == world]
    tp, cp, pp, dp = draw(st.sampled_from(degrees))
    stage = tp * cp * dp
    grids = [(ep, etp) for ep in (1, 2, 4) for etp in {1, tp} if stage % (ep * etp) == 0]
    ep, etp = draw(st.sampled_from(grids))
    replicas = stage // (ep * etp)
    # Replicas outermost, experts must have the pipelines of the other parameters.
    orders = ORDERS if pp == 1 or ep * etp == tp * cp else ORDERS[:1]
    instances = [n for n in (1, 2) if cp * dp % n == 0 and replicas % n == 0]
    sharding = draw(st.sampled_from(SHARDINGS))
    optimizer = OptimizerSettings(
        sharding=sharding,
        from_master=sharding in SHARDINGS[2:] and draw(st.booleans()),
        instances=draw(st.sampled_from(instances)),
    )
    virtual = draw(st.sampled_from((1, 2))) if pp == 2 else 1
    count = pp * virtual - 1
    cuts = sorted(draw(st.lists(st.integers(0, LAYERS), min_size=count, max_size=count)))
    return TrainingJob(
        model=MODEL, micro_batch=1, global_batch=64, tp=tp, pp=pp, dp=dp,
        layout=split_layout(np.diff([0, *cuts, LAYERS]).tolist()),
        settings=Settings(
            cp=cp, ep=ep, etp=etp, order=draw(st.sampled_from(orders)), vocab_multiple=1,
            sequence_parallel=tp > 1, optimizer=optimizer,
            tuning=TUNINGS[draw(st.sampled_from(sorted(TUNINGS)))],
        ),
    )  # fmt: skip


def dense_places(job: TrainingJob) -> list[dict[str, int]]:
    """Return the coordinates of every rank, as nested loops number them."""
    outer = ("pp", "dp") if job.settings.order == ORDERS[0] else ("dp", "pp")
    sizes = {"tp": job.tp, "cp": job.settings.cp, "dp": job.dp, "pp": job.pp}
    return loops((*outer, "cp", "tp"), sizes)


def expert_places(job: TrainingJob) -> list[dict[str, int]]:
    """Return the coordinates of every rank in the grid of experts."""
    outer = ("pp", "dp") if job.settings.order == ORDERS[0] else ("dp", "pp")
    sizes = {"tp": job.expert_tp, "cp": job.settings.ep, "dp": job.expert_dp, "pp": job.pp}
    return loops((*outer, "cp", "tp"), sizes)


def loops(names: tuple[str, ...], sizes: dict[str, int]) -> list[dict[str, int]]:
    """Return all coordinates, the last name fastest."""
    every = product(*(range(sizes[name]) for name in names))
    return [dict(zip(names, place, strict=True)) for place in every]


def chunk(values: NDArray[np.int64], axis: int, number: int, count: int) -> NDArray[np.int64]:
    """Return one of equal parts."""
    return np.split(values, count, axis=axis)[number]


def listed(job: TrainingJob) -> Listing:
    """Return for every rank the (unit, kind, weight or state, number) that it holds of a model
    whose layers, embedding and output have one tensor of each kind of the job's model."""
    return [_of_rank(job, rank) for rank in range(job.world)]


def _of_rank(job: TrainingJob, rank: int) -> set[tuple[object, ...]]:
    found: set[tuple[object, ...]] = set()
    optimizer = job.settings.optimizer
    for number, kind in enumerate(KINDS):
        place = (expert_places if kind.expert else dense_places)(job)[rank]
        values = np.arange(np.prod(SHAPE[kind.expert])).reshape(SHAPE[kind.expert])
        if kind.expert:
            values = chunk(values, 0, place["cp"], job.settings.ep)
            ways, replica, replicas = job.expert_tp, place["dp"], job.expert_dp
        else:
            ways, replicas = job.tp, job.settings.cp * job.dp
            replica = place["cp"] + job.settings.cp * place["dp"]
        if kind.axis in (ROWS, COLUMNS):
            values = chunk(values, kind.axis, place["tp"], ways)
        sharing = replicas // optimizer.instances
        share = chunk(values, 1, replica % sharing, sharing)
        level = SHARDINGS.index(optimizer.sharding)
        held = {
            "weights": share if level == 3 or optimizer.from_master else values,
            "states": share if level >= 1 else values,
        }
        for unit in units_of(job, place["pp"]):
            for what, which in held.items():
                found |= {(unit, number, what, n) for n in which.ravel().tolist()}
    return found


def units_of(job: TrainingJob, pp: int) -> set[int]:
    """Return the units of a pipeline rank: the embedding, layers from 1 on, and the output."""
    found: set[int] = set()
    layer = 1
    for number, stage in enumerate(job.stages):
        own = set(range(layer, layer + stage.layers))
        layer += stage.layers
        own |= {0} if stage.embedding else set()
        own |= {LAYERS + 1} if stage.loss else set()
        found |= own if number % job.pp == pp else set()
    return found
