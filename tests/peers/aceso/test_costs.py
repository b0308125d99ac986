"""Aceso's cost model against an independent scorer of Aceso's formulas, to nine digits."""

import itertools
import json
import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from ilp_planner.costs.operators import Surroundings
from ilp_planner.costs.profiles.table import MIB, RowKey
from ilp_planner.evaluate import evaluate
from ilp_planner.peers.aceso.costs import UNPROFILED_COLLECTIVE, AcesoCosts
from ilp_planner.peers.aceso.formats import read_aceso
from ilp_planner.peers.aceso.source import read_aceso_profile
from ilp_planner.plan import OperatorPlan, OperatorStage, Plan, Strategy
from ilp_planner.spaces.operators.build import build_problem
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.model_reader import read_model
from tests.examples import examples, for_each
from tests.oracle import ORACLE, oracle
from tests.tiny import make_profile, make_row

ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data" / "aceso"
PLANS = sorted((DATA / "plans").glob("*.json"))
EXACT = {"rel": 1e-9, "abs": 0.0}
MICRO_BATCHES = {"gpt": (1, 2, 4, 8), "t5": (1, 2, 4, 8), "resnet": (16, 32, 48, 64)}
CLUSTERS = {1: "1x4", 4: "1x4", 8: "1x8", 16: "2x8"}
# folder, family, size, largest node that its tables of collectives cover
CASES = (
    ("eurosys", "gpt", "1_3B", 8),
    ("eurosys", "gpt", "scale-layer", 8),
    ("miniset", "t5", "770M", 4),
    ("miniset", "resnet", "1B", 4),
)

pytestmark = pytest.mark.skipif(
    not (ORACLE.exists() and DATA.exists()), reason="no ../shared/oracles or ../shared/data/aceso"
)


@cache
def database(folder: str, family: str, size: str, per_node: int) -> Any:
    """Return the scorer's database of one model."""
    name = "scale-layer" if size == "scale-layer" else family
    return oracle().DB(str(DATA / folder), name, size, MICRO_BATCHES[family], per_node)


@cache
def costs_of(folder: str, family: str, size: str, per_node: int, layers: int) -> AcesoCosts:
    """Return our costs of the scorer's chain with so many layers."""
    profile = read_aceso_profile(DATA / folder, f"{family}_{size}", devices_per_node=per_node)
    chain = tuple(database(folder, family, size, per_node).ops(layers))
    return AcesoCosts(chain, family, profile)


@cache
def models() -> tuple[ModelSpec, ...]:
    """Return the models of the repository."""
    return tuple(read_model(path) for path in sorted((ROOT / "models").glob("*.toml")))


def model_of(data: dict[str, Any]) -> ModelSpec:
    """Return the model that a plan is for."""
    key = f"{data['model_name']}_{data['model_size']}"
    return next(
        model
        for model in models()
        if model.profile.get("aceso") == key
        and getattr(model.architecture, "layers", data["num_layers"]) == data["num_layers"]
    )


# ---- the plans that are there -------------------------------------------------------------------


@pytest.mark.slow
@for_each("path", PLANS)
def test_a_real_plan_costs_what_aceso_says(path: Path) -> None:
    data = json.loads(path.read_text())
    folder = "miniset" if path.stem.endswith("mini") else "eurosys"
    family, size = data["model_name"], data["model_size"]
    model = model_of(data)
    cluster = read_cluster(ROOT / "clusters" / f"v100-32gb-{CLUSTERS[sum(data['num_gpus'])]}.toml")
    per_node = cluster.devices_per_node
    profile = read_aceso_profile(DATA / folder, model.profile["aceso"], devices_per_node=per_node)
    problem = build_problem(
        model, cluster, profile, cost_model="aceso", global_batch=data["global_batch_size"]
    )
    plan = read_aceso(path, model)
    layers = 0 if family == "resnet" else data["num_layers"]
    db = database(folder, family, size, per_node)
    assert tuple(db.ops(layers)) == model.operators
    total_ms, stage_ms, stage_mib = oracle().evaluate(db, data, per_node, layers)
    judged = problem.costs.plan_cost(plan, cluster)
    stages = judged.stages
    assert [s.time * 1e3 for s in stages] == pytest.approx(stage_ms, **EXACT)
    assert [max(s.memory) / MIB for s in stages] == pytest.approx(stage_mib, **EXACT)
    assert judged.iteration_time * 1e3 == pytest.approx(total_ms, **EXACT)
    assert not any(s.unprofiled for s in stages)
    if plan.devices == cluster.device_count:
        assert evaluate(problem, plan).iteration_time == judged.iteration_time


