"""Parameters of every rank against what Megatron builds, and what modules keep."""

import json
import shlex
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.decoder import (
    embedding_module,
    has_final_norm,
    layer_module,
    output_module,
    prediction_module,
    rank_modules,
)
from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.parameter_count import tied_parameters
from ilp_planner.specs.pipeline_layout import even_layout, read_layout, split_layout
from ilp_planner.specs.training import Kernels, Recompute, Settings, TrainingJob
from tests.examples import for_each
from tests.job.parameter_names import parameter_names
from tests.training_jobs import decoders, deepseek, gpt, jobs, llama
from tests.training_jobs import job as a_job
from tests.training_jobs import settings as job_settings

ROOT = Path(__file__).parents[2]
BUILT = ROOT.parent / "shared" / "data" / "megatron" / "build_cases.json"
LOCAL = Kernels(implementation="local", attention="unfused")


def built_cases():
    if not BUILT.exists():
        return []
    cases = json.loads(BUILT.read_text())["cases"]
    return [case for case in cases if case["status"] == "built"]


def options(text):
    """Return a launch line's flags with their values, True for those without."""
    words = shlex.split(text)
    flags = [i for i, word in enumerate(words) if word.startswith("--")]
    ends = [*flags[1:], len(words)]
    return {words[i][2:]: " ".join(words[i + 1 : j]) for i, j in zip(flags, ends, strict=True)}


def job_of(case):
    given = options(case["args"])

    def number(name, default):
        return int(given.get(name, default))

    tp, pp = number("tensor-model-parallel-size", 1), number("pipeline-model-parallel-size", 1)
    cp, count = number("context-parallel-size", 1), number("num-experts", 0)
    model = Decoder(
        layers=number("num-layers", 0),
        hidden=number("hidden-size", 0),
        heads=number("num-attention-heads", 0),
        sequence=number("seq-length", 0),
        vocab=50257,
        gated="swiglu" in given,
        bias="disable-bias-linear" not in given,
        experts=Experts(count=count, top_k=2, ffn=10880) if count else None,
    )
    text = given.get("pipeline-model-parallel-layout")
    virtual = number("num-virtual-stages-per-pipeline-rank", 1)
    return TrainingJob(
        model=model,
        micro_batch=number("micro-batch-size", 1),
        global_batch=number("global-batch-size", 1),
        tp=tp,
        pp=pp,
        dp=case["world"] // (tp * pp * cp),
        layout=read_layout(text) if text else even_layout(model.layers, pp, virtual),
        settings=Settings(
            cp=cp,
            ep=number("expert-model-parallel-size", 1),
            sequence_parallel="sequence-parallel" in given,
            kernels=LOCAL,
        ),
    )


@for_each("case", built_cases())
def test_as_megatron_builds(case):
    job = job_of(case)
    assert job.padded_vocab == case["padded_vocab"]
    pp_rank = case["groups"]["pp"].index(case["rank"])
    assert sum(m.parameters for m in rank_modules(job, pp_rank)) == case["params"]
    names = dict(parameter_names(job, pp_rank))
    assert {name: names.get(name) for name, _ in case["names"]} == {
        name: tuple(shape) for name, shape in case["names"]
    }


@given(jobs(), st.data())
def test_names_add_up_to_the_modules(job, data):
    pp_rank = data.draw(st.integers(0, job.pp - 1))
    found = sum(prod(shape) for _, shape in parameter_names(job, pp_rank))
    assert found == sum(m.parameters for m in rank_modules(job, pp_rank))


@given(decoders())
def test_one_rank_has_the_whole_model(model):
    job = TrainingJob(
        model=model, micro_batch=1, global_batch=1, settings=Settings(vocab_multiple=1)
    )
    table = model.parameters
    whole = sum(table[name].total for name in model.operators if name in table)
    found = sum(m.parameters for m in rank_modules(job, 0))
    assert found == whole - tied_parameters(model)


@given(decoders(), st.sampled_from([1, 2]), st.sampled_from([1, 2]))
def test_ranks_have_the_model_between_them(model, tp, ep):
    """What is split adds up to one copy; what is not is there on every tensor-parallel rank."""
    ep = ep if model.experts else 1
    job = TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=ep,
        tp=tp,
        dp=ep,
        settings=Settings(ep=ep, sequence_parallel=True, vocab_multiple=1),
    )
    if model.vocab % tp:
        model = replace(model, vocab=job.padded_vocab)
    table = model.parameters
    split = sum(table[name].split for name in model.operators if name in table)
    whole = sum(table[name].whole for name in model.operators if name in table)
    modules = rank_modules(job, 0)
    routed = sum(m.expert_parameters for m in modules)
    others = sum(m.parameters for m in modules) - routed
    # Biases after a row-parallel product are whole, in experts as well; tests elsewhere have those.
    assert not (model.experts and model.bias)
    assert tp * others + tp * ep * routed == split - tied_parameters(model) + tp * whole


