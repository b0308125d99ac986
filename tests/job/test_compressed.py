"""Attention to pooled keys and streams of hidden states: weights, kept bytes, work, rules."""

from dataclasses import replace

import pytest

from ilp_planner.analysis.stages import kind_of
from ilp_planner.costs.training.job import begins
from ilp_planner.job.communication import boundary_size
from ilp_planner.job.compressed import compressed_backward
from ilp_planner.job.decoder import layer_module, prediction_module, rank_modules
from ilp_planner.job.messages import layer_messages
from ilp_planner.job.operators import shares_again
from ilp_planner.job.overheads import between_stages
from ilp_planner.job.parts import memory_parts
from ilp_planner.job.quantised import quantised_counts
from ilp_planner.job.recompute import checkpoint
from ilp_planner.job.work import layer_work, prediction_work
from ilp_planner.settings.rules import check_compressed, of_recomputation
from ilp_planner.specs.decoder import CompressedAttention, Decoder, Experts, Rotary
from ilp_planner.specs.gpu_architectures import AMPERE, HOPPER
from ilp_planner.specs.layer_kinds import BY_LETTERS, LAYER_KINDS
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, Offload, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning

H, S, HEADS, HEAD, QUERY, LOW, GROUPS, ROTARY = 256, 512, 4, 64, 48, 24, 2, 16
WINDOW, INDEX, CHANNELS, TOP, STREAMS = 32, 3, 32, 40, 4
WIDE = HEADS * HEAD
POOLED = CompressedAttention(
    query_rank=QUERY,
    output_rank=LOW,
    groups=GROUPS,
    rotary=ROTARY,
    window=WINDOW,
    index_heads=INDEX,
    index_head=CHANNELS,
    top_k=TOP,
)
FIELDS = {
    **{"layers": 3, "hidden": H, "heads": HEADS, "head": HEAD, "kv_heads": 1, "sequence": S},
    **{"vocab": 1000, "ffn": 128, "gated": True, "bias": False, "norm": "rmsnorm", "tied": False},
    **{"positions": "rope", "dropout": 0.0, "pattern": "WE CE HE", "streams": STREAMS},
    "compressed": POOLED,
    "experts": Experts(count=8, top_k=2, ffn=128, shared_ffn=128, hashed=1),
}
MODEL = Decoder(**FIELDS)
NEAREST, CHOSEN, ALL = (BY_LETTERS[one] for one in ("WE", "CE", "HE"))


def job_of(model=MODEL, *, micro_batch=1, pp=1, layout=None, **changes):
    return TrainingJob(
        model=model,
        micro_batch=micro_batch,
        global_batch=8,
        pp=pp,
        layout=layout,
        settings=Settings(vocab_multiple=1, **changes),
        gpu_architecture=HOPPER,
    )


def selective(*modules):
    return Recompute(granularity="selective", modules=modules)


@pytest.mark.parametrize("streams", [1, 3, 4])
@pytest.mark.parametrize("predictions", [0, 2])
def test_a_rank_holds_the_model(streams, predictions):
    """And layers of multi-token prediction, each with products, norms and a mixture of its own."""
    model = replace(MODEL, streams=streams, prediction_layers=predictions)
    held = sum(module.parameters for module in rank_modules(job_of(model), 0))
    each = model.parameters
    of_model = sum(each[name].total for name in model.operators)
    layer = layer_module(job_of(model), model.last_kind).parameters
    ahead = layer + 3 * H + 2 * H * H + (model.merging if streams > 1 else 0)
    assert held == of_model + predictions * ahead


def kept_of(job, kind, *names):
    """Return the bytes of each tensor that modules of a layer keep, by module and name."""
    found = {}

    def walk(module, path):
        for tensor in module.kept:
            found["/".join((*path, module.name)), tensor.name] = tensor.size
        for child in module.children:
            walk(child, (*path, module.name) if path or module.name == "core_attention" else ())

    for one in layer_module(job, kind).children:
        if one.name in names:
            walk(one, ())
    return found


