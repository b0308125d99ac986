"""torchtitan's TOML: what it says, and what it refuses with the nearest that torchtitan can run."""

import ast
import tomllib
from dataclasses import replace

import pytest
from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.specs.decoder import Decoder, Experts, Window
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, TrainingJob
from tests.examples import examples, for_each
from tests.formats.titan_cases import FULL, REFUSED_BY_BOTH, check_refusal, with_optimizer
from tests.training_jobs import deepseek, job, jobs, llama
from tests.training_jobs import settings as usual

ALONE = {"pp": 1, "layout": None}


def tables(case: TrainingJob) -> dict:
    return tomllib.loads(export_torchtitan(case, "run").files[".toml"])


def test_uneven_stages_name_every_module() -> None:
    parallelism = tables(job())["parallelism"]
    assert parallelism["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2"],
        ["layers.3", "layers.4", "layers.5"],
        ["layers.6", "layers.7", "norm", "output"],
    ]
    assert parallelism["pipeline_parallel_schedule"] == "1F1B"
    assert parallelism["pipeline_parallel_degree"] == 4
    assert parallelism["tensor_parallel_degree"] == 2
    assert parallelism["data_parallel_shard_degree"] == 2


def test_micro_batches_are_the_pipelines_or_accumulated() -> None:
    pipeline = tables(job())
    assert pipeline["training"]["local_batch_size"] == 32
    assert pipeline["training"]["global_batch_size"] == 64
    assert pipeline["parallelism"]["pipeline_parallel_microbatch_size"] == 2
    accumulated = tables(job(**ALONE))
    assert accumulated["training"]["local_batch_size"] == 2
    assert "pipeline_parallel_microbatch_size" not in accumulated["parallelism"]


def test_virtual_stages_are_interleaved() -> None:
    parallelism = tables(job(pp=2, layout=split_layout([2, 1, 3, 2])))["parallelism"]
    assert parallelism["pipeline_parallel_schedule"] == "Interleaved1F1B"
    assert len(parallelism["module_fqns_per_model_part"]) == 4


@pytest.mark.parametrize(("sharding", "policy"), [("gradients", "never"), ("parameters", "always")])
def test_sharding_is_fsdp(sharding: str, policy: str) -> None:
    found = tables(with_optimizer(sharding=sharding))["parallelism"]
    assert found["fsdp_reshard_after_forward"] == policy


@pytest.mark.parametrize(("how", "method"), [("p2p", "alltoall"), ("all_gather", "allgather")])
def test_keys_and_values_pass_as_in_the_plan(how: str, method: str) -> None:
    found = tables(job(settings=usual(cp=2, cp_comm=how)))["parallelism"]
    assert found["context_parallel_rotate_method"] == method


def test_optimizer_states_alone_are_noted() -> None:
    assert any("FSDP" in note for note in export_torchtitan(job(), "run").notes)
    gradients = export_torchtitan(with_optimizer(sharding="gradients"), "run").notes
    assert not any("FSDP" in note for note in gradients)


@for_each(
    ("recompute", "mode"),
    [
        (Recompute(), "none"),
        (FULL, "full"),
        (Recompute(granularity="full", method="block", layers=3), "full"),
        (Recompute(granularity="selective"), "none"),
    ],
)
def test_recomputation(recompute: Recompute, mode: str) -> None:
    case = job(settings=usual(recompute=recompute))
    assert tables(case)["activation_checkpoint"]["mode"] == mode


def test_a_known_model_is_a_flavor() -> None:
    model = llama(
        layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, sequence=8192
    )
    exported = export_torchtitan(job(model, layout=split_layout([7, 8, 9, 8])), "run")
    assert set(exported.files) == {".toml"}
    assert tomllib.loads(exported.files[".toml"])["model"] == {"name": "llama3", "flavor": "8B"}


def test_another_model_comes_as_a_module() -> None:
    exported = export_torchtitan(job(), "my run")
    assert set(exported.files) == {".toml", "_model.py"}
    found = tomllib.loads(exported.files[".toml"])
    assert found["experimental"]["custom_import"] == found["model"]["name"] == "my_run_model"
    calls = [n for n in ast.walk(ast.parse(exported.files["_model.py"])) if isinstance(n, ast.Call)]
    arguments = next(c for c in calls if getattr(c.func, "id", "") == "TransformerModelArgs")
    values = {k.arg: ast.literal_eval(k.value) for k in arguments.keywords}
    assert values["dim"] == 256
    assert values["n_kv_heads"] == 8


def test_copies_beside_steps_are_noted() -> None:
    overlapped = export_torchtitan(with_optimizer(offload=1.0, overlap_offload=True), "run").notes
    assert any("overlap_offload: true; not written" in note for note in overlapped)
    plain = export_torchtitan(with_optimizer(offload=1.0), "run").notes
    assert not any("overlap_offload" in note for note in plain)


def test_another_order_is_no_matter_in_one_node_or_without_replicas() -> None:
    other = usual(order="tp-cp-ep-pp-dp")
    same = export_torchtitan(job(dp=1, tp=1, settings=replace(other, precision="fp32")), "run")
    assert not any("order" in note for note in same.notes)
    near = export_torchtitan(job(dp=2, tp=1, pp=2, layout=None, settings=other), "run")
    assert any("alike in one node" in note for note in near.notes)


