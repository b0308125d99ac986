"""Arithmetic of the modules against the closed formulas of the model."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.work import (
    FusedAttention,
    embedding_work,
    host_step,
    layer_work,
    output_work,
    prediction_work,
    step_traffic,
)
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention
from ilp_planner.specs.gpu_architectures import BLACKWELL, HOPPER
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Settings, TrainingJob
from tests.examples import for_each

DENSE = Decoder(
    layers=2, hidden=512, heads=8, kv_heads=4, sequence=1024, vocab=4096, ffn=1536, gated=True,
    bias=False,
)  # fmt: skip
MIXTURE = dataclasses.replace(DENSE, experts=Experts(count=8, top_k=2, ffn=256, shared_ffn=128))
LATENT = dataclasses.replace(
    DENSE, latent=LatentAttention(key_value_rank=64, key=48, rotary=16, value=48, query_rank=96)
)


def job(model, *, tp=1, cp=1, ep=1, batch=2, attention="unfused", **settings):
    return TrainingJob(
        model=model,
        micro_batch=batch,
        global_batch=batch,
        tp=tp,
        dp=ep,
        layout=split_layout([model.layers], prediction_layers=model.prediction_layers),
        settings=Settings(
            cp=cp,
            ep=ep,
            sequence_parallel=tp > 1,
            kernels=Kernels(attention=attention, grouped_experts=True),
            **settings,
        ),
    )


def flops(modules, way="forward"):
    return sum(kernel.flops for module in modules for kernel in getattr(module, way))


@for_each("model", [DENSE, MIXTURE, LATENT])
@for_each(("tp", "cp"), [(1, 1), (4, 1), (2, 2)])
def test_forward_arithmetic_is_the_model_s(model, tp, cp):
    found = job(model, tp=tp, cp=cp)
    experts = model.experts is not None
    whole = model.flops["experts-layer" if experts else "mlp-layer"] * found.micro_batch
    ranks = tp * cp
    mine = flops(layer_work(found, kind=experts)) * ranks
    assert mine == pytest.approx(whole)
    assert flops(output_work(found)) * ranks == pytest.approx(
        2 * model.sequence * model.hidden * found.padded_vocab * found.micro_batch
    )
    assert flops(embedding_work(found)) == 0


def test_backward_is_twice_forward_but_for_flash_attention():
    plain = layer_work(job(DENSE), kind=0)
    assert flops(plain, "backward") == pytest.approx(2 * flops(plain))
    flash = layer_work(job(DENSE, attention="flash"), kind=0)
    (core,) = [module for module in flash if module.core]
    (old,) = [module for module in plain if module.core]
    assert flops([core]) == pytest.approx(flops([old]) / 2)  # the causal half
    assert flops([core], "backward") == pytest.approx(2.5 * flops([core]))
    assert sum(k.traffic for k in core.forward) < sum(k.traffic for k in old.forward) / 2


def test_expert_parallelism_shares_weights_not_arithmetic():
    alone, spread = (layer_work(job(MIXTURE, ep=ep), kind=1) for ep in (1, 4))
    assert flops(spread) == pytest.approx(flops(alone))
    traffic = [sum(k.traffic for m in work for k in m.forward) for work in (alone, spread)]
    assert traffic[1] < traffic[0]


def test_experts_one_by_one_are_as_much_work_in_more_kernels():
    grouped = job(MIXTURE)
    kernels = dataclasses.replace(grouped.settings.kernels, grouped_experts=False)
    settings = dataclasses.replace(grouped.settings, kernels=kernels)
    single = dataclasses.replace(grouped, settings=settings)
    both = [layer_work(each, kind=1) for each in (grouped, single)]
    assert flops(both[0]) == pytest.approx(flops(both[1]))
    for way in ("forward", "backward"):
        bytes_moved = [sum(k.traffic for m in w for k in getattr(m, way)) for w in both]
        assert bytes_moved[0] == pytest.approx(bytes_moved[1])
    counts = [sum(len(m.forward) for m in work) for work in both]
    assert counts[1] - counts[0] == 3 * 7  # fc1, activation and fc2 of 8 experts


@for_each(
    ("kernels", "times"),
    [
        ({"imbalance": 1.5}, 1.5),
        ({"capacity": 1.25, "imbalance": 1.5}, 1.25),
        ({"capacity": 2.0, "imbalance": 1.5}, 1.5),
        ({"capacity": 2.0, "pad_to_capacity": True}, 2.0),
    ],
)
def test_the_fullest_rank_counts_within_a_capacity(kernels, times):
    even, uneven = (
        {module.name: module for module in layer_work(of(MIXTURE, **more), kind=1)}
        for more in ({}, kernels)
    )
    routed = {name for name in even if name.startswith("experts_")}
    assert {name for name in even if even[name] != uneven[name]} == routed
    for name in routed - {"experts_activation"}:
        assert flops([uneven[name]]) == pytest.approx(times * flops([even[name]]))


def test_a_clamped_activation_is_many_kernels():
    """With an offset, as GPT-OSS has it; a clamp alone is part of the fused one."""
    clamped = dataclasses.replace(MIXTURE, clamp=7.0, offset=1.0)
    (plain,), (own,), (fused,) = (
        [m for m in layer_work(of(model), kind=1) if m.name == "experts_activation"]
        for model in (MIXTURE, clamped, dataclasses.replace(clamped, offset=0.0))
    )
    assert fused == plain
    seen = TOKENS * 2 * 128
    assert (own.forward[0].traffic, own.backward[0].traffic) == (seen * 4 * 22, seen * 4 * 46)
    assert own.forward[0].traffic > 10 * plain.forward[0].traffic


@for_each(
    ("package", "gathered", "library"),
    [(False, False, ""), (False, True, ""), (True, False, "package"), (True, True, "flex")],
)
def test_attention_says_whose_library_it_is(package, gathered, library):
    one = job(DENSE, attention="flash", keeps_gathered=gathered)
    kernels = dataclasses.replace(one.settings.kernels, flash_package=package)
    one = dataclasses.replace(one, settings=dataclasses.replace(one.settings, kernels=kernels))
    (core,) = [m for m in layer_work(one, kind=0) if m.core]
    assert {kernel.shape.library for way in core.ways for kernel in way} == {library}


@for_each("model", [DENSE, LATENT])
@for_each("cp", [2, 4])
def test_attention_around_a_ring_has_a_kernel_a_step_and_merges_what_they_give(model, cp):
    """As much arithmetic as with keys and values gathered, over parts of the sequence."""
    ring, whole = (
        next(module for module in layer_work(one, kind=0) if module.core)
        for one in (
            job(model, cp=cp, attention="flash", cp_comm=how) for how in ("p2p", "all_gather")
        )
    )
    queries = 2 * 1024 // cp * model.query_width * 2
    keys = 2 * 1024 // cp * (model.query_width if model.latent else 4 * 64) * 2
    for way, alone, merged in zip(
        ring.ways,
        whole.ways,
        (2 * queries + (cp - 1) * (3 * queries + 2 * keys), (cp - 1) * (3 * queries + 5 * keys)),
        strict=True,
    ):
        fused = [kernel for kernel in way if kernel.shape]
        assert [kernel.shape.length for kernel in fused] == cp * [1024 / cp]
        assert [kernel.shape.length for kernel in alone] == [1024]
        assert flops([ring]) == pytest.approx(flops([whole]))
        assert sum(kernel.traffic for kernel in way if not kernel.shape) == merged


def test_a_prediction_layer_is_a_layer_and_an_output():
    model = dataclasses.replace(DENSE, prediction_layers=1)
    found = job(model)
    parts = flops(layer_work(found, kind=0)) + flops(output_work(found))
    joined = 2 * 2 * model.sequence * 2 * model.hidden * model.hidden
    assert flops(prediction_work(found)) == pytest.approx(parts + joined)


@given(batch=st.integers(1, 16))
def test_work_grows_with_samples(batch):
    one, more = (layer_work(job(DENSE, batch=n), kind=0) for n in (1, batch))
    assert flops(more) == pytest.approx(batch * flops(one))


@pytest.mark.parametrize(
    ("precision", "optimizer", "expected"),
    [("bf16", OptimizerSettings(), 34), ("fp32", OptimizerSettings(master=0), 28)],
)
def test_the_optimizer_step_reads_and_writes(precision, optimizer, expected):
    assert step_traffic(Settings(precision=precision, optimizer=optimizer)) == expected


def test_weight_gradients_are_added_up_in_a_pass_of_their_own_unless_that_is_fused():
    fused = job(DENSE)
    kernels = dataclasses.replace(fused.settings.kernels, accumulation_fusion=False)
    alone = dataclasses.replace(
        fused, settings=dataclasses.replace(fused.settings, kernels=kernels)
    )
    for before, after in zip(layer_work(fused, kind=0), layer_work(alone, kind=0), strict=True):
        assert after.forward == before.forward
        if not before.name.startswith(("linear", "mlp_fc")):
            assert after == before
            continue
        *_, product, added = after.backward
        assert before.backward[-1].shape == product.shape._replace(summed=4.0)
        # The product writes 2 bytes; the pass reads them, and reads and writes 4 bytes.
        weights = (before.backward[-1].traffic - product.traffic) / (2 * 4 - 2)
        assert added == (0.0, weights * (2 + 2 * 4), None)


# ---- bytes, kernel by kernel --------------------------------------------------------------------

TOKENS, WIDTH = 2 * 1024, 2


def moved(modules):
    """Return the bytes of every kernel, forward and backward, by module."""
    return [
        (module.name, [k.traffic for k in module.forward], [k.traffic for k in module.backward])
        for module in modules
    ]


def linear(name, tokens, inner, outer, copies=1):
    """Return what a product moves: its matrices; backward likewise, and for the gradient of the
    weights both sides of it, which is added to four bytes."""
    sides, weights = tokens * (inner + outer) * WIDTH, inner * outer * copies
    each = sides + weights * WIDTH
    return (name, [each], [each, sides + weights * 2 * 4])


def of(model, **changes):
    """Return a job of two ranks with sequence parallelism and flash attention."""
    found = job(model, tp=2, attention="flash")
    kernels = {name: changes.pop(name) for name in list(changes) if hasattr(Kernels(), name)}
    own = dataclasses.replace(found.settings.kernels, **kernels)
    settings = dataclasses.replace(found.settings, kernels=own, **changes)
    return dataclasses.replace(found, settings=settings)


HIDDEN = TOKENS * 512 * WIDTH // 2  # a rank's share of the hidden state
NORM, ADDED = ([2 * HIDDEN], [4 * HIDDEN]), ([3 * HIDDEN], [2 * HIDDEN])
CORE = TOKENS * (256 + 2 * 128 + 256) * WIDTH
MLP = TOKENS * 768 * WIDTH


def test_bytes_of_a_dense_layer():
    """Attention reads queries, keys and values and writes its output; rotation reads and writes
    queries and keys; the gated activation reads two and writes one, and backward twice that."""
    found = moved(layer_work(of(DENSE), kind=0))
    turned = 2 * TOKENS * (256 + 128) * WIDTH
    rope = [("rope", [turned], [turned])] if DENSE.positions == "rope" else []
    assert found == [
        ("input_norm", *NORM),
        linear("linear_qkv", TOKENS, 512, 256 + 2 * 128),
        *rope,
        ("core_attention", [CORE], [2 * CORE]),
        linear("linear_proj", TOKENS, 256, 512),
        ("attention_residual", *ADDED),
        ("mlp_norm", *NORM),
        linear("mlp_fc1", TOKENS, 512, 1536),
        ("mlp_activation", [3 * MLP], [5 * MLP]),
        linear("mlp_fc2", TOKENS, 768, 512),
        ("mlp_residual", *ADDED),
    ]


def test_bytes_of_what_a_layer_may_have_besides():
    """Norms of queries and keys, rotation, dropout that is not fused; fewer groups than ranks."""
    model = dataclasses.replace(DENSE, qk_norm=True, positions="rope", dropout=0.1, gated=False)
    found = {name: both for name, *both in moved(layer_work(of(model), kind=0))}
    turned = 2 * TOKENS * (256 + 128) * WIDTH
    assert found["qk_norm"] == [[turned], [2 * turned]]
    assert found["rope"] == [[turned], [turned]]
    assert found["mlp_activation"] == [[2 * MLP], [3 * MLP]]
    unfused = layer_work(of(model, fused_dropout=False), kind=0)
    assert {name: both for name, *both in moved(unfused)}["mlp_residual"] == [
        [7 * HIDDEN], [2 * HIDDEN],
    ]  # fmt: skip
    alone = dataclasses.replace(DENSE, kv_heads=1)
    (qkv,) = [m for m in layer_work(of(alone), kind=0) if m.name == "linear_qkv"]
    assert qkv.forward[0].shape.n == 256 + 2 * 64
    whole = moved(layer_work(of(DENSE, sequence_parallel=False), kind=0))
    assert whole[0] == ("input_norm", [4 * HIDDEN], [8 * HIDDEN])


def test_bytes_of_unfused_attention():
    """Each of two products moves half of the operands and all scores; the softmax reads and writes
    them; dropout reads and writes them, and a mask of bytes."""
    model = dataclasses.replace(DENSE, dropout=0.1)
    (core,) = [
        module
        for module in moved(layer_work(of(model, attention="unfused"), kind=0))
        if module[0] == "core_attention"
    ]
    scores = TOKENS * 1024 * 4 * WIDTH
    product, mask = CORE / 2 + scores, scores * 2.5
    assert core[1] == [product, 2 * scores, product, mask]
    assert core[2] == [product, product, 3 * scores, product, product, mask]
    plain = layer_work(of(dataclasses.replace(DENSE, dropout=0.0), attention="unfused"), kind=0)
    (attention,) = [module for module in plain if module.core]
    assert [len(way) for way in attention.ways] == [3, 5]
    shape = attention.forward[0].shape
    assert (shape.m, shape.n, shape.k, shape.copies, shape.batched) == (1024, 1024, 64, 8, True)


def test_bytes_of_latent_attention():
    """Products to compressed widths are of a rank's own tokens; keys are as wide as queries."""
    found = moved(layer_work(of(LATENT), kind=0))
    names = [name for name, *_ in found]
    start = names.index("linear_q_down_proj")
    turned = 2 * TOKENS * 2 * 256 * WIDTH
    core = TOKENS * (256 + 2 * 256 + 192) * WIDTH
    assert found[start : start + 7] == [
        linear("linear_q_down_proj", TOKENS / 2, 512, 96),
        linear("linear_q_up_proj", TOKENS, 96, 256),
        linear("linear_kv_down_proj", TOKENS / 2, 512, 64 + 16),
        linear("linear_kv_up_proj", TOKENS, 64, 8 * (48 + 48) / 2),
        ("rope", [turned], [turned]),
        ("core_attention", [core], [2 * core]),
        linear("linear_proj", TOKENS, 192, 512),
    ]
    wide = dataclasses.replace(LATENT, latent=dataclasses.replace(LATENT.latent, query_rank=0))
    assert linear("linear_q_proj", TOKENS, 512, 256) in moved(layer_work(of(wide), kind=0))