def test_fewer_key_value_heads_than_ranks():
    """The product's weight is split all the same; what attention computes is one head."""
    job = a_job(llama(kv_heads=2, heads=16), tp=8, pp=1, dp=1)
    shapes = dict(parameter_names(job, 0))
    assert shapes["decoder.layers.0.self_attention.linear_qkv.weight"] == (
        (16 + 2 * 2) * 16 // 8,
        256,
    )
    attention = next(c for c in layer_module(job, False).children if c.name == "self_attention")
    core = next(c for c in attention.children if c.name == "core_attention")
    kept = {k.name: k.shape for k in core.kept}
    assert kept["queries"] == (512, 2, 2 * 16)
    assert kept["keys"] == kept["values"] == (512, 2, 16)


def test_names_of_transformer_engine():
    job = a_job(deepseek(), tp=1, pp=1, dp=1, settings=Settings(kernels=Kernels()))
    names = {name.removeprefix("decoder.layers.1.") for name, _ in parameter_names(job, 0)}
    assert {
        "input_layernorm.weight",
        "self_attention.linear_q_down_proj.weight",
        "self_attention.linear_q_up_proj.layer_norm_weight",
        "self_attention.linear_kv_up_proj.weight",
        "pre_mlp_layernorm.weight",
        "mlp.router.weight",
        "mlp.shared_experts.linear_fc1.weight",
        "mlp.experts.local_experts.7.linear_fc2.weight",
        "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
        "decoder.final_layernorm.weight",
        "output_layer.weight",
    } <= names
    grouped = a_job(
        deepseek(), tp=1, pp=1, dp=4, settings=Settings(ep=4, kernels=Kernels(grouped_experts=True))
    )
    shapes = dict(parameter_names(grouped, 0))
    assert shapes["decoder.layers.1.mlp.experts.linear_fc1.weight1"] == (2 * 96, 256)
    assert "decoder.layers.1.mlp.experts.linear_fc1.weight2" not in shapes


def test_tied_embedding_is_there_twice_in_a_pipeline():
    alone = a_job(gpt(), pp=1, dp=1, tp=1)
    assert not any(name == "output_layer.weight" for name, _ in parameter_names(alone, 0))
    piped = a_job(gpt(), tp=1)
    assert ("output_layer.weight", (1024, 256)) in list(parameter_names(piped, 3))


def test_prediction_needs_words_on_the_last_stage():
    model = deepseek(prediction_layers=1)
    piped = a_job(model, layout=None)
    names = [name for name, _ in parameter_names(piped, 3)]
    assert "embedding.word_embeddings.weight" in names
    assert "mtp.layers.0.eh_proj.weight" in names
    assert "mtp.layers.0.transformer_layer.mlp.router.weight" in names
    alone = a_job(model, pp=1)
    assert [n for n, _ in parameter_names(alone, 0)].count("embedding.word_embeddings.weight") == 1
    assert prediction_module(alone).parameters > layer_module(alone, True).parameters


