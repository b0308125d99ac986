"""Latent attention to keys that an indexer chooses: weights, kept bytes, work, messages, rules."""

from dataclasses import replace

import pytest

from ilp_planner.analysis.stages import kind_of
from ilp_planner.job.decoder import layer_module, rank_modules
from ilp_planner.job.messages import layer_messages, unsplit_parameters
from ilp_planner.job.overheads import attention_backward, index_forward
from ilp_planner.job.work import layer_work
from ilp_planner.settings.rules import MEGATRON_RULES, check_sparse, context_rules, of_recomputation
from ilp_planner.specs.decoder import Decoder, LatentAttention, SparseAttention, Window
from ilp_planner.specs.gpu_architectures import AMPERE
from ilp_planner.specs.layer_kinds import DENSE, FOLLOWING
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Offload, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning

H, S, HEADS, RANK, ROTARY, QUERY, KEY, VALUE = 1024, 1024, 32, 512, 64, 256, 128, 64
INDEX, CHANNELS, TOP = 16, 128, 256
SPARSE = SparseAttention(heads=INDEX, head=CHANNELS, top_k=TOP)
FIELDS = {
    **{"layers": 2, "hidden": H, "heads": HEADS, "sequence": S, "vocab": 1000, "ffn": 2048},
    **{"gated": True, "bias": False, "norm": "rmsnorm", "positions": "rope", "tied": False},
    **{"dropout": 0.0, "qk_norm": True, "sparse": SPARSE},
    "latent": LatentAttention(
        key_value_rank=RANK, key=KEY, rotary=ROTARY, value=VALUE, query_rank=QUERY
    ),
}
MODEL = Decoder(**FIELDS)
ONE = RANK + ROTARY
INDEXER = QUERY * INDEX * CHANNELS + H * (CHANNELS + INDEX) + 2 * CHANNELS


def job_of(model=MODEL, *, tp=1, cp=1, micro_batch=1, **changes):
    settings = Settings(
        cp=cp, cp_comm="all_gather" if cp > 1 else "p2p", sequence_parallel=tp > 1, **changes
    )
    return TrainingJob(
        model=model, micro_batch=micro_batch, global_batch=8, tp=tp, settings=settings
    )


def kept_of(job):
    """Return the bytes of each tensor that attention keeps, by module and name."""
    found = {}

    def walk(module):
        for tensor in module.kept:
            found[module.name, tensor.name] = tensor.size
        for child in module.children:
            walk(child)

    walk(next(one for one in layer_module(job, 0).children if one.name == "self_attention"))
    return found


CORE = {
    ("core_attention", "queries"): S * HEADS * ONE * 2,
    ("core_attention", "keys"): S * ONE * 2,
    ("core_attention", "chosen keys"): S * TOP * 4,
    ("core_attention", "heads with keys"): S * HEADS,
    ("core_attention", "output"): S * HEADS * RANK * 2,
}
LEARNT = {
    ("indexer", "key"): S * CHANNELS * 2,
    ("indexer", "statistics"): 2 * S * 4,
    ("indexer", "index queries"): S * INDEX * CHANNELS * 2,
    ("indexer", "index keys"): S * CHANNELS * 2,
    ("indexer", "weights"): S * INDEX * 4,
    ("indexer", "gradients"): S * TOP * 4,
    ("indexer", "numbers"): S * TOP * 4,
    ("indexer", "mask"): S * TOP,
}
AROUND = {
    ("q_layernorm", "input"): S * QUERY * 2,
    ("q_layernorm", "statistics"): S * 4,
    ("q_layernorm", "output"): S * QUERY * 2,
    ("kv_layernorm", "input"): S * RANK * 2,
    ("kv_layernorm", "statistics"): S * 4,
    ("linear_proj", "input"): S * HEADS * VALUE * 2,
}
QUERIES = {("linear_kv_up_proj", "input"): S * HEADS * (KEY + ROTARY) * 2}


def test_what_a_rank_keeps():
    assert kept_of(job_of()) == AROUND | QUERIES | CORE | LEARNT


def test_an_indexer_that_nothing_trains_keeps_nothing():
    quiet = replace(MODEL, sparse=replace(SPARSE, loss="none"))
    assert kept_of(job_of(quiet)) == AROUND | QUERIES | CORE


def selective(*modules):
    return Recompute(granularity="selective", modules=modules)


