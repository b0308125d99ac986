"""Releases of Megatron-Core: the arguments and values that each brought, and defaults that changed.

Facts from `megatron/training/arguments.py` and its dataclasses at the releases' tags, read by
`python -m tests.megatron_releases`. An argument that is not named here is in every release from
0.16.1 on, the packaged one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.formats.megatron.flags import flags_by_key
from ilp_planner.formats.megatron.values import write_value
from ilp_planner.formats.versions import CORES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.formats.megatron.flags import Value

MAIN = "main"  # the branch, after all releases
ORDER = (*CORES[::-1], MAIN)
# Release -> arguments that it has and those before lack.
SINCE = {
    "0.17.1": """
async-ckpt-cpu-priority async-ckpt-io-priority async-strategy
ckpt-fully-parallel-load-exchange-algo ckpt-fully-parallel-load-process-group
ckpt-fully-parallel-save-process-group cpu-offloading-retain-pinned-cpu-buffers
ddp-param-name-patterns-for-fp32-local-accumulation disable-align-grad-reduce
disable-flight-recorder-dump-on-timeout disable-flight-recorder-extra-dump-on-exec
disable-flight-recorder-include-only-active dist-ckpt-workers exit-signal-handler-for-training
flight-recorder-dump-path flight-recorder-include-stack-trace flight-recorder-trace-buffer-size
fused-residual-rmsnorm hybrid-layer-pattern inference-disable-triton-nvls-kernels
inference-dynamic-batching-mamba-memory-ratio inference-dynamic-batching-prefix-caching
inference-dynamic-batching-prefix-caching-coordinator-policy
inference-dynamic-batching-prefix-caching-eviction-policy
inference-dynamic-batching-prefix-caching-mamba-gb
inference-dynamic-batching-prefix-caching-routing-alpha
inference-dynamic-batching-track-generated-token-events inference-grouped-gemm-backend
inference-moe-disable-fused-quant-kernels inference-text-gen-server-logging
inference-use-synchronous-zmq-collectives lion-beta1 lion-beta2 mamba-inference-conv-states-dtype
mamba-inference-ssm-states-dtype megatron-fsdp-grad-comm-dtype megatron-fsdp-main-grads-dtype
megatron-fsdp-main-params-dtype mla-down-proj-fusion moe-hybridep-num-blocks-permute
moe-hybridep-num-blocks-unpermute moe-permute-fusion-into-hybridep moe-router-force-biased
mtp-hybrid-override-pattern mtp-use-repeated-layer muon-coefficient-type muon-scalar-optimizer
mup-attn-scale-power mup-base-head-dim mup-base-hidden-size mup-embedding-mult mup-output-mult
mup-width-mult no-flight-recorder-dump-on-timeout no-flight-recorder-extra-dump-on-exec
no-flight-recorder-include-only-active num-speculative-tokens optimizer-cuda-graph
pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra pytorch-profiler-collect-shapes
rl-inference-parsers rl-kv-cache-management-mode rl-persist-cuda-graphs
tokenizer-hf-no-include-special-tokens tokenizer-hf-no-use-fast use-mup verify-integrity
""",
    "0.18.2": """
async-ckpt-use-cpu-shm chat-template cuda-graph-modules
disable-ckpt-load-validate-sharding-integrity disable-pad-vocab-size
disable-tokenizer-sentencepiece-ignore-extra-whitespaces enable-msc eval-global-batch-size
eval-micro-batch-size fault-injector-delay-start-iteration fault-injector-fault-delay
fault-injector-fault-probabilities fault-injector-fault-types fault-injector-mtti-seconds
fault-injector-num-ranks fault-injector-offset-seconds fault-injector-ranks fault-injector-seed
fine-grained-offloading-max-inflight-offloads fp8-output-proj gpu-sniff-test-interval
high-priority-a2a-comm-stream inference-cuda-graph-all-prefills inference-cuda-graph-scope
inference-disable-ep-consensus inference-dynamic-batching-sampling-backend
inference-moe-token-dispatcher-type megatron-fsdp-enable-fine-grained-param-gather
mlp-chunks-for-training moe-expert-rank-capacity-factor moe-hybridep-num-sms-preprocessing
moe-mlp-glu-interleave-size moe-paged-stash moe-paged-stash-buffer-size-factor-cpu
moe-paged-stash-buffer-size-factor-cuda moe-paged-stash-page-size moe-single-grouped-bias
moe-single-grouped-weight muon-nesterov no-ckpt-load-validate-sharding-integrity no-pad-vocab-size
no-tokenizer-sentencepiece-ignore-extra-whitespaces no-use-layer-wise-param-layout
null-tokenizer-eod-id null-tokenizer-pad-id nvtx-ranges
overlap-dispatch-backward-with-experts-wgrad record-shapes save-activations-interval
save-params-interval save-tokens-per-expert-interval start-eval-at-iter step-batch-size-schedule
use-grouped-gemm-for-dense-mlp use-transformer-engine-op-fuser validation-set-names
""",
    "0.19.0": """
