"""torchtitan's space: how FSDP shards with and without a pipeline."""

from dataclasses import replace

import pytest

from ilp_planner.base.errors import InfeasibleError, PlanError, SpecError, UsageError
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.stages import describe_training
from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.formats.torchtitan_python import export_torchtitan_python
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.job.memory import memory_parts, stage_of_rank
from ilp_planner.optimize.solve import solve
from ilp_planner.schedule.formulas import PIPELINES
from ilp_planner.settings.table import NO_SETTING
from ilp_planner.spaces.training.enumerate.recomputations import BY_OPERATORS, FULL
from ilp_planner.spaces.training.torchtitan import EARLIER, NEWEST, Torchtitan
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, TrainingJob
from tests.divided_layouts import DIVIDED
from tests.examples import for_each, often
from tests.megatron_cases import GIB, small_cluster
from tests.runtime_cases import every_plan, runtime_problem
from tests.training_jobs import job, settings

EXPORTS = {"torchtitan": export_torchtitan_python, "torchtitan@0.2.2": export_torchtitan}


@for_each(
    ("changes", "repair"),
    [
        ({"sharding": "optimizer", "from_master": False}, "sharding = gradients"),
        ({"from_master": False}, "from_master = true"),
    ],
)
@for_each("pp", [1, 2])
def test_states_are_divided_as_fsdp_does(changes: dict[str, object], repair: str, pp: int) -> None:
    """What shards less, or keeps parameters besides, is illegal; what it offers is legal."""
    problem = runtime_problem("torchtitan", cluster=small_cluster(1, 4))
    plan = next(
        plan
        for plan in every_plan(problem)
        if plan.ranks == pp
        and plan.settings.optimizer.sharding == "gradients"
        and evaluate(problem, plan).legal
    )
    optimizer = replace(plan.settings.optimizer, **changes)
    other = replace(plan, settings=replace(plan.settings, optimizer=optimizer))
    (broken,) = evaluate(problem, other).violations
    assert broken.rule == "torchtitan 0.3.0"
    assert broken.limit.endswith(repair)


