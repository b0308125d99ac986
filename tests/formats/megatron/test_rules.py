"""Megatron-LM's verdict without it: its own verdicts on file, and every rule broken once."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
from ilp_planner.formats.megatron.repairs import BUILD, CONFIG, NEVER, PARSE, RUN, VALIDATE
from ilp_planner.formats.megatron.rules import check_arguments
from tests.examples import for_each
from tests.formats.megatron.verdict import judge

DATA = Path(__file__).parents[4] / "shared" / "data" / "megatron"
GPT = (
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
    "--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 64 --bf16"
)
HALF = GPT.replace("--bf16", "--fp16")
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
GRAPHED = "--cuda-graph-impl transformer_engine --cuda-graph-modules"
MOE = f"{GPT} --num-experts 8 --disable-bias-linear"
OVERLAPPED = (
    f"{MOE} --overlap-moe-expert-parallel-comm --expert-model-parallel-size 2 "
    "--moe-token-dispatcher-type alltoall"
)
# Words for the same thing in Megatron's messages and in arguments.
SAME = {
    "total_model_size": "tensor_model_parallel_size",
    "number_of_layers": "num_layers",
    "number_of_experts": "num_experts",
    "decoder_layers": "pipeline_model_parallel_layout",
    "gemm_overlap": "tp_comm_overlap",
    "vp_size": "num_virtual_stages_per_pipeline_rank",
    "middle_stage": "decoder_first_pipeline_num_layers",
    "number_of_layers_per_pipeline_stage": "num_layers_per_virtual_pipeline_stage",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "expert_tensor_model_pipeline_parallel": "expert_model_parallel_size",
}


def load(name: str) -> list[dict[str, Any]]:
    file = DATA / name
    return json.loads(file.read_text())["cases"] if file.is_file() else []


def need(cases: list[dict[str, Any]]) -> None:
    if not cases:
        pytest.skip("shared/data/megatron is not here")


def names_in(text: str) -> set[str]:
    """Return the arguments that a message is about."""
    words = text.lower().replace("-", "_")
    words = re.sub(r"\bhidden_size\b(?=.*tensor)", "", words)
    spaced = re.sub(r"[^a-z_]+", "_", words)
    found = {new for old, new in SAME.items() if old in spaced}
    return found | set(re.findall(r"[a-z]+(?:_[a-z]+)+", words))


def test_every_verdict_on_file() -> None:
    cases = load("argument_cases.json")
    need(cases)
    wrong = [
        case["name"]
        for case in cases
        if judge(case["args"], case["world"]).accepted != (case["status"] == "accepted")
    ]
    assert wrong == []


def test_every_rejection_on_file_names_the_same_argument_at_the_same_stage() -> None:
    cases = load("argument_cases.json")
    need(cases)
    for case in cases:
        if case["status"] != "rejected":
            continue
        first = judge(case["args"], case["world"]).findings[0]
        assert first.stage == case["stage"], case["name"]
        assert names_in(str(first)) & names_in(case["error"]), (case["error"], str(first))


def test_derived_values_on_file() -> None:
    from ilp_planner.formats.megatron.arguments import job_of_arguments

    cases = load("argument_cases.json")
    need(cases)
    for case in cases:
        if case["status"] != "accepted" or judge(case["args"], case["world"]).findings:
            continue
        job = job_of_arguments(read_arguments(case["args"], case["world"]))
        derived = case["derived"]
        assert job.dp == derived["dp"]
        assert job.micro_batches == derived["num_microbatches"]
        assert job.virtual == (derived["vpp"] or 1)
        assert job.model.ffn == derived["ffn"]
        assert job.settings.sequence_parallel == derived["sp"]


def test_what_fails_only_when_it_is_built() -> None:
    cases = load("build_cases.json")
    need(cases)
    for case in cases:
        verdict = judge(case["args"], case["world"])
        assert verdict.accepted, case["name"]
        if case["status"] == "built":
            assert verdict.runs, (case["name"], *map(str, verdict.findings))
        else:
            assert verdict.findings[0].stage == BUILD, case["name"]


BROKEN = [
    # parser
    (f"{GPT} --bogus", 8, PARSE, "--bogus"),
    (f"{GPT} --recompute-method all", 8, PARSE, "--recompute-method"),
    # ranks and batches
    (f"{GPT} --tensor-model-parallel-size 2", 7, VALIDATE, "world size"),
    (f"{GPT} --context-parallel-size 3", 8, VALIDATE, "world size"),
    (f"{GPT} --tensor-model-parallel-size 0", 8, VALIDATE, "--tensor-model-parallel-size"),
    (f"{GPT} --tensor-parallel-num-weight-shards 3 --tensor-model-parallel-size 2", 12, VALIDATE,
     "--tensor-parallel-num-weight-shards"),
    (f"{GPT} --global-batch-size 63", 8, VALIDATE, "--global-batch-size"),
    (f"{GPT} --global-batch-size 0", 8, VALIDATE, "--global-batch-size"),
    (f"{GPT} --eval-global-batch-size 63", 8, VALIDATE, "--eval-global-batch-size"),
    (f"{GPT} --eval-global-batch-size 64 --global-batch-size 63", 8, BUILD, "--global-batch-size"),
    (f"{GPT} --rampup-batch-size 16 15 100", 8, BUILD, "--rampup-batch-size"),
    (f"{GPT} --rampup-batch-size 8 8 100", 8, RUN, "--rampup-batch-size"),
    (GPT.replace("--micro-batch-size 2", ""), 8, VALIDATE, "--micro-batch-size"),
    (GPT.replace("--num-layers 8", ""), 8, VALIDATE, "--num-layers"),
    (GPT.replace("--seq-length 32", ""), 8, VALIDATE, "--seq-length"),
    (f"{GPT} --batch-size 4", 8, VALIDATE, "--batch-size"),
    (f"{GPT} --model-parallel-size 4", 8, VALIDATE, "--model-parallel-size"),
    (f"{GPT} --hierarchical-context-parallel-sizes 2 3", 8, VALIDATE,
     "--hierarchical-context-parallel-sizes"),
    (f"{GPT} --cp-comm-type a2a+p2p", 8, VALIDATE, "--cp-comm-type"),
    # sizes
    (f"{GPT} --hidden-size 66", 8, VALIDATE, "--hidden-size"),
    (f"{GPT} --context-parallel-size 2 --seq-length 30", 8, VALIDATE, "--seq-length"),
    (f"{GPT} --max-position-embeddings 16", 8, VALIDATE, "--max-position-embeddings"),
    (f"{GPT} --tensor-model-parallel-size 8", 8, CONFIG, "--num-attention-heads"),
    (f"{GPT} --num-attention-heads 12 --kv-channels 8 --group-query-attention --num-query-groups 4 "
     "--tensor-model-parallel-size 6", 6, CONFIG, "--num-query-groups"),
    (f"{GPT} --group-query-attention --num-query-groups 3", 8, BUILD, "--num-query-groups"),
    (f"{GPT} --ffn-hidden-size 257 --tensor-model-parallel-size 2", 8, BUILD, "--ffn-hidden-size"),
    (f"{GPT} --padded-vocab-size 129 --tensor-model-parallel-size 2", 8, BUILD,
     "--padded-vocab-size"),
    # pipeline
    (f"{GPT} --pipeline-model-parallel-size 3", 3, VALIDATE, "--num-layers"),
    (f"{GPT} --pipeline-model-parallel-size 4 --account-for-loss-in-pipeline-split", 4, VALIDATE,
     "--num-layers"),
    (f"{GPT} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3", 2,
     VALIDATE, "--num-layers-per-virtual-pipeline-stage"),
    (f"{GPT} --num-virtual-stages-per-pipeline-rank 2", 8, VALIDATE,
     "--pipeline-model-parallel-size"),
    (f"{GPT} --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
     "--no-overlap-p2p-communication", 2, VALIDATE, "--pipeline-model-parallel-size"),
    (f"{GPT} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 "
     "--decoder-first-pipeline-num-layers 4", 2, VALIDATE,
     "--num-layers-per-virtual-pipeline-stage"),
    (f"{GPT} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*4|t*2|t*2L", 2,
     VALIDATE, "--pipeline-model-parallel-layout"),
    (f"{GPT} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*4|t*4", 2, CONFIG,
     "--pipeline-model-parallel-layout"),
    (f"{GPT} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout t*4|Et*4L", 2,
     CONFIG, "--pipeline-model-parallel-layout"),
    (f"{GPT} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*4|x*4L", 2,
     CONFIG, "--pipeline-model-parallel-layout"),
    (f"{GPT} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*4|t*4mL", 2,
     CONFIG, "--pipeline-model-parallel-layout"),
    (f"{GPT} --pipeline-model-parallel-size 2 --position-embedding-type rope --mtp-num-layers 2 "
     "--pipeline-model-parallel-layout Et*4m|t*4mL", 2, CONFIG, "--pipeline-model-parallel-layout"),
    (f"{GPT} --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1", 4, CONFIG,
     "--decoder-first-pipeline-num-layers"),
    (f"{GPT} --pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1 "
     "--decoder-last-pipeline-num-layers 1", 2, CONFIG, "--decoder-first-pipeline-num-layers"),
    (f"{GPT} --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 3", 2, BUILD,
     "--num-virtual-stages-per-pipeline-rank"),
    (f"{GPT} --pipeline-model-parallel-size 3 --num-virtual-stages-per-pipeline-rank 2", 3, BUILD,
     "--num-layers"),
    (f"{GPT} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
     "--global-batch-size 4", 4, RUN, "--global-batch-size"),
    (f"{GPT} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
     "--global-batch-size 12", 4, RUN, "--global-batch-size"),
    (f"{GPT} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
     "--microbatch-group-size-per-virtual-pipeline-stage 3", 4, RUN,
     "--microbatch-group-size-per-virtual-pipeline-stage"),
    # recomputation, offloading
    (f"{GPT} --recompute-granularity full --recompute-method block --recompute-num-layers 9", 1,
     NEVER, "--recompute-num-layers"),
    (f"{GPT} --recompute-granularity full --recompute-method uniform --recompute-num-layers 3", 1,
     RUN, "--recompute-num-layers"),
    (f"{GPT} --recompute-granularity selective --recompute-method block", 1, VALIDATE,
     "--recompute-method"),
    (f"{GPT} --recompute-granularity selective --recompute-num-layers 1", 1, CONFIG,
     "--recompute-num-layers"),
    (f"{GPT} --recompute-granularity selective --recompute-modules moe_act", 1, CONFIG,
     "--recompute-modules"),
    (f"{GPT} --recompute-granularity selective --recompute-modules mla_up_proj", 1, CONFIG,
     "--recompute-modules"),
    (f"{GPT} --distribute-saved-activations", 1, VALIDATE, "--distribute-saved-activations"),
    (f"{GPT} --cpu-offloading-num-layers 8", 1, CONFIG, "--cpu-offloading-num-layers"),
    (f"{GPT} --cpu-offloading-num-layers 1 --pipeline-model-parallel-size 2", 2, CONFIG,
     "--cpu-offloading-num-layers"),
    (f"{GPT} --cpu-offloading-num-layers 1 --recompute-activations", 1, CONFIG,
     "--cpu-offloading-num-layers"),
    (f"{GPT} --optimizer-cpu-offload", 1, VALIDATE, "--optimizer-cpu-offload"),
    # data parallelism
    (f"{GPT} --overlap-param-gather --overlap-grad-reduce", 1, VALIDATE, "--overlap-param-gather"),
    (f"{GPT} --use-torch-fsdp2 --no-gradient-accumulation-fusion", 1, VALIDATE,
     "--use-torch-fsdp2"),
    (f"{GPT} --use-torch-fsdp2 --untie-embeddings-and-output-weights", 1, VALIDATE,
     "--use-torch-fsdp2"),
    (f"{GPT} --use-megatron-fsdp", 1, VALIDATE, "--use-megatron-fsdp"),
    (f"{GPT} --use-megatron-fsdp --ckpt-format fsdp_dtensor --optimizer muon", 1, VALIDATE,
     "--use-megatron-fsdp"),
    (f"{HALF} --optimizer muon", 1, BUILD, "--fp16"),
    (f"{GPT} --num-distributed-optimizer-instances 2 --use-distributed-optimizer "
     "--optimizer muon", 8, BUILD, "--num-distributed-optimizer-instances"),
    (f"{GPT} --use-precision-aware-optimizer --use-distributed-optimizer --optimizer muon", 1,
     BUILD, "--use-precision-aware-optimizer"),
    (f"{GPT} --ckpt-format fsdp_dtensor", 1, VALIDATE, "--ckpt-format"),
    (f"{GPT} --num-distributed-optimizer-instances 3", 8, BUILD,
     "--num-distributed-optimizer-instances"),
    (f"{GPT} --use-precision-aware-optimizer", 1, BUILD, "--use-precision-aware-optimizer"),
    (f"{GPT} --exp-avg-dtype bf16", 1, BUILD, "--exp-avg-dtype"),
    (f"{GPT} --fp16", 1, VALIDATE, "--fp16"),
    (f"{GPT} --fp8-format hybrid --fp4-format e2m1", 1, VALIDATE, "--fp4-format"),
    (f"{GPT} --tp-comm-overlap --sequence-parallel", 1, VALIDATE, "--tp-comm-overlap"),
    # experts
    (f"{GPT} --expert-model-parallel-size 2", 8, VALIDATE, "--expert-model-parallel-size"),
    (f"{MOE} --expert-model-parallel-size 3 --global-batch-size 54", 9, VALIDATE, "--num-experts"),
    (f"{MOE} --expert-model-parallel-size 8", 4, BUILD, "--expert-model-parallel-size"),
    (f"{MOE} --tensor-model-parallel-size 2 --sequence-parallel "
     "--pipeline-model-parallel-size 2 --expert-tensor-parallel-size 1 --use-tp-pp-dp-mapping", 8,
     BUILD, "--use-tp-pp-dp-mapping"),
    (f"{GPT} --num-experts 8 --tensor-model-parallel-size 2 --sequence-parallel", 2, CONFIG,
     "--expert-tensor-parallel-size"),
    (f"{MOE} --tensor-model-parallel-size 2", 2, RUN, "--num-experts"),
    (f"{MOE} --moe-router-topk 1", 1, CONFIG, "--moe-router-topk"),
    (f"{MOE} --moe-router-topk 9", 1, RUN, "--moe-router-topk"),
    (f"{MOE} --moe-ffn-hidden-size 33 --tensor-model-parallel-size 2 --sequence-parallel", 2,
     BUILD, "--moe-ffn-hidden-size"),
    (f"{MOE} --moe-layer-freq [1]*4", 1, BUILD, "--moe-layer-freq"),
    (f"{MOE} --moe-pad-expert-input-to-capacity", 1, CONFIG, "--moe-pad-expert-input-to-capacity"),
    (f"{MOE} --moe-enable-deepep", 1, CONFIG, "--moe-enable-deepep"),
    (f"{MOE} --moe-router-enable-expert-bias", 1, CONFIG, "--moe-router-enable-expert-bias"),
    (f"{GPT} --moe-ffn-hidden-size 64", 1, CONFIG, "--moe-ffn-hidden-size"),
    (f"{MOE} --overlap-moe-expert-parallel-comm", 1, CONFIG, "--overlap-moe-expert-parallel-comm"),
    (f"{OVERLAPPED} --cuda-graph-impl local", 2, CONFIG, "--overlap-moe-expert-parallel-comm"),
    # quantised products, CUDA graphs, the loss
    (f"{GPT} --fp8-format hybrid --fp8-recipe tensorwise --first-last-layers-bf16 "
     "--num-layers-at-start-in-bf16 9", 1, CONFIG, "--num-layers-at-start-in-bf16"),
    (f"{GPT} --cross-entropy-loss-fusion --cross-entropy-fusion-impl te", 1, CONFIG,
     "--cross-entropy-fusion-impl"),
    (f"{GPT} --cross-entropy-fusion-impl linear", 1, CONFIG, "--cross-entropy-fusion-impl"),
    (f"{MOE} --moe-paged-stash", 1, CONFIG, "--moe-paged-stash"),
    (f"{GPT} --multi-latent-attention --cache-mla-latents", 1, CONFIG, "--cache-mla-latents"),
    (f"{GPT} --enable-cuda-graph --cuda-graph-impl local", 1, CONFIG, "--enable-cuda-graph"),
    (f"{GPT} --enable-cuda-graph --external-cuda-graph", 1, CONFIG, "--enable-cuda-graph"),
    (f"{GPT} --cuda-graph-impl local --cpu-offloading-num-layers 1", 1, CONFIG,
     "--cuda-graph-impl"),
    (f"{GPT} --cuda-graph-impl transformer_engine --cuda-graph-modules attn {FULL}", 1, CONFIG,
     "--cuda-graph-impl"),
    (f"{GPT} --enable-cuda-graph {FULL}", 1, CONFIG, "--enable-cuda-graph"),
    (f"{GPT} --external-cuda-graph --cuda-graph-scope full_iteration", 1, CONFIG,
     "--cuda-graph-scope"),
    (f"{MOE} {GRAPHED} moe_preprocess", 1, CONFIG, "--cuda-graph-modules"),
    (f"{MOE} {GRAPHED} moe moe_router --moe-expert-capacity-factor 1.0 "
     "--moe-pad-expert-input-to-capacity", 1, CONFIG, "--cuda-graph-modules"),
    (f"{MOE} {GRAPHED} moe", 1, CONFIG, "--cuda-graph-modules"),
    (f"{MOE} {GRAPHED} mlp", 1, CONFIG, "--cuda-graph-modules"),
    (f"{MOE} {GRAPHED} moe_router moe_preprocess --moe-expert-capacity-factor 1.0 "
     "--moe-token-dispatcher-type alltoall", 1, CONFIG, "--cuda-graph-modules"),
    (f"{MOE} {GRAPHED} moe_router --recompute-granularity selective --recompute-modules moe", 1,
     CONFIG, "--cuda-graph-modules"),
    (f"{GPT} {GRAPHED} moe_router", 1, CONFIG, "--cuda-graph-modules"),
    (f"{GPT} {GRAPHED} attn --recompute-activations", 1, CONFIG, "--attention-dropout"),
    (f"{GPT} --cuda-graph-impl local --recompute-granularity selective --recompute-modules mlp", 1,
     CONFIG, "--hidden-dropout"),
    (f"{HALF} --cuda-graph-impl full_iteration --loss-scale 1024", 1, VALIDATE,
     "--cuda-graph-impl"),
    # the rest
    (f"{GPT} --tensor-model-parallel-size 4 --sequence-parallel --seq-length 30", 4, RUN,
     "--seq-length"),
    (f"{GPT} --multi-latent-attention --group-query-attention", 1, VALIDATE,
     "--group-query-attention"),
    (f"{GPT} --mtp-num-layers 1", 1, VALIDATE, "--position-embedding-type"),
    (f"{GPT} --no-position-embedding", 1, VALIDATE, "--no-position-embedding"),
    (f"{GPT} --squared-relu", 1, CONFIG, "--squared-relu"),
    (f"{GPT} --delay-wgrad-compute", 1, CONFIG, "--delay-wgrad-compute"),
    (f"{GPT} --defer-embedding-wgrad-compute", 1, CONFIG, "--defer-embedding-wgrad-compute"),
    (f"{GPT} --train-iters 1 --train-samples 1", 1, VALIDATE, "--train-iters"),
    (f"{GPT} --lr 1e-4 --min-lr 1e-3", 1, VALIDATE, "--min-lr"),
    (f"{GPT} --save here", 1, VALIDATE, "--save"),
    (f"{GPT} --attention-backend local", 1, VALIDATE, "--attention-backend"),
]  # fmt: skip


@for_each(("line", "world", "stage", "flag"), BROKEN)
def test_every_rule_broken_once(line: str, world: int, stage: str, flag: str) -> None:
    verdict = judge(line, world)
    assert verdict.accepted == (stage in (BUILD, RUN, NEVER))
    assert (verdict.findings[0].flag, verdict.findings[0].stage) == (flag, stage)
    for finding in verdict.findings:
        text = str(finding)
        assert "\n" not in text
        assert ("Megatron accepts it" in text) == (stage in (BUILD, RUN, NEVER)) or len(
            verdict.findings
        ) > 1


@for_each(
    ("line", "world"),
    [
        (GPT, 8),
        (f"{GPT} --tensor-model-parallel-size 2 --sequence-parallel", 8),
        (f"{GPT} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2", 4),
        (f"{GPT} --pipeline-model-parallel-size 3 --pipeline-model-parallel-layout E|t*8|L", 3),
        (f"{GPT} --num-layers 6 --pipeline-model-parallel-size 4 "
         "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split", 4),
        (f"{MOE} --expert-model-parallel-size 4 --tensor-model-parallel-size 2 --sequence-parallel "
         "--expert-tensor-parallel-size 1", 8),
        (f"{GPT} --position-embedding-type rope --mtp-num-layers 1", 1),
        (f"{MOE} --num-layers 94 --moe-token-dispatcher-type alltoall "
         "--overlap-moe-expert-parallel-comm --expert-model-parallel-size 2 "
         "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et*1|(t*2|)*46t*1L", 8),
        (f"{OVERLAPPED} {GRAPHED} attn moe_router", 2),
        (f"{MOE} --cuda-graph-impl local --cuda-graph-modules moe_preprocess", 1),
        (f"{MOE} {GRAPHED} attn moe_router moe_preprocess", 1),
        (f"{GPT} {GRAPHED} mlp --recompute-activations", 1),
        (f"{HALF} --cuda-graph-impl full_iteration", 1),
        (f"{GPT} --cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad {FULL}", 1),
        (f"{GPT} --cross-entropy-loss-fusion --cross-entropy-fusion-impl native", 1),
        (f"{GPT} --cross-entropy-fusion-impl te", 1),
        (f"{GPT} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
         "--global-batch-size 36 --microbatch-group-size-per-virtual-pipeline-stage 7", 4),
    ],
)  # fmt: skip
def test_what_runs(line: str, world: int) -> None:
    verdict = judge(line, world)
    assert verdict.runs, [*map(str, verdict.findings)]


@for_each(
    ("line", "world"),
    [
        (f"{GPT} --global-batch-size 63", 8),
        (f"{GPT} --num-layers 9 --pipeline-model-parallel-size 4", 4),
        (f"{GPT} --tensor-model-parallel-size 3 --global-batch-size 96", 12),
        (f"{GPT} --seq-length 30 --context-parallel-size 2", 8),
        (f"{GPT} --hidden-size 66", 8),
        (f"{GPT} --ffn-hidden-size 257 --tensor-model-parallel-size 2", 8),
        (f"{GPT} --num-layers 9 --pipeline-model-parallel-size 3 "
         "--num-virtual-stages-per-pipeline-rank 2", 3),
        (f"{GPT} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
         "--global-batch-size 12", 4),
        (f"{MOE} --expert-model-parallel-size 8", 4),
        (f"{GPT} --overlap-param-gather --use-distributed-optimizer", 8),
        (f"{GPT} --max-position-embeddings 16", 8),
        (f"{GPT} --recompute-granularity full --recompute-method uniform --recompute-num-layers 3",
         1),
    ],
)  # fmt: skip
def test_the_value_that_is_said_to_repair_it_does(line: str, world: int) -> None:
    finding = check_arguments(read_arguments(line, world))[0]
    fix = finding.fix.replace("'", "")
    assert fix.startswith("--")
    if "layout" in fix:
        line = re.sub(r"--num-virtual-stages-per-pipeline-rank \d+", "", line)
    repaired = check_arguments(read_arguments(f"{line} {fix}", world))
    assert finding.flag not in {f.flag for f in repaired}
    assert not repaired


def test_a_world_that_would_do() -> None:
    finding = check_arguments(read_arguments(f"{GPT} --tensor-model-parallel-size 4", 9))[0]
    assert finding.fix == "a world size of 8"
    assert str(finding) == (
        "world size: found 9, expected a multiple of 4 = --tensor-model-parallel-size 4 x "
        "--pipeline-model-parallel-size 1 x --context-parallel-size 1; a world size of 8 would do"
    )


def test_the_environment_is_judged_where_it_is_known() -> None:
    line = f"{GPT} --tensor-model-parallel-size 2"
    assert judge(line, 2).runs
    assert judge(line, 2, environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}).runs
    missing = judge(line, 2, environment={}).findings[0]
    assert missing.flag == "CUDA_DEVICE_MAX_CONNECTIONS"
    fsdp = f"{GPT} --use-megatron-fsdp --ckpt-format fsdp_dtensor"
    assert judge(fsdp, 2, environment={}).runs
    assert not judge(fsdp, 2, environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}).accepted
    same = f"{GPT} --deterministic-mode"
    assert judge(same, 2).runs
    assert judge(same, 2, environment={"NCCL_ALGO": "Ring"}).runs
    assert judge(same, 2, environment={"NCCL_ALGO": "NVLS"}).findings[0].fix == "NCCL_ALGO=Ring"


@pytest.mark.parametrize("other", ["--use-flash-attn", "--cross-entropy-loss-fusion"])
def test_what_is_not_the_same_bit_for_bit(other: str) -> None:
    finding = judge(f"{GPT} --deterministic-mode {other}", 2).findings[0]
    assert (finding.flag, finding.stage) == ("--deterministic-mode", VALIDATE)
    assert other in finding.found


def test_the_first_0_layers_computed_again_are_none() -> None:
    block = f"{GPT} --recompute-granularity full --recompute-method block --recompute-num-layers 0"
    assert judge(block, 1).accepted
    assert job_of_arguments(read_arguments(block, 1)).settings.recompute.granularity == "none"
