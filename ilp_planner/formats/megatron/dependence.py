"""Values of Megatron's arguments that no number of the planner depends on."""

from ilp_planner.formats.megatron.flags import Flag

# Of these topics no value counts, but for those named below.
FREE_TOPICS = ("data", "checkpoints", "logging", "inference", "training")
COUNTED = {
    "tokenizer-type", "vocab-size", "padded-vocab-size", "vocab-extra-ids", "no-pad-vocab-size",
    "disable-pad-vocab-size", "sft", "use-varlen-dataset", "vision-pretraining",
    "micro-batch-size", "global-batch-size", "batch-size", "rampup-batch-size",
    "step-batch-size-schedule", "decrease-batch-size-if-needed", "optimizer", "freeze-all-layers",
    "use-checkpoint-args", "use-mp-args-from-checkpoint-args", "ckpt-format",
    "no-create-attention-mask-in-dataloader", "perform-rl-step", "muon-tp-mode",
    "calculate-per-token-loss", "no-check-for-nan-in-loss-and-grad", "data-parallel-random-init",
    "hidden-dropout", "attention-dropout", "moe-expert-capacity-factor",
    "moe-expert-rank-capacity-factor", "moe-paged-stash-buffer-size-factor-cuda",
    "moe-paged-stash-buffer-size-factor-cpu", "optimizer-offload-fraction",
}  # fmt: skip
FREE = {
    "rotary-base", "yarn-original-max-position-embeddings", "original-max-position-embeddings",
    "distributed-timeout-minutes", "distributed-timeout-seconds-after-init", "local-rank",
    "hysteresis", "fp8-interval", "fp8-amax-history-len", "nccl-communicator-config-path",
    "config-logger-dir", "flight-recorder-dump-path", "flight-recorder-trace-buffer-size",
    "tp-comm-overlap-cfg", "distributed-backend",
}  # fmt: skip


def is_free(flag: Flag) -> bool:
    """Whether memory and time are the same for any value of an argument: paths, names, learning
    rates, seeds, and numbers that only scale values."""
    if flag.name in COUNTED:
        return False
    return flag.name in FREE or flag.topic in FREE_TOPICS or flag.kind == "float"
