"""A small mixed cluster with made-up Metis profiles, as the files that a user has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ilp_planner as ilp
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result, Status, Stop
from ilp_planner.peers.metis.cluster import MetisCluster, MetisNode, metis_cluster_spec
from ilp_planner.peers.metis.files import write_metis_profile
from ilp_planner.peers.metis.source import ModelSizes
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica
from tests.metis_cases import synthetic_profile, write_metis_cluster
from tests.problems import build_group_problem

LAYERS = 6
SAVED = Path(__file__).parent / "formats" / "saved"  # a small decoder and such a cluster
SPEEDS = {"A100": 1.0, "T4": 3.0}
SIZES = ModelSizes(hidden=512, sequence=256, vocabulary=4000)
SIZE_OPTIONS = ["--hidden-size", "512", "--sequence-length", "256", "--vocab-size", "4000"]
ROOM = """\
name = "room"

[[nodes]]
device = "t4"
devices = 2

[[nodes]]
device = "a100"
count = 2
devices = 2

[devices.t4]
profile = "T4"
memory = "15 GiB"
peak.fp16 = "65 TFLOP/s"
sustained = 0.4
memory_bandwidth = "300 GB/s"
price = 0.5

[devices.a100]
profile = "A100"
memory = "80 GiB"
peak.fp16 = "312 TFLOP/s"
sustained = 0.7
memory_bandwidth = "2000 GB/s"
price = 2.0

[links.intra_node]
bandwidth = "40 GB/s"
latency = "10 us"

[links.inter_node]
bandwidth = "10 GB/s"
latency = "50 us"
"""


def decoder_problem(**said: object) -> Problem[Any]:
    """Return a small GPT on three nodes of two types: an embedding, two layers and a head."""
    return ilp.problem(
        model=SAVED / "tiny.toml",
        cluster=SAVED / "room.toml",
        space="groups",
        global_batch=24,
        **said,
    )


def room() -> MetisCluster:
    """Return one node of 2 T4 and two of 2 A100."""
    return MetisCluster(
        nodes=(
            MetisNode("10.0.0.1", "T4", 2, 10, 50, 15),
            MetisNode("10.0.0.2", "A100", 2, 10, 46, 80),
            MetisNode("10.0.0.3", "A100", 2, 10, 46, 80),
        )
    )


def write_room(folder: Path) -> None:
    """Write `room.toml`, `hostfile`, `clusterfile.json` and the folder `profile`."""
    (folder / "room.toml").write_text(ROOM)
    write_metis_cluster(room(), folder / "hostfile", folder / "clusterfile.json")
    write_metis_profile(synthetic_profile(SPEEDS, LAYERS), folder / "profile")


def room_problem(**options: Any) -> Problem:
    """Return the problem of these files, without reading any."""
    cluster = options.pop("cluster", room())
    settings: dict[str, Any] = {"model": "made-up", "global_batch": 16, "sizes": SIZES, **options}
    profile = settings.pop("profile", synthetic_profile(SPEEDS, LAYERS))
    return build_group_problem(
        metis_cluster_spec(cluster), profile, metis_cluster=cluster, **settings
    )


def room_plan(
    problem: Problem,
    stages: Sequence[tuple[int, int, int, Sequence[int]]] = (
        (0, 1, 1, (0, 1)),
        (1, 6, 2, (2, 3, 4, 5)),
    ),
    micro_batches: int = 4,
) -> GroupPlan:
    """Return a plan of stages (start, stop, tp, devices) with equal shares."""
    batch = problem.global_batch // micro_batches
    return Plan(
        model=problem.model,
        global_batch=problem.global_batch,
        micro_batches=micro_batches,
        stages=tuple(
            GroupStage(
                start=start,
                stop=stop,
                replicas=tuple(
                    Replica(devices=tuple(devices[i : i + tp]), samples=batch * tp // len(devices))
                    for i in range(0, len(devices), tp)
                ),
            )
            for start, stop, tp, devices in stages
        ),
    )


def room_result(problem: Problem, plan: GroupPlan | None, **changes: Any) -> Result:
    """Return a result with that plan, proved optimal; without one, unknown at the time limit."""
    evaluation = None if plan is None else evaluate(problem, plan)
    time = float("inf") if evaluation is None else evaluation.iteration_time
    bound = changes.get("bound", 0.5 if plan is None else time)
    key, names = problem.space.part_key, problem.space.part_names(problem)
    parts = [{key: name, "bound_s": bound, "by": "prices"} for name in names]
    values: dict[str, Any] = {
        "plan": plan,
        "evaluation": evaluation,
        "status": Status.UNKNOWN if plan is None else Status.OPTIMAL,
        "stopped_by": Stop.TIME if plan is None else Stop.PROOF,
        "objective": time,
        "bound": bound,
        "bound_source": "prices",
        "wall": 1.25,
        "solver": "fake",
        "seed": 0,
        "certificate": {"version": 1, "bound_s": bound, "parts": parts},
        "notes": ("a remark",),
    }
    return Result(**{**values, **changes})
