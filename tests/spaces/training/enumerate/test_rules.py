"""Rules of the judge beside Megatron-LM's own checks of launch lines, which are other code."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from ilp_planner.base.errors import PlannerError
from ilp_planner.evaluate import Violation, evaluate
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.settings.rules import (
    Broken,
    check_context,
    check_experts,
    check_offload,
    check_recompute,
    check_schedule,
    check_sequence_parallel,
    check_states,
    check_usual,
    context_rules,
    divided_rules,
)
from ilp_planner.spaces.training.build import build
from ilp_planner.spaces.training.enumerate.rules import (
    check_job,
    check_megatron,
    check_plan,
    check_tensor,
)
from ilp_planner.specs.decoder import Experts, Window
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.gpus import table
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import (
    ORDERS,
    PRECISIONS,
    QUANTISED,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from tests.examples import for_each, thinned
from tests.megatron_cases import every_plan, small_cluster, small_model, small_problem
from tests.training_jobs import deepseek, gpt, job, llama

DIVIDED = Recompute(granularity="full", method="uniform", layers=1, distribute=True)


@for_each(
    ("again", "rule"),
    [
        (Recompute(granularity="selective", modules=("mla_up_proj",)), "recompute modules"),
        (Recompute(granularity="selective", modules=("mlp", "moe_act")), "recompute modules"),
        (Recompute(granularity="selective", modules=("mlp",)), None),
        (DIVIDED, "recompute inputs"),
        (replace(DIVIDED, distribute=False), None),
    ],
)
@for_each("tp", [1, 2])
def test_what_layers_do_not_have_is_not_computed_again(
    again: Recompute, rule: str | None, tp: int
) -> None:
    problem = small_problem(batch=4)
    plan = next(p for p in every_plan(problem) if p.ranks == 1 and p.stages[0].tp == tp)
    assert plan.settings is not None
    plan = replace(plan, settings=replace(plan.settings, recompute=again))
    broken = {violation.rule for violation in evaluate(problem, plan).violations}
    assert broken == ({rule} if rule else set())
    words = arguments_of_job(problem.costs.job(plan, problem.cluster))
    assert any(finding.rejected for finding in check_arguments(words)) == bool(rule)


# ---- jobs: each rule, and just not it -----------------------------------------------------------


def said(
    check: Callable[[TrainingJob], Iterator[Violation | Broken]], case: TrainingJob
) -> list[str]:
    """Return what a check finds: the rule, what there is and what was expected."""
    return [f"{x.rule}: {x.have} / {x.limit}" for x in check(case)]


def with_settings(model: Any = None, **settings: Any) -> TrainingJob:
    """Return a job of one rank; what `job` knows is its own, all else settings."""
    own = {"tp", "pp", "dp", "layout", "micro_batch", "global_batch"} & {*settings}
    values = {name: settings.pop(name) for name in own}
    base: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 1, "layout": None}
    return job(model, **{**base, **values, "settings": Settings(**settings)})


def test_tensor_parallelism_stays_in_a_node_and_divides_the_model() -> None:
    problem = small_problem(small_cluster(1, 4))

    def found(case: TrainingJob) -> list[str]:
        return said(lambda job: check_tensor(problem, job), case)

    assert problem.costs.max_cp == 8
    assert found(with_settings(llama(), tp=4)) == []
    assert found(with_settings(llama(), tp=8)) == ["degrees: tp 8 / a divisor of 4, within a node"]
    assert found(with_settings(llama(heads=10, kv_heads=10, head=8), tp=4)) == [
        "degrees: tp 4 / 10 heads are not divisible",
        "degrees: tp 4 / 10 query groups are no multiple or divisor",
    ]
    assert found(with_settings(llama(sequence=6), cp=2)) == [
        "degrees: tp 1, cp 2 / sequence 6 is not divisible by 2 x cp"
    ]
    odd = llama(sequence=6)
    assert found(with_settings(odd, tp=4)) == []
    assert found(with_settings(odd, tp=4, sequence_parallel=True)) == [
        "degrees: tp 4, cp 1 / sequence 6 is not divisible by tp x cp"
    ]
    assert found(with_settings(llama(), cp=8)) == []
    assert found(with_settings(llama(), cp=16)) == ["degrees: cp 16 / at most 8"]


def test_experts_have_tensor_parallelism_with_divided_sequences_alone() -> None:
    text = (
        "sequence parallelism: none / sequence parallelism, for experts or Mamba with tensor "
        "parallelism"
    )
    assert said(check_sequence_parallel, with_settings(deepseek(), tp=2)) == [text]
    assert said(check_sequence_parallel, with_settings(deepseek())) == []
    assert said(check_sequence_parallel, with_settings(llama(), tp=2)) == []
    divided = with_settings(deepseek(), tp=2, sequence_parallel=True)
    assert said(check_sequence_parallel, divided) == []


A2A = {"cp_comm": "a2a"}
WINDOWS = "windows and sinks are computed where ranks exchange heads, a2a"


@for_each(
    ("case", "words"),
    [
        (with_settings(llama(window=Window(size=8)), cp=1), []),
        (with_settings(llama(window=Window(size=8)), cp=2), [WINDOWS]),
        (with_settings(llama(sinks=True), cp=2), [WINDOWS]),
        (with_settings(llama(window=Window(size=8)), cp=2, **A2A), []),
        (with_settings(llama(), cp=32), []),
        (with_settings(llama(), cp=3), []),
        # What tensor parallelism does not divide another rule tells.
        (with_settings(llama(heads=10, kv_heads=10, head=8), tp=4, cp=2, **A2A), []),
        (with_settings(llama(), cp=8, **A2A), []),
        (with_settings(llama(), cp=16, **A2A), ["8 query groups are not divisible by tp x cp"]),
        (with_settings(llama(), cp=32, **A2A),
         ["16 heads are not divisible by tp x cp", "8 query groups are not divisible by tp x cp"]),
        (with_settings(llama(), tp=2, cp=4, **A2A), []),
        (with_settings(llama(), tp=2, cp=8, **A2A),
         ["8 query groups are not divisible by tp x cp"]),
        # With more ranks than query groups each has one whole: 1 is not divisible.
        (with_settings(llama(), tp=16, cp=2, **A2A),
         ["16 heads are not divisible by tp x cp", "16 query groups are not divisible by tp x cp"]),
        # Latent attention has as many groups as heads, whatever is said of them.
        (with_settings(deepseek(kv_heads=2), cp=16, **A2A), []),
        (with_settings(llama(), cp=16, cp_comm="a2a+p2p", cp_inner=8), []),
        (with_settings(llama(), cp=32, cp_comm="a2a+p2p", cp_inner=16),
         ["8 query groups are not divisible by tp x 16 of cp"]),
        (with_settings(llama(), cp=4, cp_comm="a2a+p2p", cp_inner=1), []),
        (with_settings(llama(), cp=4, cp_comm="a2a+p2p", cp_inner=0),
         ["the ranks that exchange heads must divide cp, found 0"]),
        (with_settings(llama(), cp=4, cp_comm="a2a+p2p", cp_inner=3),
         ["the ranks that exchange heads must divide cp, found 3"]),
    ],
)  # fmt: skip
def test_heads_are_enough_for_the_ranks_that_exchange_them(
    case: TrainingJob, words: list[str]
) -> None:
    assert list(context_rules(case)) == words
    degree = f"cp {case.settings.cp} by {case.settings.cp_comm}"
    assert said(check_context, case) == [f"degrees: {degree} / {text}" for text in words]


EIGHT = Experts(count=8, top_k=2, ffn=96)


@for_each(
    ("case", "words"),
    [
        (with_settings(llama()), []),
        (with_settings(llama(), ep=2), ["degrees: ep 2, etp 0 / none, as there are no experts"]),
        (with_settings(llama(), etp=1), ["degrees: ep 1, etp 1 / none, as there are no experts"]),
        (with_settings(deepseek(), ep=4, dp=4), []),
        (with_settings(deepseek(), ep=3, dp=3), ["degrees: ep 3 / a divisor of 8 experts"]),
        (with_settings(deepseek(), ep=2), ["degrees: etp x ep x pp 2 / a divisor of 1 ranks"]),
        (with_settings(deepseek(), tp=2, etp=2), []),
        (with_settings(deepseek(experts=replace(EIGHT, ffn=95)), tp=2, etp=2),
         ["degrees: etp 2 / a divisor of 95"]),
        (with_settings(gpt(experts=EIGHT), tp=2, etp=1), []),
        (with_settings(gpt(experts=EIGHT), tp=2, etp=2),
         ["degrees: etp 2 / 1, for experts with biases"]),
        (with_settings(deepseek(), pp=2, dp=3, ep=2),
         ["degrees: etp x ep x pp 4 / a divisor of 6 ranks"]),
        (with_settings(deepseek(), pp=2, dp=3, tp=2, ep=1, etp=4),
         ["degrees: etp x ep x pp 8 / a divisor of 12 ranks"]),
    ],
)  # fmt: skip
def test_experts_divide_into_ranks_and_ranks_into_them(case: TrainingJob, words: list[str]) -> None:
    assert said(check_experts, case) == words


def test_pipelines_of_experts_are_those_of_all_where_pipeline_ranks_come_first() -> None:
    def found(order: str, **changes: Any) -> list[str]:
        case = with_settings(deepseek(), **{"pp": 2, "dp": 2, "tp": 2, "order": order, **changes})
        return said(check_experts, case)

    text = f"tp x cp, 4, in the order {ORDERS[1]}: one set of pipeline groups"
    assert found(ORDERS[1], cp=2, ep=2) == []
    assert found(ORDERS[1], cp=2, ep=4) == [f"rank order: etp x ep 8 / {text}"]
    assert found(ORDERS[0], cp=2, ep=4) == []
    assert found(ORDERS[1], cp=2, ep=4, pp=1) == []


def full(method: str, layers: int) -> Recompute:
    return Recompute(granularity="full", method=method, layers=layers)


@for_each(
    ("again", "limit"),
    [
        (full("uniform", 4), ""),
        (full("uniform", 1), ""),
        (full("uniform", 0), "1 to 4"),
        (full("uniform", 5), "1 to 4"),
        (full("uniform", 3), "a divisor of every stage's layers"),
        (full("block", 3), ""),
        (full("block", 4), ""),
        (full("block", 5), "1 to 4"),
        (Recompute(granularity="selective"), ""),
        (Recompute(), ""),
    ],
)
def test_no_more_layers_are_computed_again_than_a_stage_has(again: Recompute, limit: str) -> None:
    case = with_settings(llama(), pp=2, recompute=again)
    have = f"recompute layers: {again.method} {again.layers} / "
    assert said(check_recompute, case) == ([have + limit] if limit else [])


@for_each(
    ("again", "limit"),
    [
        (full("block", 5), ""),
        (full("block", 6), "1 to 5"),
        (full("uniform", 5), "a divisor of every stage's layers"),
        (full("uniform", 3), "a divisor of every stage's layers"),
        (full("uniform", 1), ""),
    ],
)
def test_stages_with_other_numbers_of_layers_are_counted_one_by_one(
    again: Recompute, limit: str
) -> None:
    """The longest may compute all of its own again; chunks of layers must fit each of them."""
    case = with_settings(llama(), pp=2, layout=split_layout([3, 5]), recompute=again)
    have = f"recompute layers: {again.method} {again.layers} / "
    assert said(check_recompute, case) == ([have + limit] if limit else [])


@for_each("sequence_parallel", [False, True])
@for_each("tp", [1, 2])
def test_kept_inputs_are_divided_where_they_are_not_already(
    tp: int, sequence_parallel: bool
) -> None:
    case = with_settings(tp=tp, sequence_parallel=sequence_parallel, recompute=DIVIDED)
    limit = "tensor parallelism without sequence parallelism, where inputs are divided"
    text = f"recompute inputs: divided with tp {tp} / {limit}"
    assert said(check_recompute, case) == ([] if tp == 2 and not sequence_parallel else [text])


@pytest.mark.parametrize(
    ("part", "limit"),
    [
        ("mla_up_proj", "latent or compressed attention with it"),
        ("moe_act", "grouped products of experts with it"),
    ],
)
def test_parts_that_a_model_lacks_are_not_computed_again(part: str, limit: str) -> None:
    again = Recompute(granularity="selective", modules=(part,))
    have = f"recompute modules: {part} / {limit}"
    kernels = Kernels(grouped_experts=True)
    assert said(check_recompute, with_settings(llama(), recompute=again)) == [have]
    there = with_settings(deepseek(), kernels=kernels, recompute=again)
    assert said(check_recompute, there) == []
    # What is named besides full recomputation, or none, says nothing.
    idle = replace(again, granularity="none")
    assert said(check_recompute, with_settings(llama(), recompute=idle)) == []


REPLICAS = ("dp x cp", "replicas of experts")


@for_each(
    ("optimizer", "words"),
    [
        (OptimizerSettings(), []),
        (OptimizerSettings(moments=8, master=4), []),
        (OptimizerSettings(moments=4), ["moments of 4 bytes, not sharded / optimizer sharding"]),
        (OptimizerSettings(moments=7), ["moments of 7 bytes, not sharded / optimizer sharding"]),
        (OptimizerSettings(master=2), ["moments of 8 bytes, not sharded / optimizer sharding"]),
        (OptimizerSettings(name="sgd", moments=0), []),
        (OptimizerSettings(offload=0.5), ["states on the host, not sharded / optimizer sharding"]),
        (OptimizerSettings(offload=0.5, sharding="optimizer"), []),
        (OptimizerSettings(moments=4, sharding="optimizer"), []),
        (OptimizerSettings(sharding="optimizer", instances=2), []),
        (OptimizerSettings(sharding="optimizer", instances=4), []),
        (
            OptimizerSettings(sharding="optimizer", instances=3),
            [
                f"states in 3 copies / a divisor of 4 {what}"
                for what in ("dp x cp", "replicas of experts")
            ],
        ),
        (
            OptimizerSettings(sharding="optimizer", instances=8),
            [
                f"states in 8 copies / a divisor of 4 {what}"
                for what in ("dp x cp", "replicas of experts")
            ],
        ),
    ],
)
def test_what_is_done_with_states_goes_with_how_they_are_shared(
    optimizer: OptimizerSettings, words: list[str]
) -> None:
    case = with_settings(llama(), dp=2, cp=2, optimizer=optimizer)
    assert said(check_states, case) == [f"optimizer: {text}" for text in words]


def test_copies_of_states_divide_the_replicas_of_experts_as_well() -> None:
    two = OptimizerSettings(sharding="optimizer", instances=2)
    assert said(check_states, with_settings(deepseek(), dp=4, ep=2, optimizer=two)) == []
    assert said(check_states, with_settings(deepseek(), dp=4, ep=4, optimizer=two)) == [
        "optimizer: states in 2 copies / a divisor of 1 replicas of experts"
    ]


@for_each(
    ("offload", "changes", "words"),
    [
        (Offload(), {"pp": 2, "recompute": Recompute(granularity="selective")}, []),
        (Offload(layers=7), {}, []),
        (Offload(layers=8), {}, ["activations of 8 layers / at most 7"]),
        (Offload(layers=2), {"pp": 2}, ["activations of 2 layers with pp 2 / pp 1"]),
        (Offload(layers=2), {"recompute": Recompute(granularity="selective")},
         ["activations of 2 layers with recomputation / one of them"]),
        (Offload(modules=("mlp_norm",)), {"pp": 2}, []),
        (Offload(modules=("mlp_norm",)), {"kernels": Kernels(implementation="local")},
         ["local modules / transformer_engine"]),
        (Offload(), {"kernels": Kernels(implementation="local")}, []),
        (Offload(modules=("attn_proj",)), {}, ["attn_proj / core_attn with it"]),
        (Offload(modules=("core_attn", "attn_proj")), {}, []),
        (Offload(modules=("core_attn",)), {}, []),
    ],
)  # fmt: skip
def test_activations_go_to_the_host_where_nothing_else_is_done_with_them(
    offload: Offload, changes: dict[str, Any], words: list[str]
) -> None:
    case = with_settings(llama(), offload=offload, **changes)
    assert said(check_offload, case) == [f"offloading: {text}" for text in words]


def in_turns(virtual: int, batches: int, turn: int = 0, pp: int = 2, name: str = "") -> TrainingJob:
    """Return a job of so many virtual stages of a layer each, and micro-batches of a sample."""
    named = {"schedule": name} if name else {}
    return with_settings(
        llama(layers=pp * virtual),
        pp=pp,
        layout=split_layout([1] * pp * virtual),
        micro_batch=1,
        global_batch=batches,
        turn=turn,
        **named,
    )


@for_each(
    ("case", "words"),
    [
        (in_turns(1, 3), []),
        (in_turns(2, 4), []),
        (in_turns(2, 2), []),
        (in_turns(2, 3), ["3 micro-batches / a multiple of pp 2"]),
        (in_turns(2, 3, turn=2), ["3 micro-batches / a multiple of pp 2"]),
        (in_turns(2, 4, pp=1), ["2 on one rank / pp at least 2"]),
        (in_turns(2, 6, turn=3), []),
        (in_turns(2, 3, turn=3), []),
        (in_turns(2, 5, turn=3), []),
        (in_turns(2, 4, turn=3),
         ["1 micro-batch left over from turns of 3 / none, or at least pp 2"]),
        (in_turns(2, 7, turn=3),
         ["1 micro-batch left over from turns of 3 / none, or at least pp 2"]),
        (in_turns(2, 4, turn=5),
         ["turns of 5 micro-batches / from pp 2 to the number of micro-batches, 4"]),
        (in_turns(2, 4, turn=1),
         ["turns of 1 micro-batch / from pp 2 to the number of micro-batches, 4"]),
    ],
)  # fmt: skip
def test_virtual_stages_take_micro_batches_in_turns(case: TrainingJob, words: list[str]) -> None:
    assert said(check_schedule, case) == [f"virtual stages: {text}" for text in words]


@for_each(
    ("name", "pp", "virtual", "batches", "words"),
    [
        ("interleaved-zb", 2, 2, 2, []),
        ("interleaved-zb", 2, 3, 4, []),
        ("interleaved-zb", 2, 2, 3, ["3 micro-batches: a multiple of pp 2"]),
        ("interleaved-zb", 2, 1, 2, ["1 virtual stages: at least 2 on each rank"]),
        ("interleaved-zb", 1, 2, 2, ["one rank: pp at least 2"]),
        ("zb-v", 2, 2, 1, []),
        ("zb-v", 2, 3, 1, ["3 virtual stages: 2 on each rank"]),
        ("zb-v", 2, 1, 1, ["1 virtual stages: 2 on each rank"]),
        ("dualpipe-v", 2, 2, 4, []),
        ("dualpipe-v", 2, 2, 3, ["3 micro-batches: at least 4, as many as virtual stages"]),
        ("dualpipe-v", 3, 2, 5, ["5 micro-batches: at least 6, as many as virtual stages"]),
    ],
)
def test_schedules_that_divide_backward_passes_have_their_pipeline(
    name: str, pp: int, virtual: int, batches: int, words: list[str]
) -> None:
    rules = divided_rules(name, pp, virtual, batches)
    assert [f"{have}: {limit}" for have, limit in rules] == words
    if virtual > 1 and pp > 1:
        case = in_turns(virtual, batches, pp=pp, name=name)
        found = [text.replace(": ", " / ") for text in words]
        assert said(check_schedule, case) == [f"schedule {name}: {text}" for text in found]


def test_what_divides_backward_passes_has_no_turns_and_is_not_megatrons() -> None:
    assert said(check_schedule, in_turns(2, 4, turn=2, name="interleaved-zb")) == [
        "schedule interleaved-zb: turns of 2 micro-batches / none"
    ]
    assert said(check_usual, in_turns(2, 4, name="interleaved-zb")) == [
        "schedule: interleaved-zb / 1f1b"
    ]
    assert said(check_usual, in_turns(2, 4)) == []


def test_all_that_megatron_asks_of_a_job_is_asked() -> None:
    case = with_settings(
        llama(sinks=True),
        cp=2,
        overlap_experts=True,
        recompute=full("uniform", 9),
        kernels=Kernels(dispatcher="alltoall"),
        optimizer=OptimizerSettings(moments=4),
    )
    rules = [violation.rule for violation in check_megatron(case)]
    assert rules == [
        "degrees", "recompute layers", "optimizer", "expert overlap", "expert overlap",
    ]  # fmt: skip


def test_a_plan_has_a_precision_that_its_devices_have() -> None:
    """Of every pair of GPUs: a plan on one of them has a time on the other, or the rule refuses it,
    which happens exactly where no problem has that precision there."""
    asked = [*PRECISIONS, *QUANTISED]
    problems = {name: [problem_on(name, precision) for precision in asked] for name in table()}
    for first, other in thinned(product(table(), table()), 23):
        here = next(problem for problem in problems[other] if problem is not None)
        for there, again in zip(problems[first], problems[other], strict=True):
            if there is None:
                continue
            plan = plan_of_job(alike(there), here.cluster, model=here.model)
            evaluation = evaluate(here, plan)
            rules = [violation.rule for violation in evaluation.violations]
            assert ("precision" in rules) == (again is None)
            assert evaluation.cost is not None or rules


def problem_on(name: str, precision: str) -> Problem[Any] | None:
    """Return a small problem on two GPUs in a precision; None where they do not have it."""
    request = Request(files={}, space="megatron", global_batch=4, precision=precision)
    cluster = gpu_cluster(parse_gpus(f"2x{name}"))
    try:
        return build(InputFiles(request, objects={"model": small_model(), "cluster": cluster}))
    except PlannerError:
        return None


def alike(problem: Problem[Any]) -> TrainingJob:
    """Return a job of two replicas as all plans of a problem have it."""
    model = problem.costs.model
    return TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=4,
        dp=2,
        layout=split_layout([model.layers]),
        settings=problem.costs.settings,
        devices_per_node=2,
    )


def test_a_plan_is_one_job_on_whole_nodes() -> None:
    """Each rule of jobs is asked, and what the runtime asks itself."""
    problem = small_problem(small_cluster(2, 2), batch=4)
    plan = next(
        plan
        for plan in every_plan(problem)
        if (plan.ranks, plan.virtual) == (2, 1) and problem.costs.job(plan, problem.cluster).tp == 2
    )

    def own(case: TrainingJob, base: Settings) -> Iterator[Violation]:
        assert base == problem.costs.settings
        yield Violation("own", "plan", f"tp {case.tp}", "another")

    def found(other: Any) -> list[str]:
        return [f"{x.rule}: {x.have} / {x.limit}" for x in check_plan(problem, other, own)]

    assert found(plan) == ["own: tp 2 / another"]
    first, second = plan.stages
    mixed = tuple(
        replace(stage, replicas=(replace(stage.replicas[0], devices=devices),))
        for stage, devices in zip((first, second), ((0, 2), (1, 3)), strict=True)
    )
    assert found(replace(plan, stages=mixed)) == [
        "rank order: other devices / whole nodes one after the other"
    ]
    alone = replace(second, replicas=(replace(second.replicas[0], devices=(2,)),))
    (text,) = found(replace(plan, stages=(first, alone)))
    assert text.startswith("training job: ")
    assert text.endswith(" / one job")
    assert plan.settings is not None
    host = replace(plan.settings, offload=Offload(layers=1))
    assert "offloading" in found(replace(plan, settings=host))[0]
    wide = with_settings(llama(), tp=4)
    rules = [violation.rule for violation in check_job(problem, wide, own)]
    assert rules == ["degrees", "own"]  # of tensor parallelism, beyond a node
