"""Plans as training jobs and back; refusals name field, limit and a plan that can run."""

import dataclasses
from dataclasses import replace
from itertools import islice, pairwise

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.arguments import arguments_of_job, job_of_arguments
from ilp_planner.formats.megatron.plan import describe_job, job_of_plan, plan_of_job
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupStage, OperatorStage, Plan, Replica, Strategy
from ilp_planner.specs.chain_layers import segments
from ilp_planner.specs.cluster import NodeGroup
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.t5 import T5
from ilp_planner.specs.training import Recompute
from tests.examples import for_each, thinned
from tests.megatron_cases import MIXTURE, every_plan, small_cluster, small_model, small_problem

CLUSTER = small_cluster(2, 2)
MODEL = ModelSpec(
    name="small",
    precision="bf16",
    architecture=Gpt(layers=4, hidden=256, heads=4, sequence=512, vocab=2000),
)
COMMAND = "`ilp-plan solve --runtime megatron --model my.toml --cluster 8xT4 --global-batch-size 8`"
ASKED = Request(files={"model": Reference(name="my.toml"), "cluster": Reference(name="8xT4")})


def groups(stages, *, batches=4, batch=8):
    """Return a plan of (start, stop, replicas of devices, samples of each)."""
    return Plan(
        model="small",
        global_batch=batch,
        micro_batches=batches,
        stages=tuple(
            GroupStage(
                start=start,
                stop=stop,
                replicas=tuple(
                    Replica(devices=devices, samples=n)
                    for devices, n in zip(replicas, samples, strict=True)
                ),
            )
            for start, stop, replicas, samples in stages
        ),
    )


