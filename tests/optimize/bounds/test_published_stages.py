"""No stage of a published plan is faster than its bound, nor than its exact optimum."""

from functools import cache
from pathlib import Path

from ilp_planner.base.units import parse_size
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.bounds.pipeline import Place
from ilp_planner.optimize.bounds.stages import StageBounds
from ilp_planner.peers.aceso.formats import read_aceso
from ilp_planner.peers.aceso.source import read_aceso_profile
from ilp_planner.spaces.operators.build import build_problem
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model_reader import read_model
from tests.examples import for_each

ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data" / "aceso"
MODELS = {
    "gpt_1_3B": "gpt3-1.3b",
    "gpt_2_6B": "gpt3-2.6b",
    "gpt_6_7B": "gpt3-6.7b",
    "t5_770M": "t5-770m",
    "resnet_1B": "wide-resnet-1b",
    "resnet_2B": "wide-resnet-2b",
    "resnet_4B": "wide-resnet-4b",
    "scale_64L": "scale-layer-64",
    "scale_256L": "scale-layer-256",
}
CLUSTERS = {"4g": "v100-32gb-1x4", "8g": "v100-32gb-1x8", "16g": "v100-32gb-2x8"}
PLANS = [
    (plan, model, cluster)
    for plan in sorted((DATA / "plans").glob("*.json"))
    for key, model in MODELS.items()
    for devices, cluster in CLUSTERS.items()
    if f"_{key}_{devices}" in plan.stem
]
ROUNDING = 1e-9


@cache
def read_profile(small, name, devices):
    database = DATA / ("miniset" if small else "eurosys")
    return read_aceso_profile(database, name, devices_per_node=devices)


@for_each(("file", "model", "cluster"), PLANS)
def test_no_published_stage_beats_its_bound(file, model, cluster):
    small = file.stem.endswith("mini")
    spec, machine = (
        read_model(ROOT / "models" / f"{model}.toml"),
        read_cluster(ROOT / "clusters" / f"{cluster}.toml"),
    )
    plan = read_aceso(file, spec)
    profile = read_profile(small, spec.profile["aceso"], machine.devices_per_node)
    problem = build_problem(
        spec,
        machine,
        profile,
        cost_model="aceso",
        global_batch=plan.global_batch,
        memory_limit=parse_size("12000 MiB" if small else "28000 MiB"),
    )
    judged = evaluate(problem, plan)
    assert judged.legal
    bounds = StageBounds(
        problem.costs,
        micro_batch=plan.micro_batch_size,
        micro_batches=plan.micro_batches,
        groups=problem.space.stage_sizes(problem),
        limit=problem.memory_limit,
    )
    per_node = machine.devices_per_node
    for s, (stage, cost) in enumerate(zip(plan.stages, judged.stages, strict=True)):
        place = Place(
            stage.device_count,
            len(plan.stages) - 1 - s,
            stage.first_device > 0 and stage.first_device % per_node == 0,
            (stage.first_device + stage.device_count) % per_node == 0,
        )
        entry = bounds.entry(stage.device_count, stage.start, stage.stop)
        key = bounds.key(place, entry)
        assert bounds.bound(key) <= cost.time * (1 + ROUNDING)
        way = bounds.refine(
            key, stage.start, stage.stop, cutoff=cost.time * (1 + 1e-6), effort=10_000_000
        )
        assert way.optimum.bound <= cost.time * (1 + ROUNDING)
        assert bounds.bound(key) <= cost.time * (1 + ROUNDING)