@pytest.mark.parametrize("fused", [False, True])
def test_bytes_of_experts(fused):
    """Each token goes to two of 8, whose products a rank has halves of: all tokens of both ranks
    come. Tokens are put in order and back in two steps, or one."""
    found = moved(layer_work(of(MIXTURE, fused_permute=fused), kind=1))
    start = [name for name, *_ in found].index("router")
    ordered = 2 * (TOKENS / 2) * 2 * 512 * WIDTH * (1 if fused else 2)
    seen = TOKENS * 2
    routed = seen * 128 * WIDTH
    shared = TOKENS * 64 * WIDTH
    assert found[start : start + 9] == [
        linear("router", TOKENS / 2, 512, 8),
        ("permute", [ordered], [ordered]),
        linear("experts_fc1", seen, 512, 256, 8),
        ("experts_activation", [3 * routed], [5 * routed]),
        linear("experts_fc2", seen, 128, 512, 8),
        linear("shared_experts_fc1", TOKENS, 512, 128),
        ("shared_experts_activation", [3 * shared], [5 * shared]),
        linear("shared_experts_fc2", TOKENS, 64, 512),
        ("unpermute", [ordered], [ordered]),
    ]
    padded = of(MIXTURE, capacity=1.5, pad_to_capacity=True)
    more = {name: both for name, *both in moved(layer_work(padded, kind=1))}
    assert more["experts_activation"] == [[4.5 * routed], [7.5 * routed]]
    whole = of(MIXTURE, etp=1)
    (first,) = [m for m in layer_work(whole, kind=1) if m.name == "experts_fc1"]
    shape = first.forward[0].shape
    assert (shape.m, shape.n, shape.k, shape.copies, shape.grouped) == (
        TOKENS * 2 / 2 / 8, 512, 512, 8, True,
    )  # fmt: skip
    assert first.forward[0].products == 8  # on the streams of Transformer Engine
    settings = dataclasses.replace(whole.settings, keeps_gathered=True)
    titan = layer_work(dataclasses.replace(whole, settings=settings), kind=1)
    assert not any(kernel.products for m in titan for way in m.ways for kernel in way)