@for_each("asked", ["gradients", "parameters"])
@for_each("pp", [1, 2])
def test_sharding_that_was_asked_for(asked: str, pp: int) -> None:
    """With and without a pipeline parameters are kept or given up, as is asked for."""
    problem = runtime_problem(
        "torchtitan",
        cluster=small_cluster(2, 2),
        constraints=constraints_of({"sharding": asked, "pp": pp, "dp": 4 // pp}),
    )
    plan = solve(problem).plan
    assert plan is not None
    assert plan.settings.optimizer.sharding == asked
    assert plan.settings.optimizer.from_master
    assert problem.space.outside(problem, plan) is None


@pytest.mark.parametrize("space", ["torchtitan", "torchtitan@0.2.2"])
def test_plain_replicas_are_a_choice(space: str) -> None:
    """With much memory and few micro-batches they are the fastest, and both releases write them."""
    problem = runtime_problem(space, cluster=small_cluster(2, 1, between=1e9))
    found = solve(problem)
    plain = solve(
        runtime_problem(
            space,
            cluster=small_cluster(2, 1, between=1e9),
            constraints=constraints_of({"sharding": "none"}),
        )
    )
    assert plain.plan is not None
    assert plain.plan.settings.optimizer.sharding == "none"
    assert problem.space.outside(problem, plain.plan) is None
    assert found.objective <= plain.objective
    model = ModelSpec(name=problem.model, precision="bf16", architecture=problem.costs.model)
    case = job_of_plan(plain.plan, model, problem.cluster)
    text = next(iter(EXPORTS[space](case, "run").files.values()))
    replicate = next(line for line in text.splitlines() if "replicate_degree" in line)
    shard = next(line for line in text.splitlines() if "shard_degree" in line)
    assert f"{case.dp}" in replicate
    assert "1" in shard


@for_each(
    ("space", "degrees", "possible"),
    [
        ("torchtitan", {"tp": 2, "dp": 2}, True),
        ("torchtitan", {"pp": 2, "dp": 2}, True),
        ("torchtitan", {"cp": 2, "dp": 2}, False),
        ("torchtitan@0.2.2", {"tp": 2, "dp": 2}, False),
        ("torchtitan@0.2.2", {"pp": 2, "dp": 2}, False),
        ("torchtitan@0.2.2", {"dp": 4}, True),
    ],
)
def test_where_torchtitan_replicates(
    space: str, degrees: dict[str, int], *, possible: bool
) -> None:
    """0.2.2 has DDP in one dimension alone; 0.3.0 applies `fully_shard` to one rank each, but
    shards over those of cp."""
    asked = constraints_of({"sharding": "none", **degrees})
    cluster = small_cluster(1, 4)
    if not possible:
        with pytest.raises(InfeasibleError, match="sharding"):
            solve(runtime_problem(space, cluster=cluster, constraints=asked))
        return
    plan = solve(runtime_problem(space, cluster=cluster, constraints=asked)).plan
    assert plan is not None
    assert plan.settings.optimizer.sharding == "none"


def test_sharding_that_it_has_not() -> None:
    asked = constraints_of({"sharding": "optimizer", "dp": 2})
    with pytest.raises(UsageError, match="expected `sharding=gradients,parameters,none`"):
        runtime_problem("torchtitan", constraints=asked)


@pytest.mark.parametrize("space", ["torchtitan", "torchtitan@0.2.2"])
def test_async_tensor_parallelism_is_faster_and_compiles(space: str) -> None:
    """What it hides is in the figures; what compiling gains is not, which the result says."""
    cluster = small_cluster(1, 4)  # 0.2.2 has bf16 with tp under FSDP alone
    asked = {"tp": 2, "tensor_overlap": "on"}
    plain, both = (
        runtime_problem(space, cluster=cluster, constraints=constraints_of(said))
        for said in ({"tp": 2}, asked)
    )
    found = solve(both)
    assert found.plan is not None
    assert found.plan.settings.overlap_tensor
    assert found.plan.settings.kernels.compiled
    assert found.objective < solve(plain).bound
    assert both.space.outside(both, found.plan) is None
    noted = [note.partition(": not counted")[0] for note in found.notes]
    assert {"tensor overlap on", "compile on"} <= {*noted}
    assert "layers compiled" in describe_training(found.plan)


@pytest.mark.parametrize("space", ["torchtitan", "torchtitan@0.2.2"])
def test_compiling_fuses_the_passes_between_products(space: str) -> None:
    cluster = small_cluster(1, 2)
    seconds = []
    for value in ("off", "on", "off,on"):
        asked = constraints_of({"compile": value})
        problem = runtime_problem(space, cluster=cluster, constraints=asked)
        found = solve(problem)
        assert found.plan is not None
        assert found.plan.settings.kernels.compiled == (value != "off")  # the faster one
        assert any("compile on: not counted" in note for note in found.notes) == (value != "off")
        seconds.append(found.objective)
    eager, compiled, either = seconds
    assert compiled == either < eager


def test_async_tensor_parallelism_is_not_had_without_compiling() -> None:
    asked = constraints_of({"tp": 2, "tensor_overlap": "on", "compile": "off"})
    with pytest.raises(InfeasibleError, match="`tensor_overlap=on`, `compile=off`") as refused:
        runtime_problem("torchtitan", cluster=small_cluster(1, 2), constraints=asked)
    assert "would do" in str(refused.value)


@pytest.mark.parametrize("space", ["megatron", "deepspeed"])
def test_other_systems_do_not_run_compiled_layers(space: str) -> None:
    problem = runtime_problem(space, cluster=small_cluster(1, 2))
    plan = solve(problem).plan
    assert plan is not None
    kernels = replace(plan.settings.kernels, compiled=True)
    other = replace(plan, settings=replace(plan.settings, kernels=kernels))
    (broken,) = evaluate(problem, other).violations
    assert "compile" in f"{broken.have} {broken.limit}"


def test_one_device_has_no_fsdp() -> None:
    for asked in ({}, {"sharding": "parameters"}):
        problem = runtime_problem(
            "torchtitan", cluster=small_cluster(1, 1), constraints=constraints_of(asked)
        )
        plan = solve(problem).plan
        assert plan is not None
        assert plan.settings.optimizer.sharding == "none"
        assert problem.space.outside(problem, plan) is None


def test_copies_of_shards_are_named_and_divide_replicas() -> None:
    problem = runtime_problem("torchtitan", cluster=small_cluster(2, 2))
    parts = problem.space.parts(problem)
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    copies = {part.settings.optimizer.instances for part in parts}
    assert copies == {1, 2}  # four copies of all would leave no shards
    for part in parts:
        optimizer = part.settings.optimizer
        assert part.degrees.dp % optimizer.instances == 0
        assert (optimizer.instances > 1) == (" copies" in part.name)


def test_models_that_torchtitan_does_not_have() -> None:
    with pytest.raises(SpecError, match=r"model 'small': model\.norm: found layernorm, but"):
        runtime_problem("torchtitan", changes={"norm": "layernorm"})


@pytest.mark.parametrize("space", ["torchtitan", "torchtitan@0.2.2"])
def test_releases_differ_in_pipelines_and_in_how_experts_are_divided(space: str) -> None:
    """Release 0.2.2 has no pipeline for qwen3, and divides experts on ranks of ep as the rest."""
    newest = space == "torchtitan"
    found = {}
    for model in ("experts", "latent"):
        problem = runtime_problem(space, model)
        found[model] = [part.degrees for part in problem.space.parts(problem)]
    assert ({d.pp for d in found["experts"]} > {1}) == newest
    assert {d.pp for d in found["latent"]} > {1}
    both = {d.etp for d in found["latent"] if d.ep > 1 and d.tp > 1}
    assert both == ({1} if newest else {1, 2})


def test_context_parallelism_of_the_newest_release_gathers() -> None:
    problem = runtime_problem("torchtitan", cluster=small_cluster(2, 2))
    ways = {part.settings.cp_comm for part in problem.space.parts(problem) if part.degrees.cp > 1}
    assert ways == {"all_gather"}
    asked = constraints_of({"cp": 2, "cp_comm": "p2p"})
    with pytest.raises(UsageError, match="expected `cp_comm=all_gather`"):
        runtime_problem("torchtitan", cluster=small_cluster(2, 2), constraints=asked)


def test_more_memory_is_never_worse() -> None:
    problem = runtime_problem("torchtitan", cluster=small_cluster(2, 1))
    times = []
    for share in (0.017, 0.02, 1.0):
        limits = {name: size * share for name, size in problem.memory_limits.items()}
        times.append(solve(replace(problem, memory_limits=limits)).objective)
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_a_result_says_how_many_copies_there_are() -> None:
    problem = runtime_problem("torchtitan", cluster=small_cluster(1, 4), memory_limit=3 * GIB)
    plan = solve(problem).plan
    assert plan is not None
    for instances, text in ((1, "gradients sharded"), (2, "gradients sharded in 2 copies")):
        optimizer = replace(plan.settings.optimizer, sharding="gradients", instances=instances)
        one = replace(plan, settings=replace(plan.settings, optimizer=optimizer))
        assert text in describe_training(one).split(", ")


@pytest.mark.parametrize("space", often(["torchtitan", "torchtitan@0.2.2"], "torchtitan"))
@pytest.mark.parametrize("schedule", DIVIDED)
def test_schedules_that_divide_backward_passes(space: str, schedule: str) -> None:
    """A plan has the schedule that is asked for, and is proved; what is not divided is no better
    than where all are tried."""
    cluster, names = small_cluster(1, 4), ("1f1b", schedule)
    found = {}
    for name in ("", *names):
        asked = constraints_of({"pp": 2, **({"schedule": name} if name else {})})
        problem = runtime_problem(space, cluster=cluster, global_batch=8, constraints=asked)
        found[name] = solve(problem)
        plan = found[name].plan
        assert plan is not None
        assert plan.settings.schedule in ((name,) if name else PIPELINES)
        assert problem.space.outside(problem, plan) is None
    assert found[""].objective <= min(found[name].objective for name in names)


@for_each(
    ("changes", "field", "limit"),
    [
        ({"recompute": FULL}, "recompute", "without recomputation"),
        ({"recompute": BY_OPERATORS}, "recompute", "without recomputation"),
        ({"kernels": Kernels(quantised="mxfp8")}, "kernels.quantised", "are not quantised"),
        ({"overlap_tensor": True}, "overlap_tensor", "are not compiled"),
        ({"kernels": Kernels(compiled=True)}, "kernels.compiled", "are not compiled"),
        (
            {"optimizer": OptimizerSettings(sharding="parameters", from_master=True)},
            "optimizer.sharding",
            "stay gathered",
        ),
    ],
)
def test_what_does_not_go_with_divided_backward_passes(
    changes: dict[str, object], field: str, limit: str
) -> None:
    """The repair that is offered is one."""
    layout = split_layout([2, 2, 2, 2])
    case = job(pp=2, layout=layout, settings=settings(schedule="zb-v", **changes))
    with pytest.raises(PlanError, match=rf"settings\.{field}: .* {limit}") as refused:
        NEWEST.check_release(case)
    assert str(refused.value).endswith("nearest it can run: schedule = 1f1b")
    NEWEST.check_release(replace(case, settings=replace(case.settings, schedule="1f1b")))


def test_gradients_that_wait_take_memory() -> None:
    """A rank with divided backward passes needs more the more gradients wait, and no less than what
    1F1B's interleaved order keeps of the first micro-batch."""
    case = job(pp=2, layout=split_layout([2, 2, 2, 2]), settings=settings(schedule="zb-v"))
    parts = memory_parts(case)
    assert parts.parts["layer"].waiting > 0
    free = {kind: replace(part, waiting=0.0) for kind, part in parts.parts.items()}
    for rank in range(2):
        less = stage_of_rank(replace(parts, parts=free), rank).peak
        assert less < stage_of_rank(parts, rank).peak
    plain = replace(case, settings=replace(case.settings, schedule="1f1b"))
    assert memory_parts(plain).parts["layer"].waiting == 0


def test_schedules_that_do_with_fewer_micro_batches_than_ranks_are_tried():
    """1F1B of torch needs as many as ranks; a V of divided backward passes does with one."""
    asked = constraints_of({"pp": 2, "dp": 2, "schedule": "zb-v"})
    problem = runtime_problem("torchtitan", cluster=small_cluster(2, 2), constraints=asked)
    tried = {part.micro_batches: part for part in problem.space.parts(problem)}
    assert set(tried) == {1, 2}
    assert {variant.schedule for variant in tried[1].variants()} == {"zb-v"}
    free = runtime_problem("torchtitan", cluster=small_cluster(2, 2))
    few = [part for part in free.space.parts(free) if part.micro_batches < part.degrees.pp]
    assert few
    assert all(variant.divided for part in few for variant in part.variants())


RELEASES = [NEWEST, EARLIER]


@pytest.mark.parametrize("release", RELEASES, ids=lambda one: one.name)
def test_what_a_release_has_no_setting_for(release: Torchtitan) -> None:
    """It compiles layers and hides messages of tensor parallelism; the newest has CUDA graphs."""
    for name in ("micro_batch_group_size", "expert_overlap", "activation_offload"):
        assert release.search_of(name).remark == NO_SETTING
    assert {"compile", "tensor_overlap"} <= {*release.listens}
    assert (release.search_of("cuda_graphs").remark == "it has none") == (release is EARLIER)


@for_each(
    ("said", "compile"),
    [
        ({"tensor_overlap": "on"}, ("on",)),
        ({"tensor_overlap": "on,off"}, ("on",)),
        ({"tensor_overlap": "on", "compile": "off"}, ("off",)),
        ({"tensor_overlap": "off"}, ()),
        ({}, ()),
        ({"compile": "off,on"}, ("off", "on")),
    ],
)
def test_async_tensor_parallelism_asks_for_compiling_unless_something_else_is_asked(
    said: dict[str, str], compile: tuple[str, ...]
) -> None:
    asked = constraints_of(said)
    assert NEWEST.implied(asked) == asked.with_(compile=compile)


@for_each(
    ("changes", "degrees", "refused"),
    [
        ({}, {"dp": 2}, ""),
        ({"sharding": "none"}, {"dp": 2}, ""),
        ({"sharding": "none", "from_master": False}, {"dp": 2}, "from_master"),
        ({"from_master": False}, {"dp": 2}, "from_master"),
        ({"from_master": False}, {}, ""),  # one device shares nothing
        ({"instances": 2}, {"dp": 2}, "instances"),
        ({"instances": 2}, {"dp": 4}, ""),
        ({"instances": 2}, {"cp": 2, "dp": 2}, ""),  # two ranks of each copy
        ({"instances": 4}, {"cp": 2, "dp": 2}, "instances"),
        ({"sharding": "optimizer", "from_master": False}, {"dp": 2}, "sharding"),
    ],
)
def test_states_are_refused_that_fsdp_does_not_divide_so(
    changes: dict[str, object], degrees: dict[str, int], refused: str
) -> None:
    """With no check of the release: only what its FSDP says of the optimiser's states."""

    class Any(type(NEWEST)):  # type: ignore[misc]
        def check_release(self, job: TrainingJob) -> None:
            """Run everything."""

    optimizer = OptimizerSettings(**{"sharding": "gradients", "from_master": True, **changes})
    case = job(tp=1, pp=1, dp=degrees.get("dp", 1), layout=None)
    own = replace(case.settings, optimizer=optimizer, cp=degrees.get("cp", 1))
    case = replace(case, settings=own)
    if not refused:
        Any().check_job(case)
        return
    with pytest.raises(PlanError, match=rf"settings\.optimizer\.{refused}: found"):
        Any().check_job(case)


def test_settings_of_a_choice_are_those_of_fsdp_under_its_degrees() -> None:
    """Parameters are gathered while layers compute; gradients reduced so but in a pipeline."""
    problem = runtime_problem("torchtitan", cluster=small_cluster(1, 4))
    assert problem.costs.settings.keeps_gathered
    seen = set()
    for part in problem.space.parts(problem):
        optimizer, pp = part.settings.optimizer, part.degrees.pp
        assert optimizer.overlap_parameters
        assert optimizer.overlap_gradients == (pp == 1)
        seen.add(pp)
    assert seen == {1, 2, 4}