AROUND = {
    ("q_layernorm", "input"): S * QUERY * 2,
    ("q_layernorm", "statistics"): S * 4,
    ("q_layernorm", "output"): S * QUERY * 2,
    ("linear_o_group_proj", "input"): S * WIDE * 2,
    ("linear_proj", "input"): S * GROUPS * LOW * 2,
    ("core_attention", "output"): S * WIDE * 2,
    ("core_attention", "log-sum-exp"): S * HEADS * 4,
}
OPERANDS = {
    ("linear_q_up_proj", "queries"): S * WIDE * 2,
    ("linear_q_up_proj", "deviations"): S * HEADS * 2,
    ("kv_layernorm", "input"): S * HEAD * 2,
    ("kv_layernorm", "statistics"): S * 4,
    ("core_attention", "queries"): S * WIDE * 2,
}


def of_pooling(path, columns, groups, head):
    return {
        (f"{path}/linear_wkv", "output"): S * columns * 2,
        (f"{path}/linear_wgate", "output"): S * columns * 2,
        (f"{path}/norm", "input"): groups * head * 2,
        (f"{path}/norm", "statistics"): groups * 4,
    }


INDEXED = {
    ("core_attention/indexer", "gradient of queries"): S * INDEX * CHANNELS * 2,
    ("core_attention/indexer", "gradient of keys"): S // 4 * CHANNELS * 2,
    ("core_attention/indexer", "gradient of weights"): S * INDEX * 2,
} | of_pooling("core_attention/indexer/compressor", 2 * CHANNELS, S // 4, CHANNELS)


def own_of(kind):
    """Return what attention of a kind keeps besides."""
    near = {("core_attention", "chosen keys"): S * WINDOW * 4}
    if kind == NEAREST:
        return near | {("core_attention", "keys"): S * HEAD * 2}
    ratio, columns, seen = (4, 2 * HEAD, TOP) if kind == CHOSEN else (128, HEAD, S // 128)
    groups = S // ratio
    found = {
        ("core_attention", "chosen keys"): S * (WINDOW + seen) * 4,
        ("core_attention", "keys"): (S + groups) * HEAD * 2,
    }
    found |= of_pooling("core_attention/compressor", columns, groups, HEAD)
    return found | (INDEXED if kind == CHOSEN else {})


@pytest.mark.parametrize("kind", [NEAREST, CHOSEN, ALL])
def test_what_attention_keeps(kind):
    assert kept_of(job_of(), kind, "self_attention") == AROUND | OPERANDS | own_of(kind)


@pytest.mark.parametrize("kind", [NEAREST, CHOSEN, ALL])
def test_recomputed_projections_keep_none_of_their_outputs(kind):
    """Keys without pooled ones behind them are among these."""
    found = kept_of(job_of(recompute=selective("mla_up_proj")), kind, "self_attention")
    own = own_of(kind)
    if kind == NEAREST:
        own.pop(("core_attention", "keys"))
    assert found == AROUND | own


def test_streams_are_kept_once_for_each_block():
    """With what the block gave, and the few numbers that mix them."""
    numbers = (STREAMS + 2) * STREAMS
    names = ("self_attention_hyper_connection", "mlp_hyper_connection")
    for name in names:
        assert kept_of(job_of(), CHOSEN, name) == {
            (name, "streams"): S * STREAMS * H * 2,
            (name, "output"): S * H * 2,
            (name, "mixing"): S * (2 * numbers + STREAMS**2) * 4,
            (name, "mixing, rounded"): S * numbers * 2,
        }
    one = layer_module(job_of(replace(MODEL, streams=1)), CHOSEN)
    assert not {child.name for child in one.children} & {*names}


def test_recomputed_mixtures_keep_a_layer_s_input_and_what_its_blocks_give():
    """Streams after attention, mixtures and their norms are made again."""
    plain, again = job_of(), job_of(recompute=selective("mhc"))
    names = ("self_attention_hyper_connection", "mlp_hyper_connection")
    for kind in (NEAREST, CHOSEN, ALL):
        whole, few = (layer_module(job, kind).activations for job in (plain, again))
        # streams once; each block's mixture and what its norm made of it
        assert whole - few == S * STREAMS * H * 2 + 2 * 2 * S * H * 2
        assert (names[0], "streams") in kept_of(again, kind, names[0])
        assert (names[1], "streams") not in kept_of(again, kind, names[1])
        assert kept_of(again, kind, "self_attention") == kept_of(plain, kind, "self_attention")


def test_layers_of_prediction_keep_their_mixtures():
    """No manager of recomputation comes to them."""
    model = replace(MODEL, prediction_layers=1)
    plain, again = (job_of(model, recompute=one) for one in (Recompute(), selective("mhc")))
    assert prediction_module(plain).activations == prediction_module(again).activations
    parts = [memory_parts(job).parts["prediction layer"] for job in (plain, again)]
    assert parts[0] == parts[1]


def test_what_is_forgotten_is_there_again_before_a_layer_goes_back():
    """At most all of it, beside what goes back of the layer itself."""
    plain = memory_parts(job_of()).parts[LAYER_KINDS[CHOSEN].name]
    again = memory_parts(job_of(recompute=selective("mhc"))).parts[LAYER_KINDS[CHOSEN].name]
    forgotten = plain.kept - again.kept
    assert 0 < again.moment - plain.moment <= forgotten
    # the mixtures and norms of both sides stand at once when the first side goes back
    assert again.moment - plain.moment >= S * STREAMS * H * 2


def test_recomputed_mixtures_run_forward_again():
    share = shares_again(job_of(), CHOSEN)["mhc"]
    assert [one.name for one in layer_work(job_of(), kind=CHOSEN) if share(one.name)] == [
        "attention_mixture", "attention_streams", "input_norm", "mlp_mixture", "mlp_norm",
    ]  # fmt: skip


def test_all_streams_go_between_stages_and_into_recomputed_layers():
    two = job_of(pp=2, layout=split_layout([2, 1]))
    plain = job_of(replace(MODEL, streams=1), pp=2, layout=split_layout([2, 1]))
    assert boundary_size(two) == STREAMS * boundary_size(plain)
    assert between_stages(two) == STREAMS * between_stages(plain)
    assert checkpoint(two).size == STREAMS * checkpoint(plain).size


def test_kinds_are_told_by_their_modules():
    for kind in (NEAREST, CHOSEN, ALL):
        assert kind_of(job_of(), layer_module(job_of(), kind)) == kind


def work_of(kind, model=MODEL, **changes):
    return {one.name: one for one in layer_work(job_of(model, **changes), kind=kind)}


def forward(module):
    return sum(kernel.flops for kernel in module.forward)


def test_work_of_attention():
    """Products of tokens and entries, the last but one of each group of heads; attention to the
    window and to the pooled keys that are looked up."""
    found, seen = work_of(CHOSEN), WINDOW + TOP
    each = {
        "linear_q_down_proj": H * QUERY,
        "linear_q_up_proj": QUERY * WIDE,
        "linear_kv_proj": H * HEAD,
        "pooled_keys": 2 * H * HEAD,
        "pooled_weights": 2 * H * HEAD,
        "index_queries": QUERY * INDEX * CHANNELS,
        "index_weights": H * INDEX,
        "index_pooled_keys": 2 * H * CHANNELS,
        "linear_o_group_proj": WIDE * LOW,
        "linear_proj": GROUPS * LOW * H,
    }
    assert {name: forward(found[name]) for name in each} == {
        name: 2 * S * entries for name, entries in each.items()
    }
    # fewer heads than 64 take as long as so many
    assert forward(found["core_attention"]) == 4 * S * seen * 64 * HEAD
    assert forward(found["index_scores"]) == S * (S // 4) * INDEX * CHANNELS
    plain = work_of(NEAREST)
    assert not {name for name in plain if "pooled" in name or name.startswith("index")}
    assert forward(plain["core_attention"]) == 4 * S * WINDOW * 64 * HEAD


def test_the_indexer_has_no_gradient_of_its_inputs():
    found = work_of(CHOSEN)
    for name in ("index_queries", "index_weights", "index_pooled_keys"):
        assert found[name].backward == found[name].of_weights != ()


def test_a_model_s_flops_are_no_more_than_a_rank_s():
    """What a bound rests on: three forward passes of the model's products."""
    for kind in (NEAREST, CHOSEN, ALL):
        own = MODEL.flops[f"{LAYER_KINDS[kind].operator}-layer"]
        done = sum(
            kernel.flops
            for module in layer_work(job_of(), kind=kind)
            for way in module.ways
            for kernel in way
        )
        assert 3 * own <= done


@pytest.mark.parametrize("sequence", [1, 3, 4, 31, 32, 127, 128, 500, 512])
@pytest.mark.parametrize("mixer", ["windowed", "csa", "hca"])
def test_pairs_are_those_that_tokens_see(sequence, mixer):
    ratio = POOLED.ratio(mixer)
    most = POOLED.chosen(mixer, sequence)
    seen = [
        min(WINDOW, token) + (min(token // ratio, most) if ratio else 0)
        for token in range(1, sequence + 1)
    ]
    assert POOLED.pairs(mixer, sequence) == sum(seen)


def test_streams_join_predictions_by_products_of_their_own():
    model = replace(MODEL, prediction_layers=1)
    joins = [one for one in prediction_work(job_of(model)) if one.name == "join"]
    assert [forward(one) for one in joins] == [2 * S * H * H, STREAMS * 2 * S * H * H]


def test_what_is_outside_of_quantised_products():
    """Pooling, the grouped product, and what mixes streams stay in the training precision."""
    layer = layer_module(job_of(), CHOSEN)
    attention = H * QUERY + QUERY * WIDE + H * HEAD + GROUPS * LOW * H + QUERY * INDEX * CHANNELS
    shared, routed = 3 * H * 128, 8 * 3 * H * 128
    assert quantised_counts([layer]) == (attention + shared + routed, routed)
    low = work_of(CHOSEN, kernels=Kernels(quantised="mxfp8"))
    exact = {
        name
        for name, one in low.items()
        if any(getattr(k.shape, "quantised", None) is False for k in one.forward)
    }
    assert exact == {
        "pooled_keys", "pooled_weights", "index_weights", "index_pooled_keys",
        "index_pooled_weights", "linear_o_group_proj", "router",
    }  # fmt: skip


def test_attention_sends_nothing_of_its_own():
    messages = layer_messages(job_of(ep=4, etp=1), CHOSEN)
    assert messages
    assert all(name.startswith("mlp") for name in messages)


def test_gradients_of_attention_are_there_at_once():
    """Of the layer's output, and of queries before and after their norm beside that of the output,
    turned."""
    assert compressed_backward(job_of(), "windowed") == S * 2 * (H + 3 * WIDE)


def test_stages_begin_after_the_layers_that_a_table_of_words_routes():
    model = replace(MODEL, experts=replace(MODEL.experts, hashed=2))
    assert begins(model).tolist() == [True, False, False, True, True, True]
    layouts = {(2, 1): True, (1, 2): False}
    for sizes, legal in layouts.items():
        job = job_of(model, pp=2, layout=split_layout(list(sizes)))
        assert (not [*check_compressed(job)]) is legal
    alone = job_of(model)
    assert not [*check_compressed(alone)]


@pytest.mark.parametrize(
    ("changes", "have"),
    [
        ({"cp": 2}, "cp 2"),
        ({"kernels": Kernels(implementation="local")}, "layers local"),
        ({"kernels": Kernels(attention="unfused")}, "attention unfused"),
        ({"kernels": Kernels(quantised="fp8-current")}, "products in fp8-current"),
        ({"kernels": Kernels(graphs="transformer_engine", graphed=("attn",))}, "CUDA graphs tra"),
        ({"precision": "fp16"}, "fp16"),
        ({"offload": Offload(modules=("attn_norm",))}, "activations on the host"),
        ({"tuning": Tuning(frozen=("embedding",))}, "a part that is trained"),
        ({"recompute": selective("core_attn")}, "recomputation of core_attn"),
    ],
)
def test_what_goes_not_with_it(changes, have):
    found = [one.have for one in check_compressed(job_of(**changes))]
    assert any(one.startswith(have) for one in found), found


def test_where_it_runs():
    assert not [*check_compressed(job_of())]
    assert [*check_compressed(replace(job_of(), tp=2))]
    assert [*check_compressed(replace(job_of(), gpu_architecture=AMPERE))]
    graphs = Kernels(graphs="full_iteration")
    assert not [*check_compressed(job_of(kernels=graphs))]
    again = [*of_recomputation(Settings(), MODEL, selective("core_attn"))]
    assert [one.rule for one in again] == ["compressed attention"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pattern": "WE *E HE"}, "pattern must have compressed attention in all layers"),
        ({"compressed": None}, "pattern must have layers of compressed attention exactly if"),
        ({"compressed": replace(POOLED, groups=7)}, "compressed.groups must divide heads x head"),
        (
            {"compressed": replace(POOLED, rotary=16), "head": 8},
            "compressed.rotary must be at most",
        ),
        ({"rotary": Rotary(share=0.5)}, "rotary.share must be 0.25, as compressed.rotary says, or"),
        ({"sinks": True}, "sinks must be left out with compressed attention, found some"),
        ({"streams": 0}, "streams must be a whole number of at least 1"),
    ],
)
def test_other_models_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Decoder(**{**FIELDS, **changes})