def test_bytes_at_the_ends():
    """Rows of the table are read and written, positions added, numbers dropped; the table's
    gradient is written and added. The loss goes over the logits many times, or few where fused."""
    row = TOKENS * 512 * WIDTH
    (plain,) = moved(embedding_work(of(dataclasses.replace(DENSE, positions="rope", dropout=0.0))))
    table = 4096 * 512 / 2 * (2 * WIDTH + 2 * 4)
    assert plain == ("embedding", [2 * row], [2 * row + table])
    learned = dataclasses.replace(DENSE, positions="learned", dropout=0.1)
    (found,) = moved(embedding_work(of(learned)))
    assert found[1] == [2 * row + 3 * row / 2 + 2 * row / 2]
    logits = TOKENS * 4096 / 2
    for fused, forward, backward in (
        (False, logits * (2 + 9 * 4), logits * (2 + 3 * 4)),
        (True, 3 * logits * 2, 2 * logits * 2),
    ):
        assert moved(output_work(of(DENSE, fused_loss=fused))) == [
            ("final_norm", *NORM),
            linear("output_layer", TOKENS, 512, 2048),
            ("loss", [forward], [backward]),
        ]
    model = dataclasses.replace(DENSE, prediction_layers=1)
    assert moved(prediction_work(of(model)))[:3] == [
        ("embedding_norm", *NORM),
        ("hidden_norm", *NORM),
        linear("join", TOKENS, 1024, 256),
    ]


