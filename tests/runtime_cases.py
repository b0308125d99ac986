"""Small problems of training systems that share Megatron's search, and every plan of theirs, made
without a line of the search."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ilp_planner.costs.training.job import layout_of
from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan, GroupStage, Plan
from ilp_planner.spaces.registry import build_problem
from ilp_planner.specs.decoder import Experts, LatentAttention
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.training import Recompute, Settings, TrainingJob
from tests.divided_layouts import DIVIDED, is_tried, ranks_in, takes
from tests.megatron_cases import (
    GIB,
    every_cut,
    every_layout,
    rank_groups,
    small_cluster,
    small_model,
)
from tests.training_jobs import LLAMA_LIKE

MIXTURE = Experts(count=4, top_k=2, ffn=256)
SHORT = {
    **{"layers": 3, "hidden": 512, "sequence": 2048, "heads": 4, "ffn": 1536, "vocab": 16000},
    **LLAMA_LIKE,
}
DEEPSEEK = {
    **SHORT,
    "latent": LatentAttention(query_rank=0, key_value_rank=64, key=64, rotary=32, value=64),
    "qk_norm": True,
    "experts": Experts(count=4, top_k=2, ffn=256, shared_ffn=256, dense_first=1),
}
MODELS = {
    "dense": SHORT,
    "grouped": {**SHORT, "kv_heads": 2},
    "experts": {**SHORT, "experts": MIXTURE},
    "latent": DEEPSEEK,
}


@dataclass(frozen=True)
class Degrees:
    """Of one job; etp: 0 for models without experts."""

    tp: int
    cp: int
    ep: int
    etp: int
    dp: int
    pp: int


def runtime_problem(space: str, model: str = "dense", **asked: Any) -> Problem:
    """Return the problem of a small model. asked: fields of a `Request`, the cluster, and fields of
    the model under `changes`."""
    cluster = asked.pop("cluster", None) or small_cluster()
    changes = asked.pop("changes", {})
    objects = {"cluster": cluster, "model": small_model(**{**MODELS[model], **changes})}
    request = Request(files={}, space=space, **{"global_batch": 4, **asked})
    return build_problem(InputFiles(request, objects=objects))


@st.composite
def problems(draw: st.DrawFn, space: str) -> Problem:
    """Draw a problem with much or little memory, fast or slow links, on two or four devices."""
    nodes, devices, slow = draw(st.sampled_from([(2, 1, 0), (2, 2, 0), (1, 4, 0), (1, 1, 1)]))
    return runtime_problem(
        space,
        draw(st.sampled_from(sorted(MODELS))),
        cluster=small_cluster(
            nodes, devices, slow=slow, between=draw(st.sampled_from((1e9, 2e10, 2e11)))
        ),
        global_batch=draw(st.sampled_from((4, 6, 8))),
        memory_limit=int(draw(st.sampled_from((1.3, 1.6, 2.0, 3.0, 9.0))) * GIB),
        changes={"vocab": draw(st.sampled_from((501, 16000)))},
    )


def solved_job(problem: Problem) -> TrainingJob | None:
    """Return the job of the best plan, as an export takes it; None where nothing fits."""
    plan = solve(problem).plan
    if plan is None:
        return None
    model = ModelSpec(
        name=problem.model,
        precision="bf16",
        architecture=problem.costs.model,  # type: ignore[attr-defined]
    )
    return job_of_plan(plan, model, problem.cluster)


ENDS_ALONE = {2: 5, 4: 10, 8: 15}  # layers by pp, of virtual stages whose ends have none


@cache
def ends_alone(space: str, pp: int) -> TrainingJob:
    """Return the best job with virtual stages that have the embedding and the output alone."""
    demands = {"remainder": "alone", "pp": pp, "virtual_stages": "2..4"}
    problem = runtime_problem(
        space,
        cluster=small_cluster(1, 2 * pp),
        global_batch=16,
        changes={"layers": ENDS_ALONE[pp]},
        constraints=constraints_of(demands),
    )
    found = solved_job(problem)
    assert found is not None
    assert found.virtual > 1
    assert found.stages[0].layers == found.stages[-1].layers == 0
    return found


def torchtitan_settings(base: Settings, d: Degrees) -> Iterator[Settings]:
    """Yield how torchtitan may train under some degrees, with what it refuses among it."""
    common = replace(base, cp=d.cp, ep=d.ep, etp=d.etp, sequence_parallel=d.tp > 1)
    own = replace(base.optimizer, overlap_gradients=d.pp == 1, overlap_parameters=True)
    for how in ("all_gather", "p2p") if d.cp > 1 else ("p2p",):
        if not replicated(d):
            alone = replace(own, sharding="none", instances=1, from_master=False)
            yield replace(common, cp_comm=how, optimizer=alone)
            continue
        kinds = ("gradients", "parameters")
        for sharding, instances in (*itertools.product(kinds, divisors(d.dp)), ("none", 1)):
            optimizer = replace(own, sharding=sharding, instances=instances, from_master=True)
            yield replace(common, cp_comm=how, optimizer=optimizer)


def deepspeed_settings(base: Settings, d: Degrees) -> Iterator[Settings]:
    """Yield how DeepSpeed may train under some degrees, with what it refuses among it."""
    stages = ("none", "optimizer", "gradients", "parameters")
    for sharding in stages if replicated(d) else ("optimizer",):
        yield replace(
            base,
            cp=d.cp,
            ep=d.ep,
            etp=d.etp,
            sequence_parallel=d.tp > 1 and d.pp > 1,
            optimizer=replace(
                base.optimizer,
                sharding=sharding,
                overlap_gradients=d.pp == 1 and sharding != "none",
            ),
        )


def replicated(d: Degrees) -> bool:
    """Tell whether several ranks have the same parameters, of experts or of the rest."""
    return d.dp * d.cp > 1 or (d.etp > 0 and d.tp * d.cp * d.dp > d.ep * d.etp)


SETTINGS: dict[str, Callable[[Settings, Degrees], Iterator[Settings]]] = {
    "torchtitan": torchtitan_settings,
    "torchtitan@0.2.2": torchtitan_settings,
    "deepspeed": deepspeed_settings,
}
BY_OPERATORS = Recompute(granularity="selective", modules=("operators",))
SELECTIVE = {"torchtitan": [BY_OPERATORS], "torchtitan@0.2.2": [BY_OPERATORS], "deepspeed": []}
SCHEDULES = {"torchtitan": DIVIDED, "torchtitan@0.2.2": DIVIDED, "deepspeed": ()}
CHUNKS: dict[str, Callable[[int], tuple[int, ...]]] = {
    "torchtitan": lambda layers: (1,),
    "torchtitan@0.2.2": lambda layers: (1,),
    "deepspeed": divisors,
}


def every_plan(problem: Problem) -> Iterator[GroupPlan]:
    """Yield all plans that could be of the problem's space, legal or not."""
    space, costs = problem.space.name, problem.costs
    model, count = costs.model, problem.cluster.device_count  # type: ignore[attr-defined]
    again = [Recompute(), *SELECTIVE[space]] + [
        Recompute(granularity="full", method="uniform", layers=size)
        for size in CHUNKS[space](model.layers)
    ]
    for d in every_degrees(count, model.experts.count if model.experts else 0):
        if problem.global_batch % d.dp:
            continue
        for settings, nodes, size, virtual in itertools.product(
            SETTINGS[space](costs.settings, d),  # type: ignore[attr-defined]
            orders_of_nodes(problem),
            divisors(problem.global_batch // d.dp),
            range(1, model.layers + 1),
        ):
            each = problem.cluster.nodes[0].devices
            ranks = [node * each + i for node in nodes for i in range(each)]
            groups = rank_groups(ranks, d.tp * d.cp, d.dp, d.pp, size, settings.order)
            recomputed = [replace(settings, recompute=one) for one in again]
            alike = len(set(model.expert_layers)) == 1
            for stops in every_layout(model, d.pp, virtual, alike=alike):
                assert layout_of(stops, model).layers == model.layers
                stages = tuple(
                    GroupStage(start=a, stop=b, replicas=groups[k % d.pp])
                    for k, (a, b) in enumerate(itertools.pairwise(stops))
                )
                for made in recomputed:
                    yield Plan(
                        model=problem.model,
                        global_batch=problem.global_batch,
                        micro_batches=problem.global_batch // (size * d.dp),
                        stages=stages,
                        settings=made,
                        virtual=virtual,
                    )
            batches = problem.global_batch // (size * d.dp)
            for schedule, stops in every_divided(problem, d, virtual, batches):
                yield Plan(
                    model=problem.model,
                    global_batch=problem.global_batch,
                    micro_batches=batches,
                    stages=tuple(
                        GroupStage(start=a, stop=b, replicas=groups[rank])
                        for rank, (a, b) in zip(
                            ranks_in(schedule, d.pp, virtual),
                            itertools.pairwise(stops),
                            strict=True,
                        )
                    ),
                    settings=replace(settings, schedule=schedule),
                    virtual=virtual,
                )


def every_divided(
    problem: Problem, d: Degrees, virtual: int, micro_batches: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the schedules that divide backward passes, and where their virtual stages end."""
    length = problem.costs.model.layers + 2  # type: ignore[attr-defined]
    for schedule in SCHEDULES[problem.space.name]:
        if takes(schedule, d.pp, virtual, micro_batches):
            for stops in every_cut(length, d.pp * virtual):
                if is_tried(schedule, d.pp, stops):
                    yield schedule, stops


def every_degrees(count: int, experts: int) -> Iterator[Degrees]:
    """Yield all degrees of so many devices."""
    for tp, cp, pp in itertools.product(divisors(count), repeat=3):
        if count % (tp * cp * pp) == 0:
            pairs = [(ep, etp) for ep in divisors(experts) for etp in sorted({1, tp})]
            for ep, etp in pairs if experts else [(1, 0)]:
                yield Degrees(tp, cp, ep, etp, count // (tp * cp * pp), pp)


def orders_of_nodes(problem: Problem) -> list[tuple[int, ...]]:
    """Return the nodes type by type, in every order of the types."""
    kinds = problem.cluster.node_types
    return sorted(
        {
            tuple(n for one in types for n, kind in enumerate(kinds) if kind == one)
            for types in itertools.permutations(problem.cluster.type_names)
        }
    )