def test_a_tied_output_has_no_weight_of_its_own_on_one_stage():
    """But the bias that it has; tokens are numbers of 8 bytes."""
    alone = a_job(gpt(output_bias=True), pp=1, layout=None)
    (output,) = [m for m in output_module(alone).children if m.name == "output_layer"]
    assert [weight.shape for weight in output.weights] == [(alone.padded_vocab // 2,)]
    piped = a_job(gpt(output_bias=True))
    (output,) = [m for m in output_module(piped).children if m.name == "output_layer"]
    assert output.weights[0].shape == (piped.padded_vocab // 2, 256)
    (tokens,) = [kept for m in flat(embedding_module(piped)) for kept in m.kept if m.name[0] == "w"]
    assert (tokens.name, tokens.size) == ("tokens", 8 * 512 * 2)


@for_each(
    ("predicted", "layers", "stage"),
    [(0, [4, 4, 0, 0], 3), (0, [2, 2, 2, 2], 3), (1, [4, 4, 0, 0], 1), (1, [2, 2, 2, 2], 3)],
)
def test_the_last_norm_is_where_it_is_read(predicted, layers, stage):
    """Before the output, or, where further tokens are predicted, behind the last layer."""
    layout = split_layout(layers, prediction_layers=predicted)
    case = a_job(llama(prediction_layers=predicted), layout=layout)
    assert [has_final_norm(case, k) for k in range(4)] == [k == stage for k in range(4)]


def test_a_prediction_layer_is_like_the_last_one_and_joins_two_inputs():
    """A product of both, side by side, whose input is kept as it is where products have 8 bits."""
    kernels = Kernels(grouped_experts=True, quantised="fp8-current")
    for every, expert in ((1, True), (3, False)):  # of 8 layers the first, fourth and seventh
        experts = Experts(count=8, top_k=2, ffn=96, every=every)
        model = llama(experts=experts, prediction_layers=1)
        assert model.expert_layers[-1] == expert
        case = a_job(
            model,
            layout=split_layout([2] * 4, prediction_layers=1),
            settings=job_settings(kernels=kernels),
        )
        found = {m.name: m for m in prediction_module(case).children}
        layer = layer_module(case, expert)
        assert found["transformer_layer"].parameters == layer.parameters
        (weight,), (joined,) = found["eh_proj"].weights, found["eh_proj"].kept
        assert weight.shape == (128, 512)
        assert (joined.shape, joined.width) == ((256, 2, 512), 2)
        first, *_ = found["loss"].kept
        assert (first.name, first.shape, first.width) == ("input", (256, 2, 256), 2)
        (output,) = [m for m in output_module(case).children if m.name == "output_layer"]
        assert [(kept.shape, kept.width) for kept in output.kept] == [((256, 2, 256), 2)]


# ---- what is kept -------------------------------------------------------------------------------


def flat(module):
    """Return a module and all that are in it."""
    return [module, *(each for child in module.children for each in flat(child))]


def names_kept(module):
    """Return what modules keep, by their names."""
    return [(inner.name, kept.name) for inner in flat(module) for kept in inner.kept]


@pytest.mark.parametrize("model", [llama(), deepseek()], ids=["dense", "experts"])
def test_norms_that_stand_alone_forget_their_output_alone(model):
    """It is kept with the norm where several read it, else with the product that does."""
    found = []
    for modules in ((), ("layernorm",)):
        again = Recompute(granularity="selective" if modules else "none", modules=modules)
        kernels = replace(LOCAL, grouped_experts=True, fused_activation=False, deterministic=True)
        case = a_job(model, settings=job_settings(recompute=again, kernels=kernels))
        found.append(names_kept(layer_module(case, model.experts is not None)))
    before, after = found
    gone = {*before} - {*after}
    if model.experts is None:
        assert gone == {("linear_qkv", "input"), ("linear_fc1", "input")}
    else:
        assert gone == {("input_layernorm", "output"), ("pre_mlp_layernorm", "output")}
    assert after == [one for one in before if one not in gone]


def test_an_mlp_that_is_computed_again_keeps_its_first_input_alone():
    again = Recompute(granularity="selective", modules=("mlp",))
    case = a_job(settings=job_settings(recompute=again, kernels=LOCAL))
    found = [name for name in names_kept(layer_module(case, False)) if "mlp" in name[0]]
    inner = [m for m in flat(layer_module(case, False)) if m.name == "mlp"]
    assert [name for m in inner for name in names_kept(m)] == [("linear_fc1", "input")]
    assert ("pre_mlp_layernorm", "input") in found


def test_layers_that_are_computed_again_keep_a_mask_at_the_ends():
    """The loader's, of pairs of tokens; on one stage together."""
    kernels = Kernels(loader_mask=True)
    for again, pp, ends in (("full", 4, 2), ("full", 2, 2), ("full", 1, 1), ("none", 4, 0)):
        full = {"granularity": "full", "method": "uniform", "layers": 1} if again == "full" else {}
        case = a_job(
            pp=pp, layout=None, settings=job_settings(recompute=Recompute(**full), kernels=kernels)
        )
        masks = [
            kept
            for module in (embedding_module(case), output_module(case))
            for kept in module.kept
            if kept.name == "attention mask"
        ]
        assert len(masks) == ends
        assert all(mask.size == 2 * 512 * 512 for mask in masks)


@for_each("tp", [1, 2, 4, 8])
@for_each("sequence_parallel", [False, True])
@for_each("selective", [False, True])
@for_each("micro", [1, 4])
def test_korthikanti(tp, sequence_parallel, selective, micro):
    """Table 2 of Korthikanti et al. 2022 (arXiv 2205.05198): bytes of a layer without flash
    attention; statistics of norms are left out there."""
    s, h, heads = 2048, 6144, 64
    model = Decoder(layers=48, hidden=h, heads=heads, sequence=s, vocab=51200)
    job = TrainingJob(
        model=model,
        micro_batch=micro,
        global_batch=micro,
        tp=tp,
        settings=Settings(
            sequence_parallel=sequence_parallel,
            kernels=LOCAL,
            recompute=Recompute(granularity="selective" if selective else "none"),
        ),
    )
    sbh = s * micro * h
    scores = 0 if selective else 5 * heads * s / h
    whole = sbh * (10 + (24 + scores) / tp)
    expected = sbh / tp * (34 + scores) if sequence_parallel else whole
    found = layer_module(job, False).activations
    statistics = 2 * 2 * s * micro * 4 / (tp if sequence_parallel else 1)
    assert found - statistics == pytest.approx(expected, rel=1e-12)
    full = replace(job, settings=replace(job.settings, kernels=LOCAL))
    assert layer_module(full, False, recomputed=True).activations == 2 * sbh / (
        tp if sequence_parallel else 1
    )


def test_published_shares_of_recomputation():
    """Figure 7 of the same: what is left, in per cent of tensor parallelism alone."""
    path = ROOT.parent / "shared" / "data" / "measured" / "korthikanti2022.json"
    if not path.exists():
        pytest.skip("no ../shared/data/measured")
    data = json.loads(path.read_text())
    for name, c in data["configs"].items():
        model = Decoder(
            layers=c["layers"],
            hidden=c["hidden"],
            heads=c["heads"],
            sequence=data["seq"],
            vocab=data["vocab"],
        )

        def kept(c=c, model=model, *, sp=False, selective=False, full=False):
            job = TrainingJob(
                model=model,
                micro_batch=c["mbs"],
                global_batch=c["gbs"],
                tp=c["tp"],
                settings=Settings(
                    sequence_parallel=sp,
                    kernels=LOCAL,
                    recompute=Recompute(granularity="selective" if selective else "none"),
                ),
            )
            return layer_module(job, False, recomputed=full).activations

        shares = data["fig7_act_pct_of_tp_baseline"][name]
        found = {
            "none": kept(),
            "seq": kept(sp=True),
            "sel": kept(selective=True),
            "seqsel": kept(sp=True, selective=True),
            "full": kept(full=True),
        }
        for kind, share in shares.items():
            assert 100 * found[kind] / found["none"] == pytest.approx(share, abs=0.15), (name, kind)


@given(jobs())
def test_recomputing_keeps_less(job):
    def kept(recompute):
        changed = replace(job, settings=replace(job.settings, recompute=recompute))
        return sum(m.activations for r in range(job.pp) for m in rank_modules(changed, r))

    nothing = kept(Recompute())
    for module in ("core_attn", "mlp", "moe", "moe_act", "layernorm", "shared_experts"):
        assert kept(Recompute(granularity="selective", modules=(module,))) <= nothing
    blocks = [kept(Recompute(granularity="full", method="block", layers=n)) for n in range(4)]
    assert blocks == sorted(blocks, reverse=True)
    assert blocks[0] == nothing


@given(jobs())
def test_everything_kept_says_why(job):
    def walk(module):
        for tensor in module.kept:
            assert tensor.why
            assert tensor.size > 0
        for child in module.children:
            walk(child)

    for module in rank_modules(job, 0):
        walk(module)


def test_fused_loss_keeps_two_bytes():
    job = a_job(pp=1)
    fused = replace(job, settings=replace(job.settings, kernels=Kernels(fused_loss=True)))
    # 1000 words are padded to 1024; half of them are here.
    numbers = 512 * 2 * 512
    difference = output_module(job).activations - output_module(fused).activations
    assert difference == numbers * (4 - 2)


def test_every_layer_of_a_large_model_is_not_built():
    """Layers in a row are one module that repeats."""
    model = read_model(ROOT / "models" / "llama3-405b.toml").architecture
    job = TrainingJob(model=model, micro_batch=1, global_batch=1)
    modules = rank_modules(job, 0)
    assert [m.name for m in modules] == ["embedding", "decoder.layers", "output"]
    assert modules[1].repeat == 126