@for_each(
    ("recipe", "architecture", "read", "written", "of_weights"),
    [
        ("nvfp4", BLACKWELL, 2, 2 * 9 / 16, 2 * 9 / 16),
        ("mxfp8", BLACKWELL, 1, 2 * 33 / 32, 2 * 33 / 32),
        ("fp8-current", BLACKWELL, 1, 1, 1),
        ("fp8-current", HOPPER, 1, 2, 2),
        ("fp8-delayed", HOPPER, 1, 2, 2),
        ("fp8-blockwise", HOPPER, 1, 2 * 33 / 32, 2 + 2 * 4 / 128**2),
    ],
)
def test_bytes_of_what_is_quantised(recipe, architecture, read, written, of_weights):
    """Read once, or twice where a maximum is looked for, and written by rows and by columns, or
    once where products read either; weights once per iteration, here of one micro-batch. Routers
    and outputs are left as they are."""
    low = dataclasses.replace(of(DENSE, quantised=recipe), gpu_architecture=architecture)
    (fc2,) = [m for m in layer_work(low, kind=0) if m.name == "mlp_fc2"]
    each, of_weight = read * WIDTH + written, read * WIDTH + of_weights
    expected = each * TOKENS * 768 + of_weight * 768 * 512
    assert fc2.forward[0] == (0.0, pytest.approx(expected), None)
    assert fc2.backward[0] == (0.0, pytest.approx(each * TOKENS * 512), None)
    assert fc2.forward[1].shape.quantised
    assert moved(output_work(low)) == moved(output_work(of(DENSE)))


