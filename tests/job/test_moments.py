"""What a rank holds for a moment, followed by hand: tensor by tensor, in units of one of them.

512 tokens of two samples go through layers 256 wide on two ranks, in two bytes a number: WHOLE is
one of these between products, NARROW the half of it that is a rank's with sequence parallelism.
"""

from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.job.overheads import (
    attention_backward,
    embedding_moment,
    experts_moment,
    flow,
    loader_batch,
    loss_moment,
    mlp_backward,
    ring_forward,
    scores_buffer,
)
from ilp_planner.job.quantised import copies_width, kept_width
from ilp_planner.specs.decoder import Experts, LatentAttention
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, TrainingJob
from tests.examples import for_each
from tests.training_jobs import job, llama, settings

ROWS, HIDDEN = 512 * 2, 256
WHOLE = 2 * ROWS * HIDDEN
NARROW = WHOLE // 2


def case(
    model: dict[str, Any] | None = None, kernels: dict[str, Any] | None = None, **changes: Any
) -> TrainingJob:
    """Return a job of a small Llama. changes: of its settings."""
    return job(
        llama(**(model or {})), settings=settings(kernels=Kernels(**(kernels or {})), **changes)
    )


def test_what_goes_through_a_layer() -> None:
    """Gathered before a product, and again for a weight's gradient, unless it is kept so."""
    found = flow(case())
    assert (found.whole, found.narrow, found.gathered, found.again) == (
        WHOLE, NARROW, WHOLE, WHOLE,
    )  # fmt: skip
    found = flow(case(keeps_gathered=True))
    assert (found.narrow, found.gathered, found.again) == (NARROW, WHOLE, 0)
    found = flow(case(sequence_parallel=False))
    assert (found.whole, found.narrow, found.gathered, found.again) == (WHOLE, WHOLE, 0, 0)


# ---- the MLP's way back --------------------------------------------------------------------------


@for_each("ffn", [64, 512, 704])
def test_the_mlp_s_way_back(ffn: int) -> None:
    """A gradient of the residual; the second product: what it gathers, and its gradient; the
    activation, whose input has a gradient of two halves; the first product: what is gathered again
    and the gradient of the whole, without the activation's input, that was kept."""
    column = ROWS * ffn
    second, activation = NARROW + WHOLE + column, NARROW + 2 * column
    first = NARROW - column + 2 * WHOLE
    assert mlp_backward(case({"ffn": ffn})) == max(second, activation, first)
    dropping = mlp_backward(case({"ffn": ffn, "dropout": 0.1}))
    assert dropping == max(second, activation, first) + NARROW
    kept = mlp_backward(case({"ffn": ffn}, keeps_gathered=True))
    assert kept == max(second, activation, first - WHOLE)


def test_the_mlp_s_way_back_without_a_gate_fusing_or_sequence_parallelism() -> None:
    column = ROWS * 64
    plain = case({"ffn": 64, "gated": False})
    assert mlp_backward(plain) == NARROW - column + 2 * WHOLE
    unfused = case({"ffn": 64}, {"fused_activation": False})
    assert mlp_backward(unfused) == NARROW - 2 * column + 2 * WHOLE  # the gate was kept as well
    wide = case({"ffn": 4096}, {"fused_activation": False})
    assert mlp_backward(wide) == NARROW + 2 * ROWS * 4096
    whole = case({"ffn": 64}, sequence_parallel=False)
    assert mlp_backward(whole) == WHOLE - column + WHOLE


def test_gradients_of_weights_that_are_not_added_in_place_are_there_for_a_moment() -> None:
    """Of 64 or 512 rows on this rank, 256 wide, of the second product; twice that of the first."""
    apart = {"accumulation_fusion": False}
    column = ROWS * 64
    found = mlp_backward(case({"ffn": 64}, apart))
    assert found == NARROW - column + 2 * WHOLE + 2 * 64 * HIDDEN
    found = mlp_backward(case({"ffn": 512}, apart))
    assert found == NARROW + WHOLE + ROWS * 512 + 2 * 256 * HIDDEN