activation-offload-fraction dataloader-inter-document-masking delay-offload-until-cuda-graph
delta-offload-bytes-across-pp-ranks disable-dsa-indexer-rotate-activation
disable-dsa-indexer-scoring-relu disable-stream-ckpt-dequant dsa-indexer-k-norm-epsilon
dsa-indexer-k-norm-fp32 dsa-indexer-rope-interleaved dsa-indexer-skip-topk-offset
dsa-indexer-topk-freq dsa-kernel-backend expert-tensor-parallel-num-weight-shards
flash-attention-version freeze-all-layers fsdp-db-use-persist-buf-on-alloc-fail
inference-cuda-graph-max-tokens inference-dynamic-batching-async-sched-mode
inference-dynamic-batching-cuda-graph-sizing-distribution inference-dynamic-batching-logprobs-mode
inference-shards logits-load-decode-threads logits-load-dir logits-load-ignore-errors
logits-load-kd-loss-alpha logits-load-msc-prefetch-depth logits-load-prefetch-factor
logits-save-dir logits-save-dtype logits-save-top-k logits-save-top-p logits-save-top-p-min-k
mamba-training-ssm-states-dtype megatron-fsdp-max-pool-double-buffer moe-flex-dispatcher-num-sms
moe-hybridep-pad-uneven-dispatch-inputs moe-ncclep-static-shape moe-ncclep-zero-copy
moe-router-quantile-balancing-ema
moe-routing-trace-capture-hidden-states moe-routing-trace-capture-logits
moe-routing-trace-dump-weights moe-routing-trace-max-training-iters moe-routing-trace-path
moe-shared-expert-glu-interleave-size mtp-detach-heads no-dsa-indexer-rotate-activation
no-dsa-indexer-scoring-relu no-stream-ckpt-dequant no-yarn-correction-range-round-to-int
override-ckpt-iteration rl-consumption-granularity rl-generation-lag rl-profile rl-profile-dir
rl-submission-granularity tensor-parallel-num-weight-shards use-grouped-gemm-for-shared-expert
use-same-sampling-seed-across-dp-ranks yarn-beta-fast yarn-beta-slow
yarn-correction-range-round-to-int yarn-original-max-position-embeddings
""",
    "main": """
