"""What the checker computes of layers is what the planner computes, though neither reads the
other."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.checker import checker
from ilp_planner.checker.costs import OF_MODEL, OF_PARTS, fields
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.spaces.training.enumerate.recomputations import NOTHING
from ilp_planner.spaces.training.enumerate.variants import Variant, most_virtual
from ilp_planner.spaces.training.independent import (
    DEGREES,
    _recomputations,
    training_proof,
    unproved,
)
from ilp_planner.spaces.training.independent_costs import _model as counted_model
from ilp_planner.spaces.training.independent_costs import counted_job, uncounted
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import possible_choices, possible_degrees
from ilp_planner.specs.decoder import Experts, LatentAttention, Rotary, Window, as_decoder
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.model_reader import read_model
from tests.benchmarks.cases import ROOT
from tests.checker.test_checker import read
from tests.examples import examples
from tests.megatron_cases import GIB, small_cluster
from tests.planned_bytes import kept_bytes, rank_states
from tests.random_problems import POOLED, SPARSE, hopper, of_layers
from tests.runtime_cases import runtime_problem

ASKED = {
    "megatron": {
        "cp_comm": "p2p,a2a,all_gather",
        "fused_loss": "none",
        "overlap": "none",
        "tensor_overlap": "on",
        "sharding": "none,optimizer",
        "dispatcher": "alltoall,allgather,flex",
        "expert_overlap": "on,off",
        "fused_permute": "on,off",
    },
    "torchtitan": {"compile": "on", "tensor_overlap": "on"},
    "deepspeed": {},
}
OF_EXPERTS = ("dispatcher", "expert_overlap", "fused_permute")
LATENT = LatentAttention(query_rank=96, key_value_rank=64, key=64, rotary=32, value=64)
SEEDS = st.integers(0, 2**32 - 1)


def drawn_problem(seed: int, *, several: bool = False) -> Problem[Any]:
    """Draw a problem, of a model and settings that differ in much that costs read. several: kinds
    of layers, if there are experts."""
    drawn = random.Random(seed)
    space, model = drawn.choice(sorted(ASKED)), drawn.choice(("dense", "grouped", "experts"))
    asked = {"schedule": "1f1b"} if space == "torchtitan" else {}
    for name, values in ASKED[space].items():
        if drawn.random() < 0.3 and (model == "experts" or name not in OF_EXPERTS):
            asked[name] = values
    changes: dict[str, Any] = {"kv_heads": drawn.choice((1, 2, 4)), "layers": 3}
    if model == "experts":
        shared, groups = drawn.choice((0, 256)), drawn.choice((1, 4))
        kinds: Any = drawn.choice(({"dense_first": 1}, {"every": 2})) if several else {}
        changes["experts"] = Experts(
            count=8, top_k=2, ffn=256, shared_ffn=shared, groups=groups, **kinds
        )
    if space != "torchtitan":
        different: dict[str, tuple[Any, ...]] = {
            "dropout": (0.0, 0.1), "bias": (False, True), "tied": (False, True),
            "norm": ("rmsnorm", "layernorm"), "positions": ("rope", "learned", "none"),
            "gated": (True, False), "qkv_bias": (False, True), "qk_norm": (False, True),
            "latent": (None, None, LATENT), "window": (None, Window(size=256, full_every=2)),
            "attention_gate": (False, False, True),
        }  # fmt: skip
        changes |= {name: drawn.choice(values) for name, values in different.items()}
        if changes["positions"] != "rope":
            changes["rotary"] = None
        if changes["latent"]:
            changes |= {"attention_gate": False, "positions": "rope", "rotary": Rotary()}
    cluster = small_cluster(
        *drawn.choice(((1, 2), (2, 2), (1, 4), (2, 4))), between=drawn.choice((1e9, 2e10))
    )
    return runtime_problem(
        space, model, cluster=cluster, global_batch=drawn.choice((4, 6, 8)),
        memory_limit=9 * GIB, changes=changes, constraints=constraints_of(asked),
    )  # fmt: skip


def parts_of(problem: Problem[Any], seed: int) -> Iterator[tuple[Any, MegatronPart, Any]]:
    """Yield some (degrees, part, costs of the checker) of a problem."""
    costs = problem.costs
    every = [(degrees, number) for degrees in possible_degrees(problem, costs)
             for number in possible_choices(problem, costs, degrees)]  # fmt: skip
    random.Random(seed).shuffle(every)
    ways = [Variant(1, way).again for way in _recomputations(problem)]
    for degrees, number in every[:12]:
        part = MegatronPart(problem, costs, degrees._replace(choice=number))
        record = checker.loads(json.dumps(counted_job(problem, [part.job.settings])))
        own = checker.layer_costs().Costs(record, problem.cluster.nodes[0].devices)
        own.ways = ways
        yield degrees, part, own.job(tuple(getattr(degrees, name) for name in DEGREES), 0)


def close(found: Any, expected: Any) -> bool:
    """Tell whether numbers are the same, up to what sums in another order round."""
    return bool(list(found) == pytest.approx(list(expected), rel=1e-11, abs=1e-6))


@given(SEEDS)
@examples(8, more=38)
def test_seconds_of_ranks_are_those_of_the_planner(seed: int) -> None:
    problem = drawn_problem(seed, several=seed % 2 > 0)
    assert uncounted(problem) == ""
    ways = _recomputations(problem)
    for _, part, own in parts_of(problem, seed):
        assert list(own.kinds()) == list(part.ranks.kinds)
        for row, kind in enumerate(part.ranks.distinct):
            (total, _, forward), chain = part.elements[row], own.chain(kind)
            names = ["embedding", *own.costs.pattern, "output"]
            for k, name in enumerate(names):
                pair = forward[k], total[k] - forward[k]
                assert close((chain[name].forward, chain[name].back), pair)
            for number, way in enumerate(ways):
                more = [chain[name].again[number] for name in names[1:-1]]
                assert close(more, part.repeated(way)[row, 1:-1])
            fixed, late = own.sync(kind)
            assert close([fixed, *map(late.__getitem__, names)], part.syncs[row])
        assert close(own.sends(), part.ranks.transfers)
        assert close([own.constant()], [part.ranks.constant])


@given(SEEDS)
@examples(8, more=38)
def test_bytes_of_ranks_are_those_of_the_planner(seed: int) -> None:
    problem = drawn_problem(seed)
    for _, part, own in parts_of(problem, seed):
        for several in (False, True)[: 1 + (most_virtual(part) > 1)]:
            (each,) = states = own.states(several)
            ranks = sorted({0, min(1, own.pp - 1), own.pp - 1})
            ends = [own.edge((True,), rank, several, states) for rank in ranks]
            expected = rank_states(part.memory(Variant(1 + several, NOTHING)))
            for found, row in zip((each, *ends), expected, strict=True):
                assert close(found, row)
        for way in filter(part.allows, _recomputations(problem)):
            found = [*own.kept(Variant(1, way).again).values()]
            used = len(found) if way.granularity == "full" else -2  # none is computed again whole
            assert close(found[:used], kept_bytes(part, way, part.bare)[:used])


def test_a_model_with_more_has_no_proof_and_the_reason_is_said() -> None:
    encoder = Encoder(layers=2, hidden=96, heads=3, ffn=192, patch=14, image_size=224)
    problem = runtime_problem("megatron", cluster=small_cluster(1, 2), changes={"encoder": encoder})
    assert unproved(problem, 10.0) == "encoders of images or sounds"
    assert training_proof(problem, 10.0) == {}


@pytest.mark.parametrize("kind", sorted(SPARSE | POOLED))
def test_sparse_attention_has_no_proof_and_the_reason_is_said(kind: str) -> None:
    pooled = kind in POOLED
    base, changes = (SPARSE | POOLED)[kind]
    changes = of_layers({**changes, "prediction_layers": 0}, 3) | {"layers": 3}
    changes |= {} if pooled else {"experts": None}
    cluster = hopper(small_cluster(1, 2))
    problem = runtime_problem("megatron", base, cluster=cluster, changes=changes)
    what = "pooled keys" if pooled else "keys that an indexer chooses"
    assert unproved(problem, 10.0) == f"attention to {what}"
    assert training_proof(problem, 10.0) == {}


# ---- settings of degrees -------------------------------------------------------------------------

RULES = [(space, name) for space, rules in checker.TOLD.items() for name in rules]
OTHERS = {"none": "parameters", "optimizer": "parameters", 1: 2}


@given(SEEDS)
@examples(15, more=30)
def test_what_a_runtime_makes_of_degrees_is_what_the_checker_makes(seed: int) -> None:
    for problem in (drawn_problem(seed), drawn_problem(seed, several=True)):
        if not unproved(problem, 1.0):
            checker.opened(read(training_proof(problem, 1.0)))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("space", "name"), [*RULES, *(("megatron", name) for name in checker.IDLE)]
)
def test_settings_that_a_runtime_does_not_make_of_degrees_are_refused(
    space: str, name: str
) -> None:
    asked = {"schedule": "1f1b"} if space == "torchtitan" else {}
    problem = runtime_problem(
        space,
        model="experts",
        cluster=small_cluster(2, 4),
        global_batch=16,
        memory_limit=int(9 * GIB),
        constraints=constraints_of(asked),
    )
    proof = json.loads(json.dumps(training_proof(problem, 1.0)))
    job, refused = proof["table"]["job"], 0
    ruled, letter = name in checker.TOLD[space], checker.IDLE.get(name)
    forms = [row for row in job["forms"] if (ruled and not letter) or letter not in row[1]]
    for row in forms[:: max(1, len(forms) // 6)]:
        place, other = row[2], dict(job["settings"][row[2]])
        value = other[name]
        other[name] = not value if isinstance(value, bool) else OTHERS.get(value, 2)
        if isinstance(value, str) and value not in OTHERS:
            other[name] = {"p2p": "a2a", "alltoall": "allgather"}.get(value, "p2p")
        job["settings"].append(other)
        row[2] = len(job["settings"]) - 1
        with pytest.raises(checker.RefusedError, match=f"settings: choice.*{name}"):
            checker.opened(read(proof))
        row[2], refused = place, refused + 1
    assert refused


# ---- the model's text ----------------------------------------------------------------------------


def text_of(model: dict[str, Any], drawn: random.Random) -> dict[str, Any]:
    """Return what a model's text says of the figures of a proof; some defaults are left out."""
    found = {"": {key: model[key] for key in OF_MODEL if key != "rotary_share"}}
    found |= {key: dict(model[key]) for key in OF_PARTS if model[key]}
    for part, usual in checker.USUAL.items():
        for key, value in usual.items() if part in found else ():
            if found[part][key] == value and drawn.random() < 0.5:
                del found[part][key]
    return {"architecture": {**found.pop(""), **found}}


