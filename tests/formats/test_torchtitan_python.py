"""torchtitan's Python configuration: literals only, and refusals with what torchtitan runs."""

import ast
from dataclasses import replace

from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.torchtitan_python import export_torchtitan_python
from ilp_planner.specs.decoder import Experts, LatentAttention, Rotary, Window
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, TrainingJob
from tests.examples import examples, for_each
from tests.formats.titan_cases import REFUSED_BY_BOTH, check_refusal, with_optimizer
from tests.training_jobs import deepseek, job, jobs, llama
from tests.training_jobs import settings as usual

ALONE = {"pp": 1, "layout": None}
MIXTURE = Experts(count=8, top_k=2, ffn=96)
# What an expression of the written module may be made of, besides the names that it imports.
PLAIN = (
    *(ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Dict),
    *(ast.Load, ast.Store, ast.Subscript, ast.ListComp, ast.comprehension, ast.Compare, ast.IsNot),
)


def text(case: TrainingJob, name: str = "run") -> str:
    return export_torchtitan_python(case, name).files[".py"]


def said(case: TrainingJob, function: str) -> dict[str, object]:
    """Return the literals that a class of the written module is called with."""
    calls = [node for node in ast.walk(ast.parse(text(case))) if isinstance(node, ast.Call)]
    call = next(c for c in calls if ast.unparse(c.func) == function)
    plain = [k for k in call.keywords if not isinstance(k.value, ast.Name)]
    return {str(k.arg): ast.literal_eval(k.value) for k in plain}


def quantised(**kernels: object) -> TrainingJob:
    return job(settings=usual(kernels=Kernels(**kernels)))


def test_uneven_stages_name_every_module() -> None:
    found = said(job(), "ParallelismConfig")
    assert found["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2"],
        ["layers.3", "layers.4", "layers.5"],
        ["layers.6", "layers.7", "norm", "lm_head"],
    ]
    assert found["pipeline_parallel_schedule"] == "1F1B"


def test_what_changes_the_training_is_written() -> None:
    rotary = Rotary(base=500000.0, scaling="llama3", factor=8.0, original=8192)
    case = job(llama(rotary=rotary, epsilon=1e-6))
    assert said(case, "ComplexRoPE.Config") == {
        "dim": 16,
        "max_seq_len": 512,
        "theta": 500000.0,
        "scaling": "llama",
        "scaling_factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert "norm.eps = 1e-06" in text(case)


@examples(60)
@given(jobs())
def test_every_value_is_a_literal(case: TrainingJob) -> None:
    """What is written calls and names, and has no operator, condition or function of its own."""
    plain = {"norm": "rmsnorm", "gated": True, "bias": False, "dropout": 0.0}
    try:
        tree = ast.parse(text(replace(case, model=replace(case.model, **plain))))
    except PlanError:
        return
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {type(node) for node in tree.body} <= {ast.ImportFrom, ast.FunctionDef}
    own = {"model", "planned", "enumerate"}
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and is_stored(n)}
        for node in ast.walk(function):
            assert not isinstance(node, ast.expr) or isinstance(node, PLAIN), ast.unparse(node)
            if isinstance(node, ast.Name):
                assert node.id in imported | own, node.id


def is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def test_names_cannot_break_out_of_the_text() -> None:
    plain = text(job(), "run")
    for name in ('a"b\nimport os', "a\rimport os", "a\u2028import os", "'''\\", "#\x0cimport os"):
        assert ast.dump(ast.parse(text(job(), name))) == ast.dump(ast.parse(plain))


@for_each(
    ("case", "note"),
    [
        (job(), "settings.optimizer.sharding: optimizer"),
        (job(), "settings.vocab_multiple: 128"),
        (with_optimizer(gradient=2), "settings.optimizer.gradient: 2 bytes"),
        (with_optimizer(offload=1.0), "settings.optimizer.offload: torchtitan moves"),
        (with_optimizer(offload=1.0, overlap_offload=True),
         "settings.optimizer.overlap_offload: true"),
        (job(settings=usual(cp=2)), "settings.cp_comm: p2p"),
        (job(settings=usual(overlap_tensor=True)), "settings.overlap_tensor: by torch.compile"),
        (job(settings=usual(kernels=Kernels(compiled=True))), "settings.kernels.compiled: what"),
        (job(settings=usual(recompute=Recompute(granularity="selective"))),
         "settings.recompute: core_attn"),
        (quantised(quantised="mxfp8", quantised_parameters=True), "quantised_parameters: torchti"),
    ],
)  # fmt: skip
def test_differences_are_noted(case: TrainingJob, note: str) -> None:
    notes = export_torchtitan_python(case, "run").notes
    assert any(note in line for line in notes)
    assert all("\n" not in line for line in notes)