@for_each(
    ("precision", "name", "expected"),
    [
        ("bf16", "adam", (4, 4 + 8 + 16 + 6, 2)),
        ("fp32", "adam", (4, 4 + 8 + 16, 4)),
        ("bf16", "sgd", (4, 4 + 8 + 2 * 4 + 6, 2)),
    ],
)
def test_bytes_of_a_step_on_the_host(precision, name, expected):
    """Gradients go there in single precision; the parameter and its moments are read and written,
    and rounded where they are shorter."""
    optimizer = OptimizerSettings(name=name, moments=4 if name == "sgd" else 8)
    assert host_step(Settings(precision=precision, optimizer=optimizer)) == expected


def test_only_products_and_attention_are_arithmetic():
    """Everything else moves bytes alone."""
    case = of(dataclasses.replace(MIXTURE, dropout=0.1, qk_norm=True), attention="unfused")
    every = (
        *embedding_work(case), *layer_work(case, kind=1), *output_work(case),
        *layer_work(of(LATENT, quantised="fp8-current"), kind=0),
    )  # fmt: skip
    kernels = [kernel for module in every for way in module.ways for kernel in way]
    assert all((kernel.flops > 0) == (kernel.shape is not None) for kernel in kernels)
    assert all(kernel.flops >= 0 for kernel in kernels)
    assert {kernel.flops for kernel in kernels if kernel.shape is None} == {0}
    assert not FusedAttention(length=1.0, head=1.0).backward