def test_recomputed_attention_keeps_its_operands():
    found = kept_of(job_of(recompute=selective("core_attn")))
    names = ("queries", "keys")
    left = {("core_attention", name): CORE["core_attention", name] for name in names}
    assert found == AROUND | QUERIES | left


def test_recomputed_projections_keep_what_they_read():
    found = kept_of(job_of(recompute=selective("mla_up_proj")))
    read = {
        ("linear_kv_up_proj", "input"): S * RANK * 2,
        ("linear_kv_up_proj", "rotary keys"): S * ROTARY * 2,
    }
    core = {key: size for key, size in CORE.items() if key[1] not in ("queries", "keys")}
    assert found == AROUND | read | core | LEARNT
    both = kept_of(job_of(recompute=selective("mla_up_proj", "core_attn")))
    assert both == AROUND | read


def test_copies_stay_where_projections_are_made_again():
    """Of two samples, and of keys that other ranks have."""
    found = kept_of(job_of(micro_batch=2, recompute=selective("mla_up_proj")))
    assert found["core_attention", "queries"] == 2 * CORE["core_attention", "queries"]
    found = kept_of(job_of(cp=2, recompute=selective("mla_up_proj")))
    assert ("core_attention", "queries") not in found
    assert found["core_attention", "keys"] == CORE["core_attention", "keys"]


def test_tensor_parallel_ranks_divide_heads_and_repeat_the_indexer():
    """Four ranks with eight heads each, whose kernels compute sixteen."""
    found, tp = kept_of(job_of(tp=4)), 4
    assert found["core_attention", "queries"] == S * 16 * ONE * 2
    assert found["core_attention", "output"] == S * 16 * RANK * 2
    assert found["linear_kv_up_proj", "input"] == QUERIES["linear_kv_up_proj", "input"] / tp
    assert found["q_layernorm", "output"] == S * QUERY * 2 / tp
    assert found["indexer", "input"] == S * H * 2
    assert found["indexer", "queries"] == S * QUERY * 2
    assert found["indexer", "places"] == S * TOP * 8
    assert {key: found[key] for key in LEARNT} == LEARNT


def test_weights_are_those_of_the_model():
    for tp in (1, 2):
        attention = layer_module(job_of(tp=tp), 0).children[1]
        split = QUERY * HEADS * (KEY + ROTARY) + RANK * HEADS * (KEY + VALUE) + HEADS * VALUE * H
        whole = H * (QUERY + ONE) + QUERY + RANK + INDEXER
        assert attention.parameters == split / tp + whole


def flops_of(job):
    return {
        module.name: tuple(sum(kernel.flops for kernel in way) for way in module.ways)
        for module in layer_work(job, kind=0)
    }


def test_work():
    found = flops_of(job_of())
    products = {
        "core_attention_queries": 2 * S * QUERY * INDEX * CHANNELS,
        "core_attention_key": 2 * S * H * CHANNELS,
        "core_attention_weights": 2 * S * H * INDEX,
    }
    for name, flops in products.items():
        assert found[name] == (flops, flops)  # of weights alone: inputs have no gradients
    target = 2 * S * TOP * 64 * ONE  # fewer heads wait for the keys
    learnt = 3 * 2 * S * TOP * INDEX * CHANNELS
    assert found["core_attention_scores"] == (S * S * INDEX * CHANNELS, target + learnt)
    core = 2 * S * TOP * 64 * (ONE + RANK)
    assert found["core_attention"] == (core, 3.5 * core)
    for name, inner, outer in (
        ("linear_kv_up_proj", KEY, RANK),
        ("core_attention_values", RANK, VALUE),
    ):
        assert found[name] == (2 * S * HEADS * inner * outer, 4 * S * HEADS * inner * outer)


def test_ranks_repeat_the_indexer_s_work_and_wait_for_keys():
    whole, part = flops_of(job_of()), flops_of(job_of(tp=4))
    for name in ("core_attention_queries", "core_attention_key", "core_attention_weights"):
        assert part[name] == whole[name]
    assert part["core_attention_scores"][0] == whole["core_attention_scores"][0]
    assert part["core_attention"] == whole["core_attention"]
    many = flops_of(job_of(replace(MODEL, heads=128, kv_heads=128)))
    assert many["core_attention"][0] == 2 * whole["core_attention"][0]
    assert part["linear_kv_up_proj"][0] == whole["linear_kv_up_proj"][0] / 4