@for_each("recipe", ["fp8-delayed", "fp8-current", "mxfp8"])
@for_each("ffn", [64, 704])
def test_quantised_gradients_on_the_mlp_s_way_back(recipe: str, ffn: int) -> None:
    """What the second product gathers is quantised in all its copies, what is gathered again for
    the first one in one of them; both halves' gradients are quantised before the first one."""
    low = case({"ffn": ffn}, {"quantised": recipe})
    numbers, copies, kept = ROWS * ffn // 2, copies_width(low), kept_width(low)
    assert 0 < kept < 2
    residual, column = NARROW, 2 * numbers
    second = residual + WHOLE / 2 * copies + column
    left = residual + column - numbers * kept
    activation = left + 2 * column
    first = left - column + 2 * numbers * copies + WHOLE / 2 * kept + WHOLE
    assert mlp_backward(low) == pytest.approx(max(second, activation, first), rel=1e-12)


# ---- experts -------------------------------------------------------------------------------------


def routed(
    *,
    ffn: int = 96,
    shared: int = 0,
    ep: int = 4,
    etp: int = 1,
    dropout: float = 0.0,
    **kernels: Any,
) -> TrainingJob:
    """Return a job that sends each token to two of eight experts, on 2 x 4 ranks."""
    usual = {"grouped_experts": True, "dispatcher": "alltoall"}
    experts = Experts(count=8, top_k=2, ffn=ffn, shared_ffn=shared)
    return job(
        llama(experts=experts, dropout=dropout),
        dp=4,
        settings=settings(ep=ep, etp=etp, kernels=Kernels(**{**usual, **kernels})),
    )


SENT = WHOLE  # 512 tokens of a rank, each to two experts


@for_each(
    ("ep", "etp", "steps"),
    [
        (1, 1, 1 + 2),  # put in the order of experts; and after these in both orders
        (2, 1, 2 + 2),  # permuted, exchanged
        (4, 1, 2 + 2),
        (8, 1, 1 + 1),  # of one expert nothing is put in order; it keeps what comes
        (4, 2, 2 + 2 + 2 * 2),  # exchanged by halves, gathered, and twice as many after
        (1, 2, 1 + 2 + 2 * 2),
        (8, 2, 2 + 2),
    ],
)
def test_tokens_in_every_order_that_they_pass(ep: int, etp: int, steps: int) -> None:
    """Or, on the way back, the residual's gradient and those of what they gave, in two orders."""
    back = NARROW + 2 * etp * SENT
    assert experts_moment(routed(ep=ep, etp=etp)) == max(steps * SENT, back)
    shared = experts_moment(routed(ep=ep, etp=etp, shared=64))
    assert shared == max(steps * SENT + NARROW, back)


def test_tokens_of_experts_one_by_one_or_deterministic() -> None:
    usual = experts_moment(routed())
    assert experts_moment(routed(grouped_experts=False)) == usual + SENT  # and side by side
    alone = routed(ep=8, grouped_experts=False)
    assert experts_moment(alone) == experts_moment(routed(ep=8))
    # what they give is among what is kept
    assert experts_moment(routed(deterministic=True)) == usual - SENT


@pytest.mark.parametrize(("ep", "etp"), [(4, 1), (2, 2)])
def test_tokens_that_are_gathered_of_all_ranks(ep: int, etp: int) -> None:
    """Their gradients come back so as well; a rank's experts take as many as are sent, of each."""
    found = experts_moment(routed(ep=ep, etp=etp, dispatcher="allgather"))
    assert found == 2 * NARROW * ep * etp + SENT * etp


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_wide_experts_hold_most_on_their_way_back(dropout: float) -> None:
    """The residual's gradient, and those of both halves of the first product."""
    residual = NARROW * (2 if dropout else 1)
    found = experts_moment(routed(ffn=2048, dropout=dropout))
    assert found == residual + 2 * 2 * ROWS * 2048
    low = routed(ffn=2048, dropout=dropout, quantised="fp8-current")
    numbers = ROWS * 2048
    column, copies, kept = 2 * numbers, copies_width(low), kept_width(low)
    assert experts_moment(low) == residual + column - numbers * kept + 2 * column + 2 * (
        numbers * copies
    )