def test_norms_after_and_beside():
    """Norms after attention and MLP; both beside each other are added once."""
    after = layer_work(of(dataclasses.replace(DENSE, norm_at="both")), kind=0)
    names = [module.name for module in after]
    assert [name for name in names if "norm" in name] == [
        "input_norm", "attention_output_norm", "mlp_norm", "mlp_output_norm",
    ]  # fmt: skip
    behind = layer_work(of(dataclasses.replace(DENSE, norm_at="output")), kind=0)
    assert [m.name for m in behind if "norm" in m.name] == [
        "attention_output_norm", "mlp_output_norm",
    ]  # fmt: skip
    for norms in (1, 2):
        beside = layer_work(of(dataclasses.replace(DENSE, parallel_norms=norms)), kind=0)
        names = [module.name for module in beside]
        assert "attention_residual" not in names
        assert ("mlp_norm" in names) == (norms == 2)


def test_operators_one_by_one_move_more_than_fused_kernels() -> None:
    """torchtitan's layers that are not compiled: products and attention are the same."""
    plain = job(dataclasses.replace(DENSE, positions="rope"))
    eager = dataclasses.replace(
        plain, settings=dataclasses.replace(plain.settings, keeps_gathered=True)
    )
    kernels = dataclasses.replace(eager.settings.kernels, compiled=True)
    compiled = dataclasses.replace(
        eager, settings=dataclasses.replace(eager.settings, kernels=kernels)
    )
    rows = zip(
        layer_work(plain, kind=0),
        layer_work(eager, kind=0),
        layer_work(compiled, kind=0),
        strict=True,
    )
    slower = {}
    for one, two, three in rows:
        assert one == three
        if one != two:
            slower[one.name] = tuple(
                found[0].traffic / fused[0].traffic
                for found, fused in zip(two.ways, one.ways, strict=True)
            )
    assert slower == {
        "input_norm": (9, 8.5),
        "rope": (5, 5),
        "mlp_norm": (9, 8.5),
        "mlp_activation": pytest.approx((10 / 6, 18 / 10)),
    }
