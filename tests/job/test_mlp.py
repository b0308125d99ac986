"""What a layer's experts hold and keep, tensor by tensor."""

from collections.abc import Iterator
from typing import Any

from ilp_planner.job.mlp import expert_modules, routed_tokens
from ilp_planner.job.modules import Module
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.training import Kernels, Recompute, TrainingJob
from tests.examples import for_each
from tests.training_jobs import job, llama, settings

TOKENS = 512  # 512 of each of 2 samples, on two ranks of tensor parallelism
SENT = 2 * TOKENS  # each to two experts
HIDDEN, COUNT, FFN, SHARED = 256, 8, 96, 192


def routed(
    *, ep: int = 4, etp: int = 1, bias: bool = False, recompute: str = "", **kernels: Any
) -> TrainingJob:
    """Return a job with two of eight experts for each token, on 2 x 4 ranks."""
    experts = Experts(count=COUNT, top_k=2, ffn=FFN, shared_ffn=SHARED)
    again = Recompute(granularity="selective", modules=(recompute,)) if recompute else Recompute()
    usual = {"grouped_experts": True, "dispatcher": "alltoall"}
    return job(
        llama(experts=experts, bias=bias),
        dp=4,
        settings=settings(ep=ep, etp=etp, recompute=again, kernels=Kernels(**{**usual, **kernels})),
    )


def flat(module: Module, repeat: int = 1) -> Iterator[tuple[Module, int]]:
    """Yield a module and what is in it, and how often each is there."""
    yield module, repeat * module.repeat
    for child in module.children:
        yield from flat(child, repeat * module.repeat)


def kept(case: TrainingJob, within: str = "") -> dict[tuple[str, str], float]:
    """Return the bytes of what the modules of a layer's experts keep, in one of them or all."""
    _, inner = expert_modules(case)
    chosen = [child for child in inner.children if within in child.name]
    found: dict[tuple[str, str], float] = {}
    for child in chosen:
        for module, times in flat(child):
            for one in module.kept:
                key = (module.name, one.name)
                found[key] = found.get(key, 0) + times * one.size
    return found


def weights(case: TrainingJob, within: str) -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of a module of a layer's experts, repeats included."""
    _, inner = expert_modules(case)
    (child,) = (child for child in inner.children if child.name == within)
    return [one.shape for module, times in flat(child) for one in module.weights * times]


def test_a_router_keeps_scores_of_all_experts_and_where_tokens_go() -> None:
    """fp32 scores and probabilities, a boolean map, and a row and a token for each choice."""
    usual = {
        ("router", "scores"): 4 * TOKENS * COUNT,
        ("router", "probabilities"): 4 * TOKENS * COUNT,
        ("router", "routing map"): TOKENS * COUNT,
        ("router", "order"): 4 * TOKENS * 2 * 2,
    }
    assert kept(routed(), "router") == usual
    fused = kept(routed(fused_permute=True), "router")
    assert fused == usual | {("router", "order"): 4 * TOKENS * (2 * COUNT + 1)}
    assert weights(routed(), "router") == [(COUNT, HIDDEN)]
    assert weights(routed(bias=True), "router") == [(COUNT, HIDDEN), (COUNT,)]


@for_each(
    ("dispatcher", "ep", "etp", "sources"),
    [
        ("alltoall", 4, 2, 0),
        ("flex", 4, 1, 0),
        ("allgather", 4, 1, 4),
        ("allgather", 4, 2, 8),
        ("allgather", 2, 1, 2),
        ("allgather", 1, 2, 2),
        ("allgather", 1, 1, 0),
    ],
)
def test_gathering_tokens_keeps_the_routing_of_all_ranks(
    dispatcher: str, ep: int, etp: int, sources: int
) -> None:
    found = kept(routed(dispatcher=dispatcher, ep=ep, etp=etp), "router")
    gathered = {name: size for (_, name), size in found.items() if name.startswith("gathered")}
    expected = {"gathered probabilities": 4, "gathered map": 1}
    assert gathered == {
        name: width * sources * TOKENS * COUNT for name, width in expected.items() if sources
    }


GATE_UP, DOWN = (2 * FFN, HIDDEN), (HIDDEN, FFN)