def operators(cuts, *, tp=2, dp=1, micro_batch=2, change=lambda s, i, name: {}):
    """Return a plan of operators cut before these layers, with changes to single strategies."""
    names = MODEL.operators
    starts = [segments(names)[layer].start for layer in cuts[:-1]] + [len(names)]
    stages = []
    for s, (start, stop) in enumerate(pairwise(starts)):
        strategies = tuple(
            Strategy(**{"tp": tp, "dp": dp, **change(s, i, names[i])}) for i in range(start, stop)
        )
        stages.append(
            OperatorStage(
                start=start,
                stop=stop,
                first_device=s * tp * dp,
                device_count=tp * dp,
                strategies=strategies,
            )
        )
    return Plan(model="small", global_batch=8, micro_batches=8 // micro_batch, stages=tuple(stages))


# ---- what can be said ---------------------------------------------------------------------------


def test_plans_of_the_space_survive():
    """Every legal plan of a small case becomes a job, and the job the plan."""
    problem = small_problem(CLUSTER, batch=4, layers=3)
    model = small_model(layers=3)
    count = 0
    for plan in every_plan(problem):
        if evaluate(problem, plan).legal:
            count += 1
            job = job_of_plan(plan, model, CLUSTER)
            assert plan_of_job(job, CLUSTER, model="small") == plan
            assert job.world == 4
            assert job.micro_batches == plan.micro_batches
    assert count > 100


def test_a_plan_without_settings_is_a_plain_job():
    plan = groups([(0, 3, [(0, 1)], [2]), (3, 6, [(2, 3)], [2])])
    job = job_of_plan(plan, MODEL, CLUSTER)
    assert describe_job(job) == "tp 2, dp 1, pp 2, micro-batch 2, layout Et*2|t*2L"
    assert job.settings.optimizer.sharding == "none"


def test_replicas_a_pipeline_apart_have_the_other_order():
    plan = groups([(0, 3, [(0,), (2,)], [1, 1]), (3, 6, [(1,), (3,)], [1, 1])], batches=4)
    assert job_of_plan(plan, MODEL, CLUSTER).settings.order == "tp-cp-ep-pp-dp"


def core(s, i, name):
    steps = ("score", "softmax", "dropout", "context")
    return {"recompute": any(name.endswith(f"attention-{step}") for step in steps)}


@for_each(
    ("change", "expected"),
    [
        (lambda s, i, name: {}, Recompute()),
        (core, Recompute(granularity="selective")),
        (lambda s, i, name: {"recompute": True},
         Recompute(granularity="full", method="uniform", layers=1)),
        (lambda s, i, name: {"recompute": i < 14 if s == 0 else 27 <= i < 40},
         Recompute(granularity="full", method="block", layers=1)),
    ],
)  # fmt: skip
def test_plans_of_operators_with_uniform_choices(change, expected):
    job = job_of_plan(operators((0, 3, 6), change=change), MODEL, CLUSTER)
    assert describe_job(job).startswith("tp 2, dp 1, pp 2, micro-batch 2, layout Et*2|t*2L")
    assert job.settings.recompute == expected


# ---- what cannot --------------------------------------------------------------------------------


@for_each(
    ("plan", "field", "limit"),
    [
        (groups([(0, 3, [(0, 1)], [2]), (3, 6, [(2,), (3,)], [1, 1])]), "stages[1].tp: found 1",
         "has one --tensor-model-parallel-size for all stages (2 in stage 0)"),
        (groups([(0, 3, [(0,), (1,)], [1, 1]), (3, 6, [(2,)], [2])]), "stages[1].dp: found 1",
         "has one data-parallel size for all stages (2 in stage 0)"),
        (groups([(0, 6, [(0,), (1,), (2,), (3,)], [3, 3, 1, 1])], batches=1),
         "stages[0].samples: found 1, 3", "has one --micro-batch-size for all replicas and stages"),
        (groups([(0, 6, [(0,), (2, 3)], [1, 1])]), "stages[0].tp: found 1 and 2",
         "has one --tensor-model-parallel-size for all replicas"),
        (groups([(0, 3, [(0, 2)], [2]), (3, 6, [(1, 3)], [2])]),
         "stages.devices: found another order", "gives consecutive ranks to the devices of a node"),
        (operators((0, 3, 6), change=lambda s, i, name: {"tp": 1, "dp": 2} if i == 30 else {}),
         "stages[1].strategies[3].tp: found 1",
         "has one --tensor-model-parallel-size for all layers and stages (2 in stage 0)"),
        (operators((0, 3, 6), change=lambda s, i, name: {"split": int(i == 2)}),
         "stages[0].strategies[2].split: found 1",
         "splits every product in its own dimension only"),
        (operators((0, 3, 6), change=lambda s, i, name: {"recompute": s == 0}),
         "stages.strategies.recompute: found other operators",
         "computes again attention's core of all layers"),
        (operators((0, 6), tp=1, dp=4, micro_batch=2), "micro_batch: found 2",
         "has one --micro-batch-size for all 4 replicas"),
    ],
)  # fmt: skip
def test_refusals_name_field_limit_and_a_plan_that_runs(plan, field, limit):
    with pytest.raises(PlanError) as error:
        job_of_plan(plan, MODEL, CLUSTER, ASKED)
    text = str(error.value)
    assert text.startswith(f"{field}")
    assert f"but Megatron-LM {limit}" in text
    assert "; nearest it can run: tp " in text
    assert ", layout E" in text
    assert " per iteration; " in text
    assert COMMAND in text
    assert "\n" not in text


def test_cuts_inside_a_layer_are_refused():
    plan = operators((0, 3, 6))
    first, second = plan.stages
    moved = dataclasses.replace(
        plan,
        stages=(
            dataclasses.replace(
                first, stop=first.stop + 2, strategies=first.strategies + first.strategies[:2]
            ),
            dataclasses.replace(second, start=first.stop + 2, strategies=second.strategies[2:]),
        ),
    )
    with pytest.raises(PlanError, match=r"stages\[0\].stop: found operator 29 .* whole layers"):
        job_of_plan(moved, MODEL, CLUSTER)


def test_unequal_stages_and_nodes_are_refused():
    plan = operators((0, 3, 6))
    first, second = plan.stages
    one = tuple(Strategy() for _ in first.strategies)
    smaller = dataclasses.replace(
        plan, stages=(dataclasses.replace(first, device_count=1, strategies=one), second)
    )
    with pytest.raises(PlanError, match=r"stages\[1\].devices: found 2, .* \(1 in stage 0\)"):
        job_of_plan(smaller, MODEL, CLUSTER)
    uneven = dataclasses.replace(
        CLUSTER, nodes=(*CLUSTER.nodes, NodeGroup(device="a100", devices=1))
    )
    with pytest.raises(PlanError, match="cluster: found nodes of 1, 2 devices"):
        job_of_plan(groups([(0, 6, [(0,)], [2])]), MODEL, uneven)


@for_each("plan", [operators((0, 3, 6)), groups([(0, 6, [(0, 1)], [2])])])
@for_each("count", [0, 3, 16])
def test_micro_batches_that_there_cannot_be_are_refused(plan, count):
    with pytest.raises(PlanError, match=rf"^micro_batches: found {count}, expected a divisor of"):
        job_of_plan(replace(plan, micro_batches=count), MODEL, CLUSTER)


def test_more_devices_or_operators_than_there_are_are_refused():
    plan = operators((0, 3, 6))
    with pytest.raises(
        PlanError, match=r"^stages.devices: found 4 devices, expected at most the 2"
    ):
        job_of_plan(plan, MODEL, small_cluster(1, 2))
    first, second = plan.stages
    count = len(MODEL.operators)
    longer = replace(
        second, stop=second.stop + 1, strategies=(*second.strategies, second.strategies[0])
    )
    with pytest.raises(
        PlanError, match=rf"^plan: found {count + 1} operators, expected the {count}"
    ):
        job_of_plan(replace(plan, stages=(first, longer)), MODEL, CLUSTER)


def test_the_nearest_plan_is_the_same_where_only_shares_differ():
    """Of a solved plan with uneven shares, the even ones."""
    problem = small_problem(CLUSTER, batch=8, max_stages=1, max_tp=1)
    plan = solve(problem).plan
    uneven = dataclasses.replace(
        plan,
        stages=tuple(
            dataclasses.replace(
                stage,
                replicas=(
                    dataclasses.replace(stage.replicas[0], samples=stage.replicas[0].samples + 1),
                    *stage.replicas[1:],
                ),
            )
            for stage in plan.stages
        ),
    )
    with pytest.raises(PlanError) as error:
        job_of_plan(uneven, small_model(), CLUSTER)
    assert describe_job(job_of_plan(plan, small_model(), CLUSTER)) in str(error.value)


def test_other_families_are_refused():
    t5 = T5(
        layers=2, hidden=256, heads=8, kv_channels=64, encoder_sequence=256, decoder_sequence=64,
        vocab=4096,
    )  # fmt: skip
    other = ModelSpec(name="t5", precision="bf16", architecture=t5)
    with pytest.raises(PlanError, match="family: found t5"):
        job_of_plan(groups([(0, 6, [(0,)], [2])]), other, CLUSTER)


def test_jobs_of_another_size_have_no_plan():
    job = job_of_plan(groups([(0, 3, [(0, 1)], [2]), (3, 6, [(2, 3)], [2])]), MODEL, CLUSTER)
    with pytest.raises(PlanError, match="found 8 devices, expected 4, one for each rank"):
        plan_of_job(job, small_cluster(4, 2))
    with pytest.raises(PlanError, match="global batch: found 7"):
        plan_of_job(dataclasses.replace(job, global_batch=7), CLUSTER)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 3, "max_cp": 4},
        pytest.param({"layers": 3, "experts": MIXTURE}, marks=pytest.mark.slow),
        {"layers": 3, "experts": MIXTURE, "bias": False, "gated": True, "tied": False},
    ],
    ids=["dense", "experts", "divided experts"],
)
def test_legal_plans_keep_every_rule_of_the_arguments(changes):
    """What the planner calls legal, the rules of the launch line do too; the line reads back."""
    tried = constraints_of({"sharding": "none,optimizer,parameters", "gradients": "fp32,bf16"})
    problem = small_problem(CLUSTER, batch=4, constraints=tried, **changes)
    model = small_model(**{key: value for key, value in changes.items() if key != "max_cp"})
    some = thinned(islice(every_plan(problem), 0, None, 61), 12)  # of all, with every choice
    count = 0
    for plan in (plan for plan in some if evaluate(problem, plan).legal):
        job = job_of_plan(plan, model, CLUSTER)
        arguments = arguments_of_job(job)
        assert check_arguments(arguments) == ()
        # A launch line does not say what GPUs it runs on.
        assert replace(job_of_arguments(arguments), gpu_architecture=job.gpu_architecture) == job
        count += 1
    assert count > 5