attention-latent-norm-epsilon ckpt-drop-redundant-extra-state ckpt-pg-tensors-cache-path
csa-compress-ratios csa-compress-rotary-base csa-window-size determinism-trace-device-hashes
determinism-trace-dir determinism-trace-end-iteration determinism-trace-flush-interval
determinism-trace-interval determinism-trace-max-events-per-rank determinism-trace-ops
determinism-trace-optimizer-state determinism-trace-rank-spec determinism-trace-start-iteration
determinism-trace-summary-only determinism-trace-tensor-hashes disable-save-tokenizer-assets
enable-hyper-connections expert-data-parallel-sharding-strategy expert-outer-dp-sharding-strategy
freeze-base-model-for-mtp gtp-expert-remat-nccl-ub gtp-remat-nccl-ub
gtp-remat-reduce-scatter-with-fp32-accumulation hfsdp-param-gather-overlap
inference-dynamic-batching-allow-stale-multimodal-embeddings
inference-dynamic-batching-media-cache-coordinator-policy
inference-dynamic-batching-media-cache-routing-weight
inference-dynamic-batching-prefix-cache-ttl-seconds
inference-dynamic-batching-vision-embedding-cache-max-bytes log-per-layer-resource-usage
log-per-layer-resource-usage-interval megatron-fsdp-version mhc-init-gating-factor
mhc-recompute-layer-num mhc-sinkhorn-iterations moe-n-hash-layers moe-shortcut-connection
moe-use-norm-before-up-proj mtp-hsm muon-use-syrk no-save-tokenizer-assets num-residual-streams
original-max-position-embeddings otel-enabled otel-service-name otel-span-groups output-logit-dtype
output-projection-groups output-projection-lora-rank refit-execution-batch-bytes
rl-durable-rollout-bank rl-max-inflight-requests rl-rollout-bank-dir rl-rollout-bank-max-bytes
sequence-packing-scheduler sft-mock-dataset-config-json use-fused-mhc use-varlen-dataset
varlen-mock-dataset-config-json varlen-sbhd-validation
""",
}
# Argument -> values that came after it, and the release that has them.
VALUES = {
    "cross-entropy-fusion-impl": {"linear": MAIN},
    "cuda-graph-impl": {"full_iteration": "0.18.2"},
    "experimental-attention-variant": {"dsv4_hybrid": MAIN},
    "moe-router-load-balancing-type": {"quantile_balancing": "0.19.0"},
    "moe-router-score-function": {"sqrtsoftplus": "0.18.2"},
    "muon-tp-mode": {"auto": MAIN},
    "optimizer": {"lion": "0.17.1", "adaptive_muon": "0.18.2", "soap": "0.18.2"},
    "position-embedding-type": {"yarn": "0.18.2"},
}
# Key -> its default before a release, and that release.
DEFAULTS: Mapping[str, tuple[str, Value]] = {
    "data_parallel_sharding_strategy": ("0.18.2", "no_shard"),
    "moe_deepep_num_sms": ("0.19.0", 20),
    "moe_hybridep_num_sms": ("0.17.1", 16),
    "muon_tp_mode": (MAIN, "blockwise"),
    "use_layer_wise_param_layout": ("0.18.2", False),
}
# Arguments that go together since a release (`validate_args`).
TOGETHER: tuple[tuple[tuple[str, Value], tuple[str, Value], str], ...] = (
    (("optimizer", "muon"), ("use_distributed_optimizer", True), "0.18.2"),
    (("optimizer", "muon"), ("overlap_grad_reduce", True), "0.18.2"),
)


class Lacking(NamedTuple):
    """An argument that a release lacks, perhaps with a value. since: the release that has it."""

    argument: str
    since: str

    def __str__(self) -> str:
        where = f"the {MAIN} branch after {CORES[0]}" if self.since == MAIN else self.since
        return f"{self.argument}, which {where} has"


def core_named(text: str) -> str:
    """Return the release that `megatron@0.17` or `megatron@0.17.1` names; empty of `megatron`.

    Raises
    ------
    UsageError: it is none of those that were read.
    """
    _, at, asked = text.partition("@")
    if not at:
        return ""
    found = [core for core in CORES if asked and f"{core}.".startswith(f"{asked}.")]
    if not found:
        known = ", ".join(f"megatron@{core}" for core in CORES)
        raise UsageError(f"FORMAT: found {text!r}, expected megatron, or {known}")
    return found[0]


@cache
def _since() -> Mapping[str, str]:
    """Return the release that has an argument first."""
    return {name: release for release, names in SINCE.items() for name in names.split()}


def after(since: str, core: str) -> bool:
    """Tell whether a release, or the main branch, is later than another."""
    return ORDER.index(since) > ORDER.index(core)


def lacking(values: Mapping[str, Value], core: str) -> Lacking | None:
    """Return the argument, or its value, that came last of those that a release has not; None: it
    has all. values: by key."""
    found = [*_lacking(values, core)]
    return max(found, key=lambda one: ORDER.index(one.since)) if found else None


def _lacking(values: Mapping[str, Value], core: str) -> Iterator[Lacking]:
    for key, value in values.items():
        words = write_value(key, value)
        if not words:
            continue
        known = {flag.name: _since().get(flag.name, CORES[-1]) for flag in flags_by_key()[key]}
        name = words[0].removeprefix("--")
        if all(after(since, core) for since in known.values()):
            yield Lacking(words[0], known[name])
        for word in words[1:]:
            since = VALUES.get(name, {}).get(word, CORES[-1])
            if after(since, core):
                yield Lacking(f"{words[0]} {word}", since)
    for one, other, since in TOGETHER:
        if after(since, core) and all(values.get(key) == value for key, value in (one, other)):
            both = " ".join(" ".join(write_value(*each)) for each in (one, other))
            yield Lacking(both, since)


def read_for(values: Mapping[str, Value], core: str, source: str) -> dict[str, Value]:
    """Return the arguments of a launch of a release, with its defaults where they are no longer
    today's.

    Raises
    ------
    SpecError: an argument that the release lacks.
    """
    if found := lacking(values, core):
        raise SpecError(f"{source}: found {found}, expected arguments of Megatron-Core {core}")
    return {**defaults_of(core), **values}


def defaults_of(core: str) -> dict[str, Value]:
    """Return the defaults of a release that are no longer today's."""
    return {key: value for key, (until, value) in DEFAULTS.items() if after(until, core)}
