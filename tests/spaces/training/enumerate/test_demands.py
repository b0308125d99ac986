"""Whatever is asked for of a plan space is listened to, or refused before anything is solved."""

import pytest

from ilp_planner.base.errors import UsageError
from ilp_planner.inputs.constraints import NAMES, constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.optimize.solve import solve
from ilp_planner.settings.table import SETTINGS
from ilp_planner.spaces.registry import RUNTIMES, SPACES, build_problem, runtime_named
from ilp_planner.spaces.training.enumerate.choices import with_beside
from ilp_planner.spaces.training.space import assumed
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.training import OPERATORS
from tests.examples import for_each, often
from tests.megatron_cases import small_cluster, small_model
from tests.runtime_cases import MODELS

MEGATRON, TITAN, EARLIER, DEEPSPEED = RUNTIMES
OTHERS = [name for name in SPACES if name not in RUNTIMES]
BOTH = {TITAN, EARLIER}
EVERY = set(RUNTIMES)
TUNED = EVERY - {EARLIER}
# Name -> value -> the runtimes whose plans may have it. No two values of a name are of the same.
HEARD: dict[str, dict[str, set[str]]] = {
    "tp": {"2": EVERY},
    "pp": {"2": EVERY},
    "cp": {"1": EVERY},
    "ep": {"1": EVERY},
    "dp": {"2": EVERY},
    "micro_batch_size": {"1": EVERY, "2..4": EVERY},
    "virtual_stages": {"1": EVERY, "2": EVERY - {DEEPSPEED}, "1..2": EVERY},
    "micro_batch_group_size": {"2": EVERY, "3..8": EVERY},
    "layout": {"even": EVERY, "any": EVERY, "2,1": EVERY},
    "remainder": {"first": EVERY, "last": EVERY - {DEEPSPEED}, "alone": EVERY - {DEEPSPEED}},
    "rank_order": {"tp-cp-ep-dp-pp": EVERY, "tp-cp-ep-pp-dp": {MEGATRON}},
    "schedule": {**{"1f1b": EVERY, "interleaved-zb": BOTH, "zb-v": BOTH, "dualpipe-v": BOTH}},
    "recompute": {**{"none": EVERY, "full": EVERY, "block": {MEGATRON}, "core_attn": {MEGATRON}},
     "selective": EVERY - {DEEPSPEED}},
    "sharding": {**{"none": EVERY, "optimizer": {MEGATRON, DEEPSPEED}, "gradients": EVERY},
     "parameters": EVERY},
    "sharding_copies": {"1": EVERY, "2": {MEGATRON, *BOTH}},
    "cp_comm": {**{"p2p": EVERY - {TITAN}, "all_gather": {MEGATRON, *BOTH}, "a2a": {MEGATRON}},
     "a2a+p2p": {MEGATRON}},
    "overlap": {"none": EVERY, "data": EVERY - {DEEPSPEED}},
    "fused_loss": {"none": EVERY, "native": {MEGATRON}, "liger": TUNED - {MEGATRON}},
    "gradients": {"fp32": EVERY, "bf16": {MEGATRON}},
    "moments": {"fp32": EVERY, "bf16": {MEGATRON}, "fp8": {MEGATRON}},
    "optimizer": {"adam": EVERY, "muon": {MEGATRON}},
    "muon_tp_mode": {"blockwise": EVERY, "duplicated": {MEGATRON}, "distributed": {MEGATRON}},
    "muon_packing": {"on": EVERY, "off": {MEGATRON}},
    "muon_steps": {"5": EVERY, "8": {MEGATRON}, "12": {MEGATRON}},
    "tensor_overlap": {"off": EVERY, "on": {MEGATRON, *BOTH}},
    "expert_overlap": {"off": EVERY, "on": {MEGATRON}},
    "cuda_graphs": {"none": EVERY, "attn": {MEGATRON}, "layer": {MEGATRON}},
    "optimizer_offload": {"0": EVERY, "0.3": {MEGATRON}, "1": {MEGATRON}},
    "activation_offload": {"none": EVERY, "core_attn": {MEGATRON}, "1": {MEGATRON}},
    "dispatcher": {"alltoall": EVERY, "allgather": {MEGATRON}, "flex": {MEGATRON}},
    "fused_permute": {"off": EVERY, "on": {MEGATRON}},
    "encoder_recompute": {"none": EVERY, "core": {MEGATRON}, "full": {MEGATRON}},
    "fp8_attention": {"off": EVERY, "on": {MEGATRON}},
    "compile": {"off": EVERY, "on": BOTH},
    "defer_embedding_wgrad": {"off": EVERY, "on": {MEGATRON}},
    "lora": {"0": EVERY, "8": TUNED, "12": TUNED},
    "lora_targets": {**{"q_proj+v_proj": {TITAN, DEEPSPEED}, "k_proj": {TITAN, DEEPSPEED}},
     "linear_qkv+linear_proj": {MEGATRON}, "linear_fc1+linear_fc2": {MEGATRON}},
    "lora_dropout": {"0": EVERY, "0.1": TUNED},
    "qlora": {"off": EVERY, "on": {TITAN, DEEPSPEED}},
    "freeze": {"none": EVERY, "embedding": TUNED, "layers:0": TUNED},
    "max_devices": {"2": EVERY},
    "without": {"1": EVERY},
    "headroom": {"1 GiB": EVERY},
}  # fmt: skip
SEEING = Encoder(layers=2, hidden=64, heads=4, ffn=128, patch=14, image_size=56)
VALUES = [(name, value) for name, values in HEARD.items() for value in values]