def toml_of(said: dict[str, Any]) -> str:
    """Write an object as TOML."""
    own, lines = said["architecture"], ["[architecture]"]
    for key, value in sorted(own.items(), key=lambda pair: isinstance(pair[1], dict)):
        if isinstance(value, dict):
            lines += [
                f"[architecture.{key}]",
                *(f"{k} = {json.dumps(v)}" for k, v in value.items()),
            ]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines)


@given(SEEDS)
@examples(15, more=70)
def test_a_model_text_that_says_another_model_is_refused(seed: int) -> None:
    problem, drawn = drawn_problem(seed), random.Random(seed)
    proof = read(training_proof(problem, 1.0)) if not unproved(problem, 1.0) else {}
    if "job" not in proof.get("table", ()):
        return
    plans, jobs, _, _ = checker.opened(proof)
    said = text_of(json.loads(json.dumps(counted_job(problem, [])["model"])), drawn)
    own = jobs.layers.model
    checker.agree_job(toml_of(said), plans, own, None)
    part = drawn.choice([key for key in ("", *OF_PARTS) if key in ("", *said["architecture"])])
    of = said["architecture"][part] if part else said["architecture"]
    key = drawn.choice([key for key, value in of.items() if not isinstance(value, dict)])
    value = of[key]
    if isinstance(value, bool):
        of[key] = not value
    else:
        of[key] = f"{value}x" if isinstance(value, str) else value + 1
    with pytest.raises(checker.RefusedError, match=f"inputs.model: {key}"):
        checker.agree_job(toml_of(said), plans, own, None)


def test_models_that_ship_say_what_a_proof_has() -> None:
    for path in sorted((ROOT / "models").glob("*.toml")):
        model = as_decoder(read_model(path).architecture)
        if model is not None:
            record = read(counted_model(model))
            said = fields(record, OF_MODEL, "job.model")
            for key, kinds in OF_PARTS.items():
                setattr(said, key, record[key] and fields(record[key], kinds, key))
            plans = {"layers": model.layers, "sequence": model.sequence}
            checker.agree_job(path.read_text(), plans, said, None)
