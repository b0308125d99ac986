"""Random plans and requests, and the files that hold them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ilp_planner.base.files import Document
from ilp_planner.formats.saved_plan import SavedPlan, claim_of, verdict_of
from ilp_planner.inputs.constraints import CHOICES, DEGREES, Constraints, constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import HELD, Reference, Request
from ilp_planner.optimize.result import Result
from ilp_planner.plan import GroupStage, OperatorStage, Plan, Replica, Strategy
from ilp_planner.settings.domains import Together
from ilp_planner.settings.table import DEMANDS
from ilp_planner.specs.training import Kernels, Offload, OptimizerSettings, Recompute, Settings
from tests.mixed_cases import room_plan, room_problem, room_result
from tests.small import make_plan, make_problem, make_result

# Text of any length with everything that TOML, JSON and editors may put in a file.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def held(name: str, text: str) -> Reference:
    """Return an input whose content is held."""
    return Reference(name=name, sha256=Document(name, text).sha256, text=text)


OF_OPERATORS = Request(
    files={
        "model": held("models/tiny.toml", 'name = "tiny"\n'),
        "cluster": held("pair", '# ünïcode\r\nname = "pair"\n'),
        "profile": Reference(name="analytic"),
    },
    space="operators",
    global_batch=64,
    micro_batch_sizes=(1, 2, 4, 8),
    memory_limit=8.0 * 2**30,
    memory_limits={"gpu": 8.0 * 2**30},
    max_stages=2,
)
OF_LAYERS = Request(
    files={
        "hostfile": held("hostfile", "10.0.0.1 slots=2\n"),
        "clusterfile": held("clusterfile.json", "{}"),
        "profile": Reference(name="metis:profile", sha256="ef56"),
    },
    cost_model="metis",
    space="metis",
    memory_rule="metis",
    global_batch=16,
    micro_batch_sizes=(4, 2),
    memory_limit=8.0 * 2**30,
    memory_limits={"A100": 8.0 * 2**30, "T4": 0.5 + 2**30},
    max_tp=2,
    hidden=512,
    sequence=256,
    vocabulary=0,
)


def saved_operators(folder: Path) -> SavedPlan:
    """Return a plan of operators, not proved, with all that is saved of it."""
    problem = make_problem(folder)
    return saved(problem, make_result(problem, make_plan(problem), gap=0.01), OF_OPERATORS)


def saved_layers() -> SavedPlan:
    """Return a plan of layers, proved, with all that is saved of it."""
    problem = room_problem()
    return saved(problem, room_result(problem, room_plan(problem)), OF_LAYERS)


def saved(problem: Problem[Any], result: Result, request: Request) -> SavedPlan:
    """Return what is saved of a result with a plan, as if it were of a request."""
    assert result.plan is not None
    return SavedPlan(
        plan=result.plan,
        inputs=request,
        claim=claim_of(result, {"python": "3.11"}),
        verdict=verdict_of(problem, result.plan, result.evaluation),
        certificate=result.certificate,
    )


# ---- anything -----------------------------------------------------------------------------------

SETTINGS = st.builds(
    Settings,
    cp=st.integers(1, 4),
    ep=st.integers(1, 4),
    sequence_parallel=st.booleans(),
    precision=st.sampled_from(("bf16", "fp32")),
    recompute=st.sampled_from(
        (
            Recompute(),
            Recompute(granularity="selective", modules=("core_attn", "mlp")),
            Recompute(granularity="full", method="block", layers=3, distribute=True),
        )
    ),
    offload=st.sampled_from(
        (Offload(), Offload(layers=3), Offload(modules=("core_attn", "moe_act"), smallest=1))
    ),
    optimizer=st.builds(
        OptimizerSettings,
        offload=st.floats(0, 1),
        overlap_offload=st.booleans(),
        instances=st.integers(1, 3),
    ),
    kernels=st.builds(
        Kernels,
        capacity=st.floats(0, 8),
        fused_loss=st.booleans(),
        quantised=st.sampled_from(("fp8-current", "mxfp8")),
        number_format=st.sampled_from(("", "e4m3", "hybrid")),
        quantised_parameters=st.booleans(),
        exact_last=st.integers(0, 2),
        graphs=st.just("transformer_engine"),
        graphed=st.sampled_from(((), ("attn",), ("moe_router", "attn"))),
    ),
    overlap_tensor=st.booleans(),
)
STRATEGIES = st.builds(
    Strategy,
    tp=st.integers(1, 8),
    dp=st.integers(1, 8),
    split=st.integers(0, 1),
    recompute=st.booleans(),
)


@st.composite
def operator_stages(draw: st.DrawFn) -> tuple[OperatorStage, ...]:
    """Draw stages of operators, one after the other."""
    start, made = 0, []
    some = st.lists(STRATEGIES, min_size=1, max_size=20)
    for s, strategies in enumerate(draw(st.lists(some, min_size=1, max_size=4))):
        stop = start + len(strategies)
        count = draw(st.integers(1, 8))
        made.append(
            OperatorStage(
                start=start,
                stop=stop,
                first_device=s,
                device_count=count,
                strategies=tuple(strategies),
            )
        )
        start = stop
    return tuple(made)


@st.composite
def group_stages(draw: st.DrawFn) -> tuple[GroupStage, ...]:
    """Draw stages of layers on any devices; replicas of some differ in how many they have."""
    device, made = 0, []
    shares = st.lists(st.integers(0, 9), min_size=1, max_size=5)
    drawn = draw(st.lists(st.tuples(st.integers(1, 4), shares), min_size=1, max_size=5))
    for start, (tp, samples) in enumerate(drawn):
        replicas, unlike = [], draw(st.booleans())
        for share in samples:
            if unlike:
                tp = draw(st.integers(1, 4))
            replicas.append(Replica(devices=tuple(range(device, device + tp)), samples=share))
            device += tp
        made.append(GroupStage(start=start, stop=start + 1, replicas=tuple(replicas)))
    return tuple(made)


@st.composite
def plans(draw: st.DrawFn) -> Plan[Any]:
    """Draw a plan of either kind of stages, legal or not."""
    stages: tuple[Any, ...] = draw(st.one_of(operator_stages(), group_stages()))
    divisors = [v for v in range(1, len(stages) + 1) if len(stages) % v == 0]
    return Plan(
        model=draw(TEXTS),
        global_batch=draw(st.integers(1, 10**6)),
        micro_batches=draw(st.integers(1, 10**6)),
        stages=stages,
        settings=draw(st.none() | SETTINGS),
        virtual=draw(st.sampled_from(divisors)),
    )


NAMES = TEXTS.filter(lambda text: text and "\0" not in text)
BYTES = st.floats(1.0, 1e15)
COUNTS = st.none() | st.integers(1, 2**16)


LAYOUTS = (
    st.none()
    | st.sampled_from(("even", "Et*3|(tt|)*4mL", "E|t|L"))
    | st.lists(st.integers(0, 200), min_size=1, max_size=5)
)


# Names that are demanded together are one value, whose examples cannot all be joined.
MOST = {row.name: 1 for row in DEMANDS if isinstance(row.domain, Together)}


@st.composite
def constraints(draw: st.DrawFn) -> Constraints:
    """Draw demands of any kind, possible or not."""
    degrees = st.lists(st.integers(1, 2**16), max_size=3) | st.just("2..8") | st.none()
    return constraints_of(
        {
            **{name: draw(degrees) for name in DEGREES},
            "layout": draw(LAYOUTS),
            **{
                name: draw(st.lists(st.sampled_from(known), max_size=MOST.get(name)))
                for name, known in CHOICES.items()
            },
            "max_devices": draw(st.none() | st.integers(1, 65_536)),
            "without": draw(st.lists(st.sampled_from(("3", "node0", "big nodes")), max_size=2)),
            "headroom": draw(st.none() | st.integers(1, 2**50)),
        }
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request with held texts, of either space of inputs, sensible or not."""
    files = {kind: held(draw(NAMES), draw(TEXTS)) for kind in HELD if draw(st.booleans())}
    digest = draw(st.sampled_from(["", "ab12"]))
    files["profile"] = Reference(name=draw(NAMES), sha256=digest)
    limits = draw(st.none() | st.dictionaries(TEXTS, BYTES, min_size=1, max_size=3))
    return Request(
        files=files,
        cost_model=draw(NAMES),
        space=draw(TEXTS),
        memory_rule=draw(TEXTS),
        placement=draw(TEXTS),
        shares=draw(TEXTS),
        stage_tp=draw(TEXTS),
        seats=draw(TEXTS),
        experiment=draw(TEXTS),
        precision=draw(TEXTS),
        global_batch=draw(st.integers(1, 2**20)),
        micro_batch_sizes=tuple(draw(st.lists(st.integers(1, 64), max_size=4))),
        memory_limit=draw(st.none() | (st.just(max(limits.values())) if limits else BYTES)),
        memory_limits=limits,
        max_stages=draw(COUNTS),
        max_tp=draw(COUNTS),
        max_cp=draw(COUNTS),
        max_stage_nodes=draw(COUNTS),
        hidden=draw(COUNTS),
        sequence=draw(COUNTS),
        vocabulary=draw(st.none() | st.integers(0, 2**20)),
        constraints=draw(constraints()),
    )


def wherever(saved: SavedPlan) -> SavedPlan:
    """Return a saved plan whose references are the same from every folder."""

    def whole(name: str) -> str:
        kind, colon, path = name.rpartition(":")
        place = Path.cwd() / path
        return f"{kind}{colon}{place}" if place.exists() else name

    files = {k: replace(one, name=whole(one.name)) for k, one in saved.inputs.files.items()}
    return replace(saved, inputs=replace(saved.inputs, files=files))