REFUSED = REFUSED_BY_BOTH | {
    "fp8": (quantised(quantised="fp8-current"), "settings.kernels.quantised",
     {"settings": usual(kernels=Kernels(quantised="mxfp8"))}),
    "experts in 8 bits": (
        job(llama(experts=MIXTURE), settings=usual(kernels=Kernels(quantised="mxfp8"))),
        "settings.kernels.quantised",
        {"settings": usual()},
    ),
    "narrow 4 bits": (quantised(quantised="nvfp4"), "ffn / tp is 352", {"model": llama(ffn=768)}),
    "format": (job(settings=usual(kernels=Kernels(quantised="mxfp8", number_format="hybrid"))),
     "number_format", {"settings": usual(kernels=Kernels(quantised="mxfp8"))}),
    "all exact": (quantised(quantised="mxfp8", exact_first=4, exact_last=4), "exact_first",
     {"settings": usual()}),
    "graphs of layers": (quantised(graphs="local"), "kernels.graphs", {"settings": usual()}),
    "graphs in a pipeline": (quantised(graphs="full_iteration"),
     "kernels.graphs.*without a pipeline", ALONE),
    "biases": (job(llama(bias=True)), "model.bias", {"model": llama(qkv_bias=True)}),
    "share of channels": (job(llama(rotary=Rotary(share=0.5))), "model.rotary.share",
     {"model": llama()}),
    "longer samples": (job(llama(rotary=Rotary(scaling="linear", factor=2.0))),
     "model.rotary.scaling", {"model": llama()}),
    "yarn": (job(llama(rotary=Rotary(scaling="yarn", factor=2.0, original=256))),
     "model.rotary.scaling", {"model": llama()}),
    "a window": (job(llama(window=Window(size=64))), "model.window", {"model": llama()}),
    "tied in a pipeline": (job(llama(tied=True)), "pp: found 4", ALONE),
    "odd sequence": (job(llama(sequence=511)), "model.sequence", {"model": llama(sequence=510)}),
    "blocks of queries": (job(llama(sequence=640), settings=usual(cp=2)),
     "model.sequence.*128 x cp", {"model": llama(sequence=512)}),
    "replicas and cp": (job(settings=usual(cp=2, optimizer=OptimizerSettings())),
     "settings.optimizer.sharding", {"settings": usual(cp=2)}),
    "expert degree": (job(deepseek(), settings=usual(ep=3, etp=1)), "settings.ep",
     {"settings": usual(ep=2, etp=1)}),
    "divided experts": (job(deepseek(), settings=usual(ep=2)), "settings.etp",
     {"settings": usual(ep=2, etp=1)}),
    "experts whole without ep": (job(deepseek(), settings=usual(etp=1)), "settings.etp",
     {"settings": usual(etp=2)}),
    "latent without norms": (job(deepseek(qk_norm=False)), "model.qk_norm", {"model": deepseek()}),
    "a wide shared expert": (
        job(deepseek(experts=Experts(count=8, top_k=2, ffn=96, shared_ffn=100))),
        "model.experts.shared_ffn",
        {"model": deepseek()},
    ),
    "yarn of another magnitude": (
        job(deepseek(rotary=Rotary(scaling="yarn", factor=2.0, original=256))),
        "model.rotary.magnitude_all",
        {"model": deepseek(rotary=Rotary(scaling="yarn", factor=2, original=256, magnitude_all=1))},
    ),
}  # fmt: skip


@for_each("name", REFUSED)
def test_what_torchtitan_cannot_run_is_refused_and_repaired(name: str) -> None:
    check_refusal(export_torchtitan_python, REFUSED[name])


def test_latent_attention_without_experts_is_written() -> None:
    latent = LatentAttention(query_rank=48, key_value_rank=32, key=16, rotary=8, value=16)
    dense = said(job(llama(latent=latent, qk_norm=True, kv_heads=16)), "family._build_dsv3_layers")
    assert dense["n_dense_layers"] == dense["n_layers"] == 8
