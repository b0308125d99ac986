"""A model, a cluster and plans that are small enough for tests of files, reports and commands."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ilp_planner.costs.profiles.analytic import analytic_profile
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result, Status, Stop
from ilp_planner.plan import OperatorStage, Plan, Strategy
from ilp_planner.spaces.operators.build import build_problem
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model_reader import read_model

ACESO = Path(__file__).parents[2] / "shared" / "data" / "aceso"
MODEL = """\
name = "tiny"
family = "gpt"
precision = "fp16"

[architecture]
layers = 2
hidden = 256
heads = 4
sequence = 128
vocab = 1024

[profile]
aceso = "gpt_tiny"
"""
CLUSTER = """\
name = "pair"

[[nodes]]
device = "gpu"
devices = 2

[devices.gpu]
memory = "8 GiB"
peak.fp16 = "100 TFLOP/s"
sustained = 0.5
memory_bandwidth = "900 GB/s"

[links.intra_node]
bandwidth = "40 GB/s"
latency = "20 us"

[links.inter_node]
bandwidth = "5 GB/s"
latency = "50 us"
"""


def write_specs(folder: Path) -> tuple[Path, Path]:
    """Write the model and the cluster; return their files."""
    model, cluster = folder / "tiny.toml", folder / "pair.toml"
    model.write_text(MODEL)
    cluster.write_text(CLUSTER)
    return model, cluster


def make_problem(folder: Path, *, cost_model: str = "native", global_batch: int = 64) -> Problem:
    """Return the problem of the two files."""
    model_file, cluster_file = write_specs(folder)
    model, cluster = read_model(model_file), read_cluster(cluster_file)
    profile = analytic_profile(model, cluster)
    return build_problem(model, cluster, profile, cost_model=cost_model, global_batch=global_batch)


def make_plan(problem: Problem, cuts: Sequence[int] = (15,), micro_batch: int = 4) -> Plan:
    """Return a plan with one device per stage; the first operators of each are recomputed."""
    ends = [0, *cuts, len(problem.costs.chain)]
    return Plan(
        model=problem.model,
        global_batch=problem.global_batch,
        micro_batches=problem.global_batch // micro_batch,
        stages=tuple(
            OperatorStage(
                start=start,
                stop=stop,
                first_device=s,
                device_count=1,
                strategies=tuple(Strategy(recompute=i < 3) for i in range(stop - start)),
            )
            for s, (start, stop) in enumerate(pairwise(ends))
        ),
    )


def make_result(problem: Problem, plan: Plan | None, *, gap: float = 0.0) -> Result:
    """Return a result with that plan; without one, unknown at the time limit."""
    if plan is None:
        return Result(
            plan=None,
            status=Status.UNKNOWN,
            stopped_by=Stop.TIME,
            objective=math.inf,
            bound=0.5,
            bound_source="work",
            wall=0.1,
            solver="fake",
            seed=0,
        )
    evaluation = evaluate(problem, plan)
    time = evaluation.iteration_time
    return Result(
        plan=plan,
        status=Status.FEASIBLE if gap else Status.OPTIMAL,
        stopped_by=Stop.TIME if gap else Stop.PROOF,
        objective=time,
        bound=time * (1 - gap),
        bound_source="chain-dp",
        wall=1.25,
        solver="fake",
        seed=0,
        evaluation=evaluation,
        certificate={
            "version": 1,
            "bound_s": time * (1 - gap),
            "parts": [
                {"micro_batch": size, "bound_s": time * (1 - gap), "by": "chain-dp"}
                for size in problem.micro_batch_sizes
            ],
        },
        notes=("a remark",),
    )