# ---- attention -----------------------------------------------------------------------------------


def test_the_way_back_of_attention_ends_with_its_first_product() -> None:
    """Queries are half as wide as the layer on a rank, keys and values a quarter: their gradients,
    what is gathered again and the gradient of the layer's input."""
    query = WHOLE // 2
    inputs = 2 * query
    assert attention_backward(case()) == NARROW + inputs + 2 * WHOLE
    assert attention_backward(case(keeps_gathered=True)) == NARROW + 5 * query
    assert attention_backward(case({"dropout": 0.1})) == 2 * NARROW + inputs + 2 * WHOLE


def test_flash_attention_adds_up_queries_in_fp32() -> None:
    """Heads of 64: 512 wide on a rank, keys and values half of that."""
    query = 2 * WHOLE
    found = attention_backward(case({"head": 64}))
    assert found == NARROW + query + 2 * query + 2 * query


def test_unfused_attention_has_gradients_of_all_scores_twice() -> None:
    """8 heads on a rank; beside them the gradient of the output. With few tokens the first product
    holds more; with dropout three are forgotten: of these and of what was kept."""
    local = {"implementation": "local", "attention": "unfused"}
    value, scores = WHOLE // 2, 2 * ROWS * 8 * 512
    assert attention_backward(case(kernels=local)) == NARROW + value + 2 * scores
    few = {"sequence": 8}
    whole = 2 * 8 * 2 * HIDDEN
    scores = 2 * 8 * 2 * 8 * 8
    assert attention_backward(case(few, local)) == whole // 2 + whole + 2 * whole
    found = attention_backward(case({**few, "dropout": 0.1}, local))
    assert found == whole - scores + whole + 2 * whole


def test_latent_attention_has_keys_as_wide_as_queries() -> None:
    """16 heads of 192 and values of 128 on two ranks: 8 x 192 and 8 x 128 wide."""
    latent = LatentAttention(key_value_rank=32, key=128, rotary=64, value=128)
    query, value = 2 * ROWS * 8 * 192, 2 * ROWS * 8 * 128
    found = attention_backward(case({"latent": latent, "kv_heads": 16}))
    assert found == NARROW + value + (2 * query + value) + 2 * query
    low = replace(latent, key=8, rotary=4, value=8)
    query, value = 2 * ROWS * 8 * 12, 2 * ROWS * 8 * 8
    found = attention_backward(case({"latent": low, "kv_heads": 16}))
    assert found == NARROW + (2 * query + value) + 2 * WHOLE


@for_each(
    ("how", "cp", "inner", "steps"),
    [
        ("p2p", 1, 0, 0),
        ("p2p", 4, 0, 4),
        ("a2a+p2p", 4, 2, 2),
        ("a2a+p2p", 8, 2, 4),
        ("a2a+p2p", 4, 0, 4),
        ("a2a", 4, 0, 0),
        ("all_gather", 4, 0, 0),
    ],
)
def test_a_ring_has_the_output_of_every_step(how: str, cp: int, inner: int, steps: int) -> None:
    """128 wide on a rank, and keys and values of 64 that are in use and that arrive."""
    rows = 2 * 512 // cp * 2
    found = ring_forward(case(cp=cp, cp_comm=how, cp_inner=inner))
    assert found == (steps * rows * 128 + 4 * rows * 64 if steps else 0)


def test_the_buffer_of_scores_is_core_s_own() -> None:
    local = {"implementation": "local", "attention": "unfused"}
    assert scores_buffer(case(kernels=local)) == 2 * ROWS * 8 * 512
    assert scores_buffer(case(kernels={"attention": "unfused"})) == 0
    assert scores_buffer(case(kernels={**local, "attention": "flash"})) == 0


# ---- the ends ------------------------------------------------------------------------------------

VOCAB = 512  # of 1000 words, padded to 1024, on a rank
LOGITS, LOADED = 2 * ROWS * VOCAB, ROWS * (3 * 8 + 4)