def built(space: str, name: str, value: str) -> Problem:
    """Return the problem of a small model with a demand, and with what it goes with alone."""
    cluster, model, precision = small_cluster(), small_model(**MODELS["dense"]), ""
    if name == "encoder_recompute" and space == MEGATRON:
        model = small_model(**MODELS["dense"], encoder=SEEING)
    if (space, name, value) == (MEGATRON, "fp8_attention", "on"):
        h100 = gpu_cluster(parse_gpus("4xH100"))
        cluster, model = h100, small_model(**MODELS["dense"], head=128)
        precision = "fp8-delayed"
    objects = {"cluster": cluster, "model": model}
    request = Request(
        files={},
        space=space,
        precision=precision,
        cost_model=SPACES[space].cost_models[0],
        global_batch=4,
        constraints=constraints_of({name: value}),
    )
    return build_problem(InputFiles(request, objects=objects))


def test_the_table_has_all_that_can_be_asked_for() -> None:
    assert {*HEARD, "keep"} == {*NAMES}  # stages of a saved plan: `test_keeping`


@pytest.mark.few(1)
@pytest.mark.parametrize("space", often(RUNTIMES, MEGATRON, TITAN, DEEPSPEED))
def test_every_demand_is_heard_or_refused(space: str) -> None:
    for name, value in VALUES:
        check_heard_or_refused(space, name, value)


def check_heard_or_refused(space: str, name: str, value: str) -> None:
    if space in HEARD[name][value]:
        problem = built(space, name, value)
        assert problem.constraints.texts == {name: value}
        assert problem.space.parts(problem)  # type: ignore[attr-defined]
        return
    with pytest.raises(UsageError) as refused:
        built(space, name, value)
    said, _, expected = str(refused.value).partition(", expected ")
    assert said == f"`{name}={value}`: found it for {runtime_named(space).title}"
    instead, _, other = expected.partition("; ")[0].partition(" or ")
    heard = MEGATRON if MEGATRON in HEARD[name][value] else TITAN
    assert other == f"`space={heard}`"
    built(heard, name, value)
    if instead == "none":
        return
    offered, _, values = instead.strip("`").partition("=")
    assert offered == name
    for each in values.split(","):
        assert each not in HEARD[name] or space in HEARD[name][each]
    built(space, name, values)


@pytest.mark.parametrize("space", sorted(BOTH))
def test_torchtitan_recomputes_by_operators_and_nothing_else_does(space: str) -> None:
    built(space, "recompute", OPERATORS)
    offered = "expected `recompute=none,full` or `space=torchtitan`; DeepSpeed: "
    with pytest.raises(UsageError, match=offered):
        built(DEEPSPEED, "recompute", OPERATORS)


EVERYWHERE = ("max_devices", "without")  # what every space listens to


@for_each("space", OTHERS)
def test_other_spaces_name_the_one_that_listens(space: str) -> None:
    for name, value in VALUES:
        if name in EVERYWHERE or value in SPACES[space].some.get(name, ()):
            continue
        with pytest.raises(UsageError) as refused:
            built(space, name, value)
        heard = MEGATRON if MEGATRON in HEARD[name][value] else TITAN
        assert str(refused.value).startswith(f"`{name}={value}`: expected `space={heard}`, found ")
        assert space in str(refused.value)


@for_each("value", ["none", "full", "block"])
def test_groups_recompute_what_is_asked_for(value: str) -> None:
    problem = built("groups", "recompute", value)
    assert problem.costs.recomputations == (value,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["selective", "core_attn"])
def test_groups_say_that_flash_attention_keeps_no_scores(value: str) -> None:
    with pytest.raises(UsageError, match=f"`recompute={value}`: .*flash attention keeps no scores"):
        built("groups", "recompute", value)
    notes = built("groups", "recompute", f"none,{value}").notes
    assert "recompute selective: not priced by analytic, not tried" in notes


def test_what_settings_need_beside_them_is_taken_and_noted() -> None:
    """Of every row of the table that needs another one, unless something is said of that."""
    rows = [row for row in SETTINGS if row.beside]
    assert len(rows) >= 6
    for row in rows:
        assert row.beside is not None
        other, taken = row.beside
        for value in {*HEARD[row.name]} - {*row.search_of("").values[:1]}:
            asked = constraints_of({row.name: value})
            (note,) = assumed(asked)
            assert note.startswith(row.name.replace("_", " "))
            assert f": {other} {taken} is assumed" in note
            assert getattr(with_beside(asked), other) == (taken,)
            both = constraints_of({row.name: value, other: taken})
            assert with_beside(both) == both
            assert not list(assumed(both))


def test_a_search_notes_what_it_took() -> None:
    problem = built(MEGATRON, "muon_steps", "8")
    assert (
        "muon steps 8: optimizer muon is assumed, as nothing is said of it" in solve(problem).notes
    )