# ---- random mixed plans -------------------------------------------------------------------------


class Case(NamedTuple):
    """A random plan, the scorer's database for it, and our costs."""

    db: Any
    costs: AcesoCosts
    plan: OperatorPlan
    per_node: int
    layers: int

    def __repr__(self) -> str:
        stages = [
            " ".join(
                f"{len(list(equal))}x(tp{x.tp} dp{x.dp} split{x.split}{' recompute' * x.recompute})"
                for x, equal in itertools.groupby(stage.strategies)
            )
            for stage in self.plan.stages
        ]
        what = f"{Path(self.db.path).name} {self.db.model} {self.layers} layers"
        where = f"{self.per_node} per node, micro-batch {self.plan.micro_batch_size}"
        return f"<{what}, {where}: {stages}>"


@st.composite
def random_plans(draw: st.DrawFn, database_of: tuple[str, str, str, int]) -> Case:
    """Draw a plan that mixes everything."""
    folder, family, size, largest = database_of
    per_node = draw(st.sampled_from([n for n in (1, 2, 4, 8) if n <= largest]))
    nodes = draw(st.sampled_from([1, 2]))
    layers = 0 if family == "resnet" else draw(st.sampled_from([2, 3, 24]))
    db = database(folder, family, size, per_node)
    costs = costs_of(folder, family, size, per_node, layers)
    micro_batch = draw(st.sampled_from(MICRO_BATCHES[family]))
    # one seed for what is drawn per operator: hundreds of draws would be too many
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups: list[int] = []
    while (used := sum(groups)) < nodes * per_node:
        fits = [g for g in (1, 2, 4, 8) if used % per_node + g <= per_node]
        groups.append(draw(st.sampled_from(fits)))
    n = len(costs.chain)
    cuts = rng.choice(np.arange(1, n), size=len(groups) - 1, replace=False)
    edges = [0, *sorted(cuts.tolist()), n]
    change = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))  # how often neighbours differ
    flagged = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    stages = []
    for s, g in enumerate(groups):
        ways = [
            (t, g // t, split)
            for t in db.tps
            for split in db.algos
            if t <= g
            and micro_batch % (g // t) == 0
            and micro_batch * t // g in MICRO_BATCHES[family]
        ]
        way = ways[rng.integers(len(ways))]
        strategies = []
        for _ in range(edges[s], edges[s + 1]):
            if rng.random() < change:
                way = ways[rng.integers(len(ways))]
            tp, dp, split = way
            flag = bool(rng.random() < flagged)
            strategies.append(Strategy(tp=tp, dp=dp, split=split, recompute=flag))
        stages.append(
            OperatorStage(
                start=edges[s],
                stop=edges[s + 1],
                first_device=sum(groups[:s]),
                device_count=g,
                strategies=tuple(strategies),
            )
        )
    count = draw(st.integers(1, 64))
    plan = Plan(
        model="random", global_batch=micro_batch * count, micro_batches=count, stages=tuple(stages)
    )
    return Case(db, costs, plan, per_node, layers)


def position(plan: OperatorPlan, s: int, per_node: int) -> tuple[int, bool, bool]:
    """Return the stages after this one, and whether it begins and ends at a node's edge."""
    stage = plan.stages[s]
    end = stage.first_device + stage.device_count
    enters = stage.first_device > 0 and stage.first_device % per_node == 0
    return len(plan.stages) - 1 - s, enters, end % per_node == 0


def said_of(case: Case, s: int) -> tuple[float, float]:
    """Return the scorer's ms and MiB of a stage; inf where there is no way between layouts."""
    stage = case.plan.stages[s]
    arguments = (
        case.db,
        case.costs.chain[stage.start : stage.stop],
        [x.tp for x in stage.strategies],
        [x.dp for x in stage.strategies],
        [x.split for x in stage.strategies],
        [int(x.recompute) for x in stage.strategies],
        case.plan.micro_batch_size,
        *position(case.plan, s, case.per_node),
        *((0, 2) if case.db.fam == "resnet" else (2, 4)),
    )
    try:
        ms, mib = oracle().stage(*arguments, case.db.fam != "t5")
    except ValueError:
        return math.inf, oracle().stage(*arguments, False)[1]
    return ms, mib


def as_aceso(plan: OperatorPlan) -> dict[str, Any]:
    """Return what the scorer reads of a plan."""
    each = [stage.strategies for stage in plan.stages]
    return {
        "global_batch_size": plan.global_batch,
        "micro_batch_size": plan.micro_batch_size,
        "num_stages": len(each),
        "num_ops_in_each_stage": [len(xs) for xs in each],
        "model_parallel_size_of_each_op": [[x.tp for x in xs] for xs in each],
        "data_parallel_size_of_each_op": [[x.dp for x in xs] for xs in each],
        "recompute_ops": [[int(x.recompute) for x in xs] for xs in each],
        "algo_of_each_op": [[x.split for x in xs] for xs in each],
    }


@pytest.mark.parametrize("of", CASES, ids=lambda case: "-".join(case[:3]))
@examples(150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_random_plan_costs_what_aceso_says(
    of: tuple[str, str, str, int], data: st.DataObject
) -> None:
    case = data.draw(random_plans(of))
    plan = case.plan
    times = []
    for s, stage in enumerate(plan.stages):
        behind, enters, leaves = position(plan, s, case.per_node)
        cost = case.costs.stage_cost(
            stage,
            Surroundings(
                micro_batch=plan.micro_batch_size,
                micro_batches=plan.micro_batches,
                behind=behind,
                enters_node=enters,
                leaves_node=leaves,
            ),
        )
        their_ms, their_mib = said_of(case, s)
        assert cost.time * 1e3 == pytest.approx(their_ms, **EXACT)
        assert cost.memory == pytest.approx((their_mib * MIB,), **EXACT)
        times.append(cost.time)
    if all(map(math.isfinite, times)):
        total, _, _ = oracle().evaluate(case.db, as_aceso(plan), case.per_node, case.layers)
        ours = plan.schedule.iteration_time(times)
        assert ours * 1e3 == pytest.approx(total, **EXACT)


# ---- messages and collectives -------------------------------------------------------------------


@examples(100)
@given(st.floats(2.0**-10, 2.0**14), st.booleans())
def test_a_message_takes_what_aceso_says(mib: float, between_nodes: bool) -> None:
    db = database("eurosys", "gpt", "1_3B", 8)
    costs = costs_of("eurosys", "gpt", "1_3B", 8, 1)
    theirs = db.p2p_us(mib, between_nodes) * 1e-6
    assert costs.transfer(mib * MIB, between_nodes) == pytest.approx(theirs, **EXACT)


@for_each(
    ("mib", "place"), [(0.2, -2), (0.5, -1), (1.0, 0), (2.0, 0), (3.9, 0), (4.0, 1), (99.0, 3)]
)
def test_a_bandwidth_is_read_one_power_of_two_too_low(mib: float, place: int) -> None:
    """From the second place on; small messages read from the end of the table, and large ones have
    its last number."""
    key = RowKey(operator="fc", micro_batch=1, tp=1, split=0)
    bandwidths = (1e9, 2e9, 3e9, 4e9)
    profile = make_profile({key: make_row()}, intra_node=bandwidths)
    costs = AcesoCosts(("fc",), "resnet", profile)
    assert costs.transfer(mib * MIB, between_nodes=False) == mib * MIB / bandwidths[place]


def test_no_message_takes_no_time() -> None:
    costs = costs_of("eurosys", "gpt", "1_3B", 8, 1)
    assert costs.transfer(0.0, between_nodes=True) == 0.0


@pytest.mark.parametrize("of", CASES[1::2], ids=lambda case: "-".join(case[:3]))
@examples(50)
@given(data=st.data())
def test_a_collective_takes_what_aceso_says(
    of: tuple[str, str, str, int], data: st.DataObject
) -> None:
    db, costs = database(*of), costs_of(*of, 2)
    primitive, devices = data.draw(st.sampled_from(sorted(db.coll)))
    sizes = sorted(map(int, db.coll[primitive, devices]))
    mib = data.draw(
        st.floats(0.0, 2.0)  # 0 is a size in the tables, and rounding is to even
        | st.sampled_from(sizes).flatmap(lambda size: st.floats(size, size + 2.0))
    )
    theirs = oracle().coll_ms(db, primitive, devices, mib) * 1e-3
    assert costs.collective(primitive, devices, mib * MIB) == pytest.approx(theirs, **EXACT)


def test_one_less_than_a_small_size_is_not_the_size_zero() -> None:
    # Aceso looks for "1", then for "-0", which is not "0"
    key = RowKey(operator="fc", micro_batch=1, tp=1, split=0)
    profile = make_profile({key: make_row()}, collectives={("all_gather", 2): {0: 1e-3}})
    costs = AcesoCosts(("fc",), "resnet", profile)
    assert costs.collective("all_gather", 2, 0.5 * MIB) == 1e-3
    assert costs.collective("all_gather", 2, 0.625 * MIB) == UNPROFILED_COLLECTIVE
    assert costs.collective("all_gather", 2, 1.0 * MIB) == 1e-3
    assert costs.collective("all_gather", 2, 1.5 * MIB) == 1e-3  # 0.5 is rounded to even
    assert costs.collective("all_gather", 2, 1.75 * MIB) == UNPROFILED_COLLECTIVE


def test_an_operator_that_is_not_profiled_is_named() -> None:
    chain = ("enc-MLP-gelu", "enc-1st-layernorm")
    key = RowKey(operator="enc-MLP-gelu", micro_batch=1, tp=1, split=0)
    costs = AcesoCosts(chain, "gpt", make_profile({key: make_row()}))
    stage = OperatorStage(
        start=0, stop=2, first_device=0, device_count=1, strategies=(Strategy(),) * 2
    )
    cost = costs.stage_cost(
        stage,
        Surroundings(
            micro_batch=1, micro_batches=1, behind=0, enters_node=False, leaves_node=False
        ),
    )
    assert cost.unprofiled == (
        "operator 1 with tp 1, 1 samples per replica, split 0 (1 such operators)",
    )
    assert cost.time > 2.0  # what Aceso charges for a file that is not there
    assert max(cost.memory) > 8e6 * MIB
    assert costs.missing.activations == 1e6 * MIB
    row = costs.profile.rows[key]
    other = RowKey(operator="enc-MLP-gelu", micro_batch=2, tp=1, split=0)
    more = AcesoCosts(chain[:1], "gpt", make_profile({key: row, other: row}))
    (found,) = more.stage_cost(
        OperatorStage(start=0, stop=1, first_device=0, device_count=1, strategies=(Strategy(),)),
        Surroundings(
            micro_batch=3, micro_batches=1, behind=0, enters_node=False, leaves_node=False
        ),
    ).unprofiled
    assert "3 samples" in found  # nothing is predicted from those of 1 and of 2