def test_what_is_loaded_of_a_micro_batch() -> None:
    """Tokens, labels and positions, weights of the loss; a mask of pairs where it is made."""
    assert case().padded_vocab == 2 * VOCAB
    assert loader_batch(case()) == LOADED
    assert loader_batch(case(kernels={"loader_mask": True})) == LOADED + 2 * 512 * 512


def test_around_the_loss_there_are_logits_and_what_was_loaded() -> None:
    """Before, in two bytes beside the softmax in four, which is kept; or the gradient of the
    product's input, what is gathered again, and the share that stays, after it."""
    assert loss_moment(case()) == LOGITS + LOADED + WHOLE
    # PyTorch's own, divided over two ranks: on the way back three more in four bytes
    assert loss_moment(case(keeps_gathered=True)) == 3 * 2 * LOGITS
    alone = replace(case(keeps_gathered=True, sequence_parallel=False), tp=1)
    assert loss_moment(alone) == 2 * 2 * (2 * LOGITS)
    native = {"fused_loss": True, "loss_kernel": "native"}
    assert loss_moment(case(kernels=native)) == LOGITS + LOADED + WHOLE + 2 * LOGITS
    predicting = case({"prediction_layers": 1})
    predicting = replace(predicting, layout=split_layout([1, 2, 3, 2], prediction_layers=1))
    assert loss_moment(predicting) == 2 * LOGITS + LOADED + WHOLE
    few = case({"vocab": 100})
    assert few.padded_vocab == 256
    logits = LOGITS // 4
    assert loss_moment(few) == max(
        logits + LOADED + WHOLE, logits + 2 * WHOLE + NARROW - 2 * logits
    )


def test_a_loss_in_place_leaves_the_product_s_way_back() -> None:
    """Its gradient is where the logits were: the gradient of the product's input, which is also
    that of its weight where that is not added in place."""
    engine = {"fused_loss": True, "loss_kernel": "te"}
    assert loss_moment(case(kernels=engine)) == 2 * WHOLE + NARROW
    assert loss_moment(case(kernels=engine, keeps_gathered=True)) == WHOLE + NARROW
    assert loss_moment(case(kernels=engine, sequence_parallel=False)) == WHOLE
    apart = case(kernels={**engine, "accumulation_fusion": False})
    assert loss_moment(apart) == 2 * WHOLE + NARROW + 2 * VOCAB * HIDDEN
    masked = case(kernels={**engine, "loader_mask": True}, sequence_parallel=False)
    masked = replace(masked, model=replace(masked.model, hidden=16, heads=16, head=1))
    assert loss_moment(masked) == LOADED + 2 * 512 * 512


def test_logits_in_fp32_and_those_of_the_legacy_model() -> None:
    legacy = case(kernels={"implementation": "local", "attention": "flash"})
    assert loss_moment(legacy) == LOGITS + 2 * LOGITS
    single = case(precision="fp32")
    assert loss_moment(single) == 2 * (2 * WHOLE + NARROW)  # logits are the softmax already
    native = {"fused_loss": True, "loss_kernel": "native"}
    fused = case(kernels=native, precision="fp32")
    assert loss_moment(fused) == max(2 * LOGITS + LOADED + 2 * WHOLE, 2 * (2 * WHOLE + NARROW))
    wide = replace(fused, model=replace(fused.model, vocab=8000))
    assert loss_moment(wide) == 4 * ROWS * wide.padded_vocab // 2 + LOADED + 2 * WHOLE


def test_at_the_embedding_there_are_gradients_of_all_words() -> None:
    """In two bytes, with the gradient that is put together, and its part; or the loader's mask, of
    all tokens and of each rank's, where context parallelism cuts it."""
    table = 2 * VOCAB * HIDDEN
    assert embedding_moment(case()) == table + WHOLE + NARROW
    assert embedding_moment(case(sequence_parallel=False)) == table + WHOLE
    masked = {"loader_mask": True}
    assert embedding_moment(case({"sequence": 4096}, masked)) == 2 * 4096 * 4096
    assert embedding_moment(case({"sequence": 4096}, masked, cp=2)) == 2 * 2048 * 4096 * 3
