"""Search one case of the suite `peers` in a process of its own and print JSON.

python -m tests.benchmarks.peers_one BEGUN CASE COSTS SECONDS

BEGUN: seconds since the epoch, of the moment at which the process was started. COSTS: `peer` or
`native`. Every plan that improves the incumbent is judged by the peer's formulas, behind the
search.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ilp_planner.base.deadline import Deadline, OutOfTimeError
from ilp_planner.costs.profiles.layer_table import layer_profile
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.search.state import SearchState
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.peers.sailor.cluster import sailor_cluster
from ilp_planner.peers.sailor.profile import read_sailor_profile, sailor_table
from ilp_planner.plan import GroupPlan, GroupStage, Plan
from ilp_planner.plan import Replica as Group
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.degrees import divisors
from tests.benchmarks import peers, piper
from tests.benchmarks.sailor_costs import SailorCosts, with_curves
from tests.benchmarks.sailor_score import Replica, Stage
from tests.benchmarks.sailor_space import best_plan
from tests.problems import build_group_problem
from tests.sailor_cases import MODEL, write_published, write_quotas

Judge = Callable[[GroupPlan], dict[str, Any]]


def sailor_problem(case: peers.SailorCase, costs: str) -> tuple[Problem[Any], Judge]:
    """Return a problem of Sailor's files as they are imported, and Sailor's judgement."""
    with tempfile.TemporaryDirectory() as name:
        folder = write_published(Path(name) / "sailor")
        quotas = write_quotas(Path(name) / "quotas.json", a100=case.a100, v100=case.v100)
        read = read_sailor_profile(folder, MODEL)
        cluster = sailor_cluster(folder, quotas, read)
    sailor = peers.read_sailor()
    profile = with_curves(layer_profile(sailor_table(read)))
    problem = build_group_problem(cluster, profile, model=MODEL, global_batch=case.batch)
    if costs == "peer":
        costs_of = SailorCosts(sailor, profile, problem.memory_limits)
        problem = replace(problem, costs=costs_of, micro_batches=divisors(case.batch))

    def judge(plan: GroupPlan) -> dict[str, Any]:
        stages = stages_of(plan, cluster)
        return {"judged_s": sailor.seconds(stages, plan.micro_batches), "fits": sailor.fits(stages)}

    return problem, judge


def stages_of(plan: GroupPlan, cluster: ClusterSpec) -> list[Stage]:
    """Return a plan's stages in Sailor's terms."""
    return [
        Stage(
            start=stage.start,
            stop=stage.stop,
            replicas=Counter(
                Replica(cluster.type_of[replica.devices[0]], stage.tp, replica.samples)
                for replica in stage.replicas
            ),
        )
        for stage in plan.stages
    ]


def own_cost(problem: Problem[Any], case: peers.SailorCase) -> float | None:
    """Return what the best plan of Sailor's space takes by the problem's own costs; None: the
    planner has no such plans, or it does not fit."""
    gpus = {"A100-40": case.a100, "V100-16": case.v100}
    found = best_plan(peers.read_sailor(), gpus, case.batch)
    if found is None:
        return None
    cluster = problem.cluster
    free = {
        gpu: [d for d in range(cluster.device_count) if cluster.type_of[d] == gpu] for gpu in gpus
    }
    stages = []
    for stage in found.stages:
        if len({replica.tp for replica in stage.replicas}) > 1:
            return None
        groups = []
        for (gpu, tp, samples), count in stage.replicas.items():
            for _ in range(count):
                groups.append(Group(devices=tuple(free[gpu][:tp]), samples=samples))
                del free[gpu][:tp]
        stages.append(GroupStage(start=stage.start, stop=stage.stop, replicas=tuple(groups)))
    plan = Plan(
        model=problem.model,
        global_batch=case.batch,
        micro_batches=found.micro_batches,
        stages=tuple(stages),
    )
    judgement = evaluate(problem, plan)
    return judgement.iteration_time if judgement.legal else None


def piper_problem(case: peers.PiperCase) -> tuple[Problem[Any], Judge]:
    """Return a problem of Piper's loads, and Piper's judgement."""
    chain = piper.read_chain()
    problem = build_group_problem(
        piper.cluster_of(chain, case.devices),
        piper.profile_of(chain),
        model="bert32",
        global_batch=chain.batch,
    )
    own = piper.PiperCosts(chain, problem.memory_limits)
    problem = replace(problem, costs=own, micro_batches=divisors(chain.batch))

    def judge(plan: GroupPlan) -> dict[str, Any]:
        parts = [piper.Part(s.start, s.stop, s.tp, s.dp) for s in plan.stages]
        return {
            "load_s": chain.seconds(parts),
            "judged_s": chain.timeline(parts),
            "fits": chain.fits(parts),
        }

    return problem, judge


def search(problem: Problem[Any], judge: Judge, begun: float, seconds: float) -> dict[str, Any]:
    """Solve; return every plan that was the best for a while, judged, and what is proved."""
    kept: list[tuple[float, GroupPlan]] = []

    def heard(incumbent: float, bound: float) -> None:
        """Keep the plan whenever it is another one."""
        del incumbent, bound
        if state.plan is not None and (not kept or kept[-1][1] is not state.plan):
            kept.append((time.time() - begun, state.plan))

    task = Task(Limits(seconds=seconds), "auto", heard, Deadline(seconds))
    state: SearchState = problem.space.begin(problem, task)
    try:
        stop = problem.space.search(state)
    except OutOfTimeError:
        stop = Stop.TIME
    finally:
        state.end()  # or its processes are waited for
    result = state.result(stop, ())
    plan = result.plan
    if plan is None:
        return {"plans": [], "bound_s": result.bound, "gap": None, "stages": []}
    return {
        "plans": [{"at_s": at, **judge(one)} for at, one in kept],
        "objective_s": result.objective,
        "bound_s": result.bound,
        "gap": result.gap,
        "stopped_by": str(result.stopped_by),
        "micro_batches": plan.micro_batches,
        "stages": [
            {
                "layers": stage.stop - stage.start,
                "tp": stage.tp,
                "samples": dict(
                    Counter(
                        f"{problem.cluster.type_of[r.devices[0]]} x {r.samples}"
                        for r in stage.replicas
                    )
                ),
            }
            for stage in plan.stages
        ],
    }


def main() -> None:
    """Search, print."""
    begun, name, costs, seconds = sys.argv[1:]
    case = next(case for case in peers.CASES if case.name == name)
    problem, judge = (
        sailor_problem(case, costs) if isinstance(case, peers.SailorCase) else piper_problem(case)
    )
    row = search(problem, judge, float(begun), float(seconds))
    if isinstance(case, peers.SailorCase):
        row["peer_plan_s"] = own_cost(problem, case)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
