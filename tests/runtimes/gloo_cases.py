"""Small jobs of 2 to 4 ranks, for the training systems to run on gloo."""

from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.pipeline_layout import PipelineLayout, split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.training_jobs import llama

# No two kinds of their messages have equal sizes.
SMALL = llama(layers=2, hidden=64, heads=4, kv_heads=2, sequence=48, vocab=256, ffn=96)
DEEPER = llama(layers=4, hidden=64, heads=4, kv_heads=2, sequence=48, vocab=256, ffn=96)
UNEVEN = llama(layers=2, hidden=66, heads=3, kv_heads=3, sequence=48, vocab=250, ffn=98)
FULL = Recompute(granularity="full", method="uniform", layers=1)


def titan(
    sharding: str = "none",
    *,
    model: Decoder = SMALL,
    dp: int = 1,
    tp: int = 1,
    pp: int = 1,
    batches: int = 1,
    instances: int = 1,
    recompute: Recompute | None = None,
    layout: PipelineLayout | None = None,
) -> TrainingJob:
    """Return a job as torchtitan trains it: FSDP in bf16, or without replicas in fp32."""
    fsdp = sharding != "none"
    return TrainingJob(
        model=model,
        micro_batch=2,
        global_batch=2 * dp * batches,
        tp=tp,
        pp=pp,
        dp=dp,
        layout=layout,
        settings=Settings(
            precision="bf16" if fsdp else "fp32",
            sequence_parallel=tp > 1,
            keeps_gathered=True,
            vocab_multiple=1,
            recompute=recompute or Recompute(),
            optimizer=OptimizerSettings(sharding=sharding, instances=instances, from_master=fsdp),
        ),
    )


EXACT = {
    "reshard": titan("parameters", dp=2),
    "keep, two micro-batches": titan("gradients", dp=2, batches=2),
    "four, recomputed": titan("parameters", dp=4, recompute=FULL),
    "hybrid": titan("parameters", dp=4, instances=2, batches=2),
    "hybrid, keep": titan("gradients", dp=4, instances=2),
    "tensor parallel, reshard": titan("parameters", dp=2, tp=2, batches=2),
    "tensor parallel, recomputed": titan("gradients", dp=2, tp=2, recompute=FULL),
}
ALONE = {"tensor parallel": titan(tp=2), "tensor parallel, whole logits": titan(tp=2, batches=2)}
WHOLE_LOGITS = [ALONE["tensor parallel, whole logits"]]  # its loss is not divided
FOUR_STAGES = split_layout([1, 1, 1, 1])
PIPELINES = {
    "pipeline": titan("parameters", dp=2, pp=2, batches=4),
    "pipeline, odd": titan("parameters", dp=2, pp=2, batches=5),
    "pipeline, keep": titan("gradients", dp=2, pp=2, batches=4),
    "virtual stages": titan("parameters", model=DEEPER, dp=2, pp=2, batches=4, layout=FOUR_STAGES),
    "virtual stages, keep": titan(
        "gradients", model=DEEPER, dp=2, pp=2, batches=4, layout=FOUR_STAGES
    ),
}
TITAN = {**EXACT, **ALONE, **PIPELINES, "uneven": titan("parameters", dp=4, model=UNEVEN)}
# ---- Megatron-Core and DeepSpeed -----------------------------------------------------------------

# Megatron's buffers are padded to 128 parameters, which all of these are divisible by.
EVEN = llama(layers=2, hidden=128, heads=4, kv_heads=2, sequence=48, vocab=256, ffn=256)
LOCAL = Kernels(
    implementation="local", attention="unfused", accumulation_fusion=False, fused_softmax=False
)


def replicas(sharding: str, *, dp: int = 1, tp: int = 1, instances: int = 1) -> TrainingJob:
    """Return a job of two micro-batches as Megatron trains it."""
    return TrainingJob(
        model=EVEN,
        micro_batch=2,
        global_batch=4 * dp,
        tp=tp,
        dp=dp,
        settings=Settings(
            sequence_parallel=tp > 1,
            vocab_multiple=1,
            kernels=LOCAL,
            optimizer=OptimizerSettings(sharding=sharding, instances=instances),
        ),
    )


MEGATRON = {
    "plain replicas": replicas("none", dp=2),
    "distributed optimizer": replicas("optimizer", dp=2),
    "instances": replicas("optimizer", dp=4, instances=2),
    "sequence parallel": replicas("optimizer", tp=2),
    "sequence parallel, distributed": replicas("optimizer", dp=2, tp=2),
}
ZERO = {
    "ZeRO 1": replicas("optimizer", dp=2),
    "ZeRO 2": replicas("gradients", dp=2),
    "ZeRO 3": replicas("parameters", dp=2),
    "ZeRO 1, four": replicas("optimizer", dp=4),
    "ZeRO 3, four": replicas("parameters", dp=4),
}