def test_an_indexer_that_nothing_trains_has_no_backward_pass():
    found = flops_of(job_of(replace(MODEL, sparse=replace(SPARSE, loss="none"))))
    names = [name for name in found if name.startswith("core_attention_") and "values" not in name]
    assert len(names) == 5
    assert all(found[name][1] == 0 for name in names)


def test_a_model_s_flops_are_the_fewest_that_any_kernels_run():
    """Attention to few keys; indexers count nothing, as most of one has no backward pass."""
    dense = replace(MODEL, sparse=None)
    least = 3 * (sum(MODEL.flops.values()) - MODEL.masked_flops / MODEL.layers)
    run = sum(sum(ways) for ways in flops_of(job_of()).values()) + 3 * MODEL.flops["output"]
    assert least <= run
    assert MODEL.flops == dense.flops
    assert MODEL.masked_flops > dense.masked_flops


@pytest.mark.parametrize("trained", [True, False])
def test_messages(trained):
    model = replace(MODEL, sparse=replace(SPARSE, loss="sparse" if trained else "none"))
    found = layer_messages(job_of(model, tp=2, cp=2), 0)
    half = S // 2
    told = {
        name: tuple([(m.collective, m.shape, m.width) for m in way] for way in pair)
        for name, pair in found.items()
        if name.startswith("self_attention.")
    }
    gathered = [("all_gather", (half, 1, n), 2) for n in (ROTARY, RANK)]
    assert told["self_attention.linear_kv_down_proj"] == (
        gathered,
        [("reduce_scatter", shape, width) for _, shape, width in gathered],
    )
    taught = [("all_reduce", (half, 1, TOP), 4)] if trained else []
    read = [("all_gather", (half, 1, n), 2) for n in (H, QUERY)]
    assert told["self_attention.core_attention.indexer"] == (read, taught)
    keys = [("all_gather", (S, 1, n), 2) for n in (ONE, CHANNELS)]
    back = [("reduce_scatter", (S, 1, n), 2) for n in (ONE, CHANNELS)][: 1 + trained]
    assert told["self_attention.core_attention"] == (keys, back)
    assert (
        unsplit_parameters(job_of(model, tp=2), 0)
        - unsplit_parameters(job_of(replace(model, sparse=None), tp=2), 0)
        == INDEXER
    )


def test_scores_of_all_keys_are_there_for_a_moment():
    assert index_forward(job_of()) == S * S * 4
    assert index_forward(job_of(cp=2)) == S * S * 4 / 2
    assert index_forward(job_of(replace(MODEL, sparse=None))) == 0
    assert attention_backward(job_of()) > attention_backward(job_of(tp=2)) > 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"latent": None}, "latent.query_rank must be given with an indexer"),
        ({"latent": replace(MODEL.latent, query_rank=0)}, "latent.query_rank must be given with"),
        ({"sparse": replace(SPARSE, head=32)}, r"sparse.head must be at least latent.rotary \(64"),
        ({"sparse": replace(SPARSE, top_k=2048)}, r"sparse.top_k must be at most .* \(1024\), fo"),
        ({"window": Window(size=8)}, "window must be left out with an indexer"),
        ({"sinks": True}, "sinks must be left out with an indexer"),
        ({"bias": True}, "bias must be left out with an indexer"),
        ({"pattern": "*-*-"}, "must be left out with an indexer|pattern must have"),
    ],
)
def test_other_models_are_refused(changes, expected):
    with pytest.raises(ValueError, match=expected):
        Decoder(**FIELDS | changes)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"heads": -1}, "heads"),
        ({"heads": 8, "every": 0}, "every"),
        ({"heads": 8, "every": 2}, "offset must be at least 1 with every 2"),
        ({"heads": 8, "head": 0}, "head"),
        ({"heads": 8, "top_k": -1}, "top_k"),
        ({"heads": 8, "loss": "dense"}, "loss must be one of"),
        ({"heads": 8, "epsilon": 0.0}, "epsilon must be"),
    ],
)
def test_other_indexers_are_refused(fields, expected):
    with pytest.raises(ValueError, match=expected):
        SparseAttention(**fields)