@for_each(
    ("kernels", "matrices", "vectors"),
    [
        ({}, [GATE_UP] * 2 + [DOWN] * 2, [(2 * FFN,)] * 2 + [(HIDDEN,)] * 2),
        # both experts in one tensor, transposed, without biases
        (
            {"implementation": "local", "attention": "unfused"},
            [(HIDDEN, 2 * 2 * FFN), (2 * FFN, HIDDEN)],
            [],
        ),
        ({"grouped_experts": False}, [GATE_UP] * 2 + [DOWN] * 2, [(2 * FFN,), (HIDDEN,)] * 2),
    ],
)
def test_a_rank_holds_its_share_of_the_routed_experts(
    kernels: dict[str, Any], matrices: list[tuple[int, ...]], vectors: list[tuple[int, ...]]
) -> None:
    """Two of eight on four ranks; gate and up are one product."""
    assert weights(routed(**kernels), "experts") == matrices
    biased = weights(routed(bias=True, **kernels), "experts")
    assert sorted(biased) == sorted(matrices + vectors)
    _, inner = expert_modules(routed(bias=True, **kernels))
    (experts,) = (child for child in inner.children if child.name == "experts")
    assert experts.expert_parameters == experts.parameters  # reduced over their own replicas
    names = {one.name for module, _ in flat(experts) for one in module.weights}
    if kernels.get("implementation") == "local":
        assert names == {"weight1", "weight2"}


@for_each(
    ("kernels", "more"),
    [
        ({}, 0),
        ({"implementation": "local", "attention": "unfused"}, 0),
        ({"grouped_experts": False}, 0),
        ({"deterministic": True}, 2 * HIDDEN),  # what they give
        ({"deterministic": True, "fused_permute": True}, 0),
        ({"fused_activation": False}, 2 * FFN + 2 * FFN),  # the gate, and what is not yet weighted
    ],
)
def test_routed_experts_keep_what_they_multiply(kernels: dict[str, Any], more: int) -> None:
    """As many tokens come as are sent: to two experts a quarter of those of four ranks. Kept are
    inputs, both halves of the first product, and each token's weight in fp32."""
    case = routed(**kernels)
    assert routed_tokens(case) == SENT
    each = 2 * HIDDEN + 2 * 2 * FFN + 4 + 2 * FFN + more
    found = kept(case, "experts")
    shared = kept(case, "shared_experts")
    assert sum(found.values()) - sum(shared.values()) == SENT * each


def test_a_shared_expert_takes_all_tokens_and_shares_the_norm_s_output() -> None:
    """Divided by tensor parallelism, unlike routed ones; under delayed scaling the product keeps
    the norm's output in 8 bits besides, unless that is computed again."""
    usual = {
        ("activation_func", "input"): 2 * 2 * TOKENS * 2 * SHARED / 2,
        ("linear_fc2", "input"): 2 * 2 * TOKENS * SHARED / 2,
    }
    assert kept(routed(), "shared_experts") == usual
    delayed = kept(routed(quantised="fp8-delayed"), "shared_experts")
    assert delayed["linear_fc1", "input"] == TOKENS * HIDDEN
    current = kept(routed(quantised="fp8-current"), "shared_experts")
    assert ("linear_fc1", "input") not in current
    again = kept(routed(quantised="fp8-delayed", recompute="layernorm"), "shared_experts")
    assert ("linear_fc1", "input") not in again
    assert ("linear_fc1", "input") not in kept(routed(recompute="layernorm"), "shared_experts")


def test_what_of_the_experts_is_computed_again_is_not_kept() -> None:
    assert kept(routed(recompute="moe")) == {}
    assert kept(routed(recompute="shared_experts"), "shared_experts") == {}
    usual, again = kept(routed(), "experts"), kept(routed(recompute="moe_act"), "experts")
    assert usual["linear_fc2", "input"] - again["linear_fc2", "input"] == 2 * SENT * FFN


@for_each(
    ("kernels", "tokens"),
    [
        ({"imbalance": 1.5}, 1536),
        ({"imbalance": 1.0001}, 1025),
        # at most 1/8 of what a rank sends, times the factor, of each of four ranks to each of two
        ({"capacity": 0.5}, 2 * 4 * 64),
        ({"capacity": 0.501}, 2 * 4 * 65),
        ({"capacity": 2.0}, 1024),
        ({"capacity": 2.0, "imbalance": 1.5}, 1536),
        ({"capacity": 1.25, "imbalance": 1.5}, 2 * 4 * 160),
        ({"capacity": 2.0, "imbalance": 1.5, "pad_to_capacity": True}, 2 * 4 * 256),
        ({"capacity": 2.0, "pad_to_capacity": True}, 2 * 4 * 256),
    ],
)
def test_tokens_that_come_to_a_rank(kernels: dict[str, Any], tokens: int) -> None:
    assert routed_tokens(routed(**kernels)) == tokens