def quantised(model: Decoder | None = None, **kernels: object) -> TrainingJob:
    return job(model, settings=usual(kernels=Kernels(**kernels)))


def test_products_are_quantised_by_a_converter() -> None:
    found = tables(quantised(quantised="fp8-current", quantised_parameters=True, exact_last=1))
    assert found["model"]["converters"] == ["quantize.linear.float8"]
    assert found["quantize"]["linear"]["float8"] == {
        "filter_fqns": ["output", "layers.7."],
        "enable_fsdp_float8_all_gather": True,
    }
    found = tables(quantised(quantised="mxfp8", exact_first=2))
    assert found["model"]["converters"] == ["quantize.linear.mx"]
    skipped = found["quantize"]["linear"]["mx"]["filter_fqns"]
    assert skipped == ["output", "layers.0.", "layers.1."]
    assert "converters" not in tables(job())["model"]


REFUSED = REFUSED_BY_BOTH | {
    "delayed": (quantised(quantised="fp8-delayed"), "quantised", {"settings": usual()}),
    "4 bits": (quantised(quantised="nvfp4"), "quantised", {"settings": usual()}),
    "experts in 8 bits": (
        replace(
            quantised(llama(experts=Experts(count=8, top_k=2, ffn=96)), quantised="mxfp8"),
            pp=1,
            layout=None,
        ),
        "quantised",
        {"model": llama()},
    ),
    "format": (quantised(quantised="mxfp8", number_format="hybrid"), "number_format",
     {"settings": usual(kernels=Kernels(quantised="mxfp8"))}),
    "compiled blocks of 8 bits": (quantised(quantised="mxfp8", compiled=True), "kernels.compiled",
     {"settings": usual(kernels=Kernels(quantised="mxfp8"))}),
    "graphs": (quantised(graphs="local"), "kernels.graphs", {"settings": usual()}),
    "biases": (job(llama(bias=True)), "model.bias", {"model": llama()}),
    "tied in a pipeline": (job(llama(tied=True)), "pp", ALONE),
    "mixed layers": (job(llama(experts=Experts(count=4, top_k=1, ffn=64, every=2)), **ALONE),
     "model.experts", {"model": llama()}),
    "sequence": (job(settings=usual(sequence_parallel=False)), "sequence_parallel",
     {"settings": usual()}),
    "odd sequence": (job(llama(sequence=510)), "model.sequence", {"model": llama(sequence=508)}),
    "replicas": (with_optimizer(sharding="none"), "sharding", {"settings": usual()}),
    "one replica": (job(dp=1), "dp: found 1", {"dp": 2}),
    "shards of one rank": (with_optimizer(instances=2), "instances", {"settings": usual()}),
    "exchanged heads": (job(settings=usual(cp=2, cp_comm="a2a")), "settings.cp_comm",
     {"settings": usual(cp=2, cp_comm="all_gather")}),
    "expert degree": (job(deepseek(), settings=usual(ep=3)), "settings.ep",
     {"settings": usual(ep=2)}),
    "experts of replicas": (
        job(
            llama(experts=Experts(count=4, top_k=1, ffn=64)),
            **{**ALONE, "tp": 1, "dp": 4},
            settings=usual(ep=2, optimizer=OptimizerSettings()),
        ),
        "settings.ep: found 2, but torchtitan 0.2.2 takes .* sharded dp .1.",
        {"settings": usual(ep=2)},
    ),
    "expert tensor degree": (job(deepseek(), tp=4, settings=usual(ep=2, etp=2)), "settings.etp",
     {"settings": usual(ep=2, etp=4)}),
}  # fmt: skip


@for_each("name", REFUSED)
def test_what_torchtitan_cannot_run_is_refused_and_repaired(name: str) -> None:
    check_refusal(export_torchtitan, REFUSED[name])


@examples(100)
@given(jobs())
def test_any_job_is_said_or_refused(case: TrainingJob) -> None:
    """Every layer is in one part, in order, whatever the plan."""
    plain = {"norm": "rmsnorm", "gated": True, "bias": False, "qkv_bias": False, "dropout": 0.0}
    case = replace(case, model=replace(case.model, **plain))
    try:
        found = tables(case)
    except PlanError:
        return
    parts = found["parallelism"].get("module_fqns_per_model_part")
    if parts is None:
        assert case.pp == 1
        return
    layers = [f"layers.{i}" for i in range(case.model.layers)]
    assert [module for part in parts for module in part] == [
        "tok_embeddings",
        *layers,
        "norm",
        "output",
    ]
    assert len(parts) == len(case.stages)


def test_names_cannot_break_out_of_the_text() -> None:
    text = export_torchtitan(job(), 'a"b\nc = 1').files[".toml"]
    assert tomllib.loads(text)["job"]["description"] == 'a"b\nc = 1'


@for_each(
    ("changes", "message"),
    [
        ({"sinks": True}, "model.sinks: found True, but torchtitan 0.2.2's models have false"),
        ({"window": Window(size=64)}, "model.window: found 64 tokens, but torchtitan 0.2.2's"),
        ({"activation": "gelu"}, "model.activation: found gelu, but torchtitan 0.2.2's models"),
        ({"norm_at": "both"}, "model.norm_at: found both, but torchtitan 0.2.2's models have inp"),
    ],
)
def test_models_that_torchtitan_does_not_have(changes, message):
    with pytest.raises(PlanError, match=message):
        export_torchtitan(job(llama(**changes)), "run")