KERNELS = Settings().kernels
BROKEN = {
    "attention unfused": job_of(kernels=replace(KERNELS, attention="unfused")),
    "layers local": job_of(kernels=replace(KERNELS, implementation="local")),
    "products in mxfp8": job_of(kernels=replace(KERNELS, quantised="mxfp8")),
    "fp16": job_of(precision="fp16"),
    "CUDA graphs transformer_engine attn": job_of(
        kernels=replace(KERNELS, graphs="transformer_engine", graphed=("attn",))
    ),
    "activations on the host": job_of(offload=Offload(modules=("core_attn",))),
    "a part that is trained": job_of(tuning=Tuning(frozen=("embedding",))),
    "tp 2 without sequence parallelism": replace(
        job_of(tp=2), settings=replace(job_of(tp=2).settings, sequence_parallel=False)
    ),
    "24 heads on a rank": job_of(replace(MODEL, heads=24, kv_heads=24)),
    "Ampere": replace(job_of(), gpu_architecture=AMPERE),
}


@pytest.mark.parametrize("have", sorted(BROKEN))
def test_rules_of_megatron(have):
    assert not list(check_sparse(job_of()))
    assert check_sparse in MEGATRON_RULES
    assert have in [broken.have for broken in check_sparse(BROKEN[have])]


def test_keys_are_gathered():
    job = job_of(cp=2)
    assert not list(context_rules(job))
    other = replace(job, settings=replace(job.settings, cp_comm="p2p"))
    assert list(context_rules(other)) == ["keys that an indexer chooses are gathered, all_gather"]


# ---- layers that see the keys of one before them -------------------------------------------------

SHARING = replace(MODEL, layers=6, sparse=replace(SPARSE, every=2, offset=2))
FOLLOWS = FOLLOWING[DENSE]


def test_some_layers_have_an_indexer():
    assert SHARING.sparse.follows(6) == (False, False, True, False, True, False)
    assert SHARING.layer_kinds == (DENSE, DENSE, FOLLOWS, DENSE, FOLLOWS, DENSE)
    assert SHARING.last_kind == DENSE
    assert not MODEL.shares_keys
    named = SHARING.parameters
    own, others = named["mlp-layer"].total, named["follow-mlp-layer"].total
    assert own - others == INDEXER
    assert set(SHARING.operators) <= {*named, "word-embedding", "final-norm", "output"}


@pytest.mark.parametrize("tp", [1, 2])
def test_layers_that_follow_have_none_of_it(tp):
    job = job_of(SHARING, tp=tp)
    first, second = (layer_module(job, kind) for kind in (DENSE, FOLLOWS))
    assert first.parameters - second.parameters == INDEXER
    assert [kind_of(job, one) for one in (first, second)] == [DENSE, FOLLOWS]
    own, others = (layer_work(job, kind=kind) for kind in (DENSE, FOLLOWS))
    names = {module.name for module in own} - {module.name for module in others}
    assert {name.removeprefix("core_attention_") for name in names} == {
        *("queries", "key", "weights", "turned", "scores")
    }
    assert unsplit_parameters(job, DENSE) - unsplit_parameters(job, FOLLOWS) == INDEXER * (tp > 1)


def test_messages_of_layers_that_follow():
    found = layer_messages(job_of(SHARING, tp=2, cp=2), FOLLOWS)
    assert "self_attention.core_attention.indexer" not in found
    (forward,), (backward,) = found["self_attention.core_attention"]
    assert (forward.collective, forward.shape) == ("all_gather", (S, 1, ONE))
    assert (backward.collective, backward.shape) == ("reduce_scatter", (S, 1, ONE))


def test_they_keep_no_numbers_of_keys():
    kept = {kind: layer_module(job_of(SHARING), kind).activations for kind in (DENSE, FOLLOWS)}
    assert kept[DENSE] - kept[FOLLOWS] == sum(LEARNT.values()) + S * TOP * 4


def test_ranks_hold_what_the_model_has():
    job = TrainingJob(
        model=SHARING, micro_batch=1, global_batch=1, settings=Settings(vocab_multiple=1)
    )
    held = sum(module.parameters for module in rank_modules(job, 0))
    table = SHARING.parameters
    assert held == sum(table[name].total for name in SHARING.operators)


@pytest.mark.parametrize(("layers", "begins"), [([2, 4], 3), ([3, 3], 0), ([5, 1], 0)])
def test_stages_begin_with_an_indexer(layers, begins):
    job = replace(job_of(SHARING), pp=2, layout=split_layout(layers))
    found = [broken.have for broken in check_sparse(job)]
    assert found == [f"a stage that begins with layer {begins}"] * (begins > 0)


def test_whole_layers_are_recomputed_one_by_one():
    for layers, broken in ((1, False), (2, True)):
        again = Recompute(granularity="full", method="uniform", layers=layers)
        assert any(of_recomputation(Settings(), SHARING, again)) is broken
