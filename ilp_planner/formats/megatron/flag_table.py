"""The arguments of Megatron-LM's `pretrain_gpt.py`: names, types, numbers of values, defaults.

Facts from `megatron/training/arguments.py` and the dataclasses that it makes arguments of
(`TransformerConfig`, `ModelParallelConfig` and those of `megatron/training/config`), read in 2026.

Notation, entries separated by blanks: `name` is a switch; `name!key` a switch that turns `key` off;
`~name` a switch that is on, turned off by `--no-name` and `--disable-name`; `name?` has `--no-name`
beside it; `name:int=1` takes a value with this default; `:str+`, `:str*`, `:int^3` take one or
more, any number, three; `{a|b}` are the values allowed; `>key` names the key if it is not the name
with underscores. `pattern` is a number or a list such as `([0]*3+[1]*5)`, `sizes` is `1,2`. A line
that ends in `|` goes on in the next one.
"""

MODEL = """
num-layers:int encoder-num-layers:int decoder-num-layers:int hidden-size:int ffn-hidden-size:int
num-attention-heads:int kv-channels:int group-query-attention num-query-groups:int=1
max-position-embeddings:int seq-length:int encoder-seq-length:int decoder-seq-length:int
position-embedding-type:str=learned_absolute{learned_absolute|rope|yarn|mrope|relative|none}
use-rotary-position-embeddings no-position-embedding!add_position_embedding
rotary-base:int=10000 rotary-percent:float=1.0 rotary-seq-len-interpolation-factor:int
rotary-interleaved use-rope-scaling rope-scaling-factor:float=8.0 rope-type:str{rope|yarn}
no-rope-freq:pattern mrope-section:int+ relative-attention-num-buckets:int=32
relative-attention-max-distance:int=128 yarn-original-max-position-embeddings:int
yarn-beta-fast:float yarn-beta-slow:float yarn-correction-range-round-to-int
no-yarn-correction-range-round-to-int!yarn_correction_range_round_to_int
window-size:sizes window-attn-skip-freq:pattern
make-vocab-size-divisible-by:int=128 untie-embeddings-and-output-weights
swiglu squared-relu quick-geglu openai-gelu glu-linear-offset:float=0.0
activation-func-clamp-value:float onnx-safe:str bert-no-binary-head!bert_binary_head
normalization:str=LayerNorm{LayerNorm|RMSNorm} norm-epsilon:float=1e-05>layernorm_epsilon
apply-layernorm-1p>layernorm_zero_centered_gamma disable-bias-linear!add_bias_linear add-qkv-bias
hidden-dropout:float=0.1 attention-dropout:float=0.1 fp32-residual-connection
apply-residual-connection-post-layernorm softmax-type:str=vanilla{vanilla|off-by-one|learnable}
qk-layernorm qk-l2-norm qk-clip qk-clip-alpha:float=0.5 qk-clip-threshold:float=100
attention-output-gate calculate-per-token-loss apply-query-key-layer-scaling
init-method-std:float=0.02 embedding-init-method-std:float init-method-xavier-uniform
init-model-with-meta-device no-initialization!perform_initialization use-cpu-initialization
use-mup mup-width-mult:float=1.0 mup-base-hidden-size:int mup-embedding-mult:float=1.0
mup-output-mult:float=1.0 mup-base-head-dim:float mup-attn-scale-power:float=1.0
mtp-num-layers:int mtp-loss-scaling-factor:float=0.1 mtp-use-repeated-layer mtp-detach-heads
mtp-hybrid-override-pattern:str mtp-hsm freeze-base-model-for-mtp
multi-latent-attention q-lora-rank:int kv-lora-rank:int=32 qk-head-dim:int=128
qk-pos-emb-head-dim:int=64 v-head-dim:int=128 attention-latent-norm-epsilon:float
rotary-scaling-factor:float=1.0 original-max-position-embeddings:int=4096 mscale:float=1.0
mscale-all-dim:float=0.0 output-projection-groups:int=8 output-projection-lora-rank:int=1024
cache-mla-latents mla-down-proj-fusion
experimental-attention-variant:str{gated_delta_net|dsa|dsv4_hybrid} linear-attention-freq:pattern
linear-conv-kernel-dim:int=4 linear-key-head-dim:int=128 linear-value-head-dim:int=128
linear-num-key-heads:int=16 linear-num-value-heads:int=32 csa-compress-ratios:pattern
csa-window-size:int=128 csa-compress-rotary-base:float dsa-indexer-n-heads:int
dsa-indexer-head-dim:int dsa-indexer-topk:int dsa-indexer-loss-coeff:float
dsa-indexer-topk-freq:int=1 dsa-indexer-skip-topk-offset:int=0 dsa-indexer-k-norm-epsilon:float
dsa-indexer-k-norm-fp32 dsa-indexer-rope-interleaved ~dsa-indexer-rotate-activation
~dsa-indexer-scoring-relu dsa-kernel-backend:str=none{cudnn|none|tilelang}
dsa-indexer-use-sparse-loss enable-hyper-connections num-residual-streams:int=4
mhc-sinkhorn-iterations:int=20 mhc-init-gating-factor:float=0.01 use-fused-mhc
mhc-recompute-layer-num:int
is-hybrid-model hybrid-layer-pattern:str hybrid-override-pattern:str mamba-state-dim:int=128
mamba-head-dim:int=64 mamba-num-groups:int=8 mamba-num-heads:int
disable-mamba-mem-eff-path!use_mamba_mem_eff_path mlp-chunks-for-prefill:int=1
mlp-chunks-for-training:int=1 heterogeneous-layers-config-path:str
heterogeneous-layers-config-encoded-json:str spec:str* yaml-cfg:str enable-experimental
"""

EXPERTS = """
moe-ncclep-static-shape moe-ncclep-zero-copy
num-experts:int moe-layer-freq:pattern=1 moe-ffn-hidden-size:int moe-router-topk:int=2
moe-shared-expert-intermediate-size:int moe-shared-expert-gate moe-shared-expert-overlap
moe-router-load-balancing-type:str+{aux_loss|seq_aux_loss|global_aux_loss|sinkhorn|
quantile_balancing|none}
moe-aux-loss-coeff:float+ moe-z-loss-coeff:float moe-input-jitter-eps:float
moe-router-num-groups:int moe-router-group-topk:int moe-router-pre-softmax
moe-router-topk-scaling-factor:float moe-router-dtype:str{fp32|fp64} moe-router-fusion
moe-router-score-function:str=softmax{softmax|sigmoid|sqrtsoftplus}
moe-router-enable-expert-bias moe-router-bias-update-rate:float=0.001
moe-router-force-load-balancing moe-router-force-biased:float moe-enable-routing-replay
moe-router-padding-for-quantization moe-router-padding-for-fp8
moe-grouped-gemm moe-single-grouped-weight moe-single-grouped-bias use-grouped-gemm-for-dense-mlp
moe-token-dispatcher-type:str=allgather{allgather|alltoall|flex} moe-enable-deepep
moe-flex-dispatcher-backend:str=deepep{deepep|hybridep} moe-permute-fusion-into-hybridep
moe-flex-dispatcher-num-sms:int moe-hybridep-pad-uneven-dispatch-inputs
moe-router-quantile-balancing-ema:float=0.0 moe-shared-expert-glu-interleave-size:int
use-grouped-gemm-for-shared-expert
moe-deepep-num-sms:int=20 moe-hybridep-num-sms:int moe-hybridep-num-blocks-permute:int
moe-hybridep-num-blocks-unpermute:int moe-hybridep-num-sms-preprocessing:int=108
moe-expert-capacity-factor:float moe-pad-expert-input-to-capacity
moe-pad-experts-for-cuda-graph-inference moe-expert-rank-capacity-factor:float
moe-token-drop-policy:str=probs{probs|position} moe-layer-recompute moe-permute-fusion
moe-apply-probs-on-input moe-latent-size:int moe-use-norm-before-up-proj moe-per-layer-logging
moe-mlp-glu-interleave-size:int moe-paged-stash moe-paged-stash-page-size:int=64
moe-paged-stash-buffer-size-factor-cuda:float=1.1 moe-paged-stash-buffer-size-factor-cpu:float=0.0
moe-shortcut-connection moe-n-hash-layers:int moe-use-upcycling moe-upcycling-granularity:int=1
"""

PARALLEL = """
tensor-model-parallel-size:int=1 pipeline-model-parallel-size:int=1 context-parallel-size:int=1
expert-model-parallel-size:int=1 expert-tensor-parallel-size:int sequence-parallel
tensor-parallel-num-weight-shards:int expert-tensor-parallel-num-weight-shards:int
hierarchical-context-parallel-sizes:int+ cp-comm-type:str+ hybrid-context-parallel
max-seqlen-per-dp-cp-rank:int sequence-packing-scheduler:str{dp_balanced}
use-tp-pp-dp-mapping fake-process-group
decoder-first-pipeline-num-layers:int decoder-last-pipeline-num-layers:int
account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split
pipeline-model-parallel-layout:str num-layers-per-virtual-pipeline-stage:int
num-virtual-stages-per-pipeline-rank:int no-overlap-p2p-communication!overlap_p2p_comm
overlap-p2p-communication-warmup-flush>overlap_p2p_comm_warmup_flush
microbatch-group-size-per-virtual-pipeline-stage:int>microbatch_group_size_per_vp_stage
pipeline-model-parallel-comm-backend:str{nccl|ucc} use-ring-exchange-p2p mtp-standalone
defer-embedding-wgrad-compute wgrad-deferral-limit:int=0 delay-wgrad-compute
overlap-moe-expert-parallel-comm overlap-dispatch-backward-with-experts-wgrad
ep-overlap-early-attn-memory-release high-priority-a2a-comm-stream
tp-comm-overlap tp-comm-overlap-cfg:str tp-comm-overlap-rs-dgrad ~tp-comm-bulk-wgrad
~tp-comm-bulk-dgrad ~tp-comm-overlap-ag ~tp-comm-overlap-rs ~tp-comm-split-ag ~tp-comm-split-rs
tp-comm-bootstrap-backend:str=nccl{nccl|mpi|gloo} symmetric-ar-type:str
model-parallel-size:int
overlap-grad-reduce overlap-param-gather overlap-param-gather-with-optimizer-step
no-align-param-gather!align_param_gather ~align-grad-reduce use-distributed-optimizer
num-distributed-optimizer-instances:int=1 create-all-gather-group
no-use-layer-wise-param-layout!use_layer_wise_param_layout
ddp-num-buckets:int ddp-bucket-size:int ddp-pad-buckets-for-high-nccl-busbw
ddp-reduce-scatter-with-fp32-accumulation gtp-remat-reduce-scatter-with-fp32-accumulation
ddp-param-name-patterns-for-fp32-local-accumulation:str+ ddp-average-in-collective
use-nccl-ub>nccl_ub disable-symmetric-registration gtp-remat-nccl-ub gtp-expert-remat-nccl-ub
no-gradient-reduce-div-fusion!gradient_reduce_div_fusion
use-megatron-fsdp megatron-fsdp-version:int=1{1|2} use-torch-fsdp2
torch-fsdp2-no-reshard-after-forward!torch_fsdp2_reshard_after_forward
data-parallel-sharding-strategy:str=optim_grads_params{no_shard|optim|optim_grads|
optim_grads_params}
expert-data-parallel-sharding-strategy:str{no_shard|optim|optim_grads|optim_grads_params}
outer-dp-sharding-strategy:str=no_shard{no_shard|optim}
expert-outer-dp-sharding-strategy:str=no_shard{no_shard|optim} hfsdp-param-gather-overlap
fsdp-manual-registration fsdp-double-buffer fsdp-db-use-persist-buf-on-alloc-fail
suggested-communication-unit-size:int keep-fp8-transpose-cache enable-full-sharding-in-hsdp
megatron-fsdp-main-params-dtype:str=fp32{fp32|bf16|fp16|auto}
megatron-fsdp-main-grads-dtype:str=auto{fp32|bf16|fp16|auto}
megatron-fsdp-grad-comm-dtype:str=auto{fp32|bf16|fp16|auto}
megatron-fsdp-enable-fine-grained-param-gather megatron-fsdp-max-pool-double-buffer
distributed-backend:str=nccl{nccl|gloo} distributed-timeout-minutes:int=10
distributed-timeout-seconds-after-init:int local-rank:int=0 lazy-mpu-init
nccl-communicator-config-path:str disable-gloo-process-groups!use_gloo_process_groups use-sharp
sharp-enabled-group:str{dp|dp_replica} high-priority-stream-groups:str+ disable-jit-fuser
flight-recorder-dump-path:str flight-recorder-trace-buffer-size:int=2000
~flight-recorder-dump-on-timeout flight-recorder-include-stack-trace
~flight-recorder-include-only-active ~flight-recorder-extra-dump-on-exec
"""

MEMORY = """
recompute-activations recompute-granularity:str{full|selective}
recompute-method:str{uniform|block} recompute-num-layers:int recompute-modules:str+
distribute-saved-activations checkpoint-activations cpu-offloading-num-layers:int=0
cpu-offloading-retain-pinned-cpu-buffers fine-grained-activation-offloading offload-modules:str+
activation-offload-fraction:float=1.0 delay-offload-until-cuda-graph
delta-offload-bytes-across-pp-ranks:int=0
min-offloaded-tensor-size:int=1048576 fine-grained-offloading-max-inflight-offloads:int
optimizer-cpu-offload optimizer-offload-fraction:float=1.0 use-torch-optimizer-for-cpu-offload
overlap-cpu-optimizer-d2h-h2d no-pin-cpu-grads!pin_cpu_grads no-pin-cpu-params!pin_cpu_params
empty-unused-memory-level:int=0{0|1|2} ~clone-scatter-output-in-embedding
"""

PRECISION = """
bf16 fp16 fp8-format:str{e4m3|hybrid}>fp8
fp8-recipe:str=delayed{tensorwise|delayed|mxfp8|blockwise|custom}
fp8-quantizer-factory:str fp8-margin:int=0 fp8-interval:int=1 fp8-amax-history-len:int=1
fp8-amax-compute-algo:str=most_recent{most_recent|max} ~fp8-wgrad fp8-output-proj fp8-param-gather
fp4-format:str{e2m1}>fp4 fp4-recipe:str=nvfp4{nvfp4|custom} fp4-quantizer-factory:str
fp4-param-gather first-last-layers-bf16 num-layers-at-start-in-bf16:int=1
num-layers-at-end-in-bf16:int=1 te-precision-config-file:str reuse-grad-buf-for-mxfp8-param-ag
disable-bf16-reduced-precision-matmul grad-reduce-in-bf16 accumulate-allreduce-grads-in-fp32
attention-softmax-in-fp32 fp16-lm-cross-entropy output-logit-dtype:str{bf16|fp32}>logit_dtype
loss-scale:float initial-loss-scale:float=4294967296 min-loss-scale:float=1.0
loss-scale-window:float=1000 hysteresis:int=2 mamba-training-ssm-states-dtype:str{fp32|bf16}
use-precision-aware-optimizer main-grads-dtype:str=fp32{fp32|bf16}
main-params-dtype:str=fp32{fp32|fp16} exp-avg-dtype:str=fp32{fp32|fp16|bf16|fp8}
exp-avg-sq-dtype:str=fp32{fp32|fp16|bf16|fp8} deterministic-mode batch-invariant-mode
use-kitchen-attention kitchen-attention-backend:str=sdpa{sdpa|fa} kitchen-config-file:str
kitchen-recipe-number:int
"""

KERNELS = """
transformer-impl:str=transformer_engine{local|transformer_engine|inference_optimized}
attention-backend:str=auto{flash|fused|unfused|local|auto} use-flash-attn use-mcore-models
flash-attention-version:str{2|3|4}
no-masked-softmax-fusion!masked_softmax_fusion no-bias-gelu-fusion!bias_gelu_fusion
no-bias-swiglu-fusion!bias_swiglu_fusion no-bias-dropout-fusion!bias_dropout_fusion
no-rope-fusion!apply_rope_fusion no-persist-layer-norm
no-gradient-accumulation-fusion!gradient_accumulation_fusion
cross-entropy-loss-fusion cross-entropy-fusion-impl:str=native{native|te|linear}
use-fused-weighted-squared-relu fused-residual-rmsnorm use-transformer-engine-op-fuser
use-te-activation-func te-rng-tracker inference-rng-tracker flash-decode
enable-cuda-graph external-cuda-graph
cuda-graph-impl:str=none{none|local|transformer_engine|full_iteration} cuda-graph-modules:str+
cuda-graph-scope:str+ cuda-graph-warmup-steps:int=3 optimizer-cuda-graph
inference-cuda-graph-scope:str{none|layer|block} config-logger-dir:str
nccl-all-reduce-for-prefill run-workload-inspector-server
"""

TRAINING = """
micro-batch-size:int global-batch-size:int batch-size:int rampup-batch-size:int^3
step-batch-size-schedule:str decrease-batch-size-if-needed train-iters:int train-samples:int
phase-transition-iterations:str exit-interval:int exit-duration-in-mins:int exit-signal-handler
exit-signal:str exit-signal-handler-for-dataloader exit-signal-handler-for-training
train-sync-interval:int manual-gc manual-gc-interval:int=0 ~manual-gc-eval iterations-to-skip:int+
check-weight-hash-across-dp-replicas-interval:int gpu-sniff-test-interval:int
no-check-for-nan-in-loss-and-grad!check_for_nan_in_loss_and_grad check-for-large-grads
check-for-spiky-loss result-rejected-tracker-filename:str determinism-trace-dir:str
determinism-trace-interval:int determinism-trace-start-iteration:int
determinism-trace-end-iteration:int determinism-trace-tensor-hashes determinism-trace-device-hashes
determinism-trace-summary-only determinism-trace-rank-spec:str
determinism-trace-flush-interval:int=1 determinism-trace-max-events-per-rank:int
determinism-trace-optimizer-state determinism-trace-ops
optimizer:str=adam{adam|sgd|muon|dist_muon|lion|soap|adaptive_muon} lr:float min-lr:float=0.0
lr-decay-style:str=linear{constant|linear|cosine|inverse-square-root|WSD}
lr-wsd-decay-style:str=exponential{exponential|linear|cosine|minus_sqrt} lr-decay-iters:int
lr-decay-samples:int lr-wsd-decay-iters:int lr-wsd-decay-samples:int lr-warmup-fraction:float
lr-warmup-iters:int=0 lr-warmup-samples:int=0 lr-warmup-init:float=0.0 warmup:int
decoupled-lr:float decoupled-min-lr:float freeze-all-layers
override-opt_param-scheduler>override_opt_param_scheduler override-opt-param-scheduler
use-checkpoint-opt_param-scheduler>use_checkpoint_opt_param_scheduler
use-checkpoint-opt-param-scheduler weight-decay:float=0.01 start-weight-decay:float
end-weight-decay:float weight-decay-incr-style:str=constant{constant|linear|cosine}
no-weight-decay-cond-type:str{apply_wd_to_qk_layernorm} apply-wd-to-qk-layernorm
clip-grad:float=1.0 adam-beta1:float=0.9 adam-beta2:float=0.999 adam-eps:float=1e-08
sgd-momentum:float=0.9 muon-momentum:float=0.9 muon-no-split-qkv!muon_split_qkv muon-nesterov
muon-scale-mode:str=spectral{spectral|unit_rms_norm|shape_scaling}
muon-fp32-matmul-prec:str=medium{low|medium|high} muon-coefficient-type:str=quintic
muon-num-ns-steps:int=5 muon-tp-mode:str=duplicated{blockwise|duplicated|distributed|auto}
muon-use-syrk muon-extra-scale-factor:float=1.0 muon-scalar-optimizer:str=adam{adam|lion}
lion-beta1:float=0.95 lion-beta2:float=0.98 dump-param-to-param-group-map:str
seed:int=1234 data-parallel-random-init
eval-iters:int=100 eval-interval:int start-eval-at-iter:int eval-global-batch-size:int
eval-micro-batch-size:int skip-train test-mode full-validation multiple-validation-sets
validation-set-names:str+
error-injection-rate:int=0 rerun-mode:str=validate_results{disabled|validate_results|report_stats}
error-injection-type:str=transient_error{correct_result|transient_error|persistent_error}
"""

DATA = """
data-path:str* train-data-path:str* valid-data-path:str* test-data-path:str* data-args-path:str
per-split-data-args-path:str per-dataset-sequences-path:str split:str data-cache-path:str
dataloader-fast-cache-load dataloader-defer-npy-index-mmap no-mmap-bin-files!mmap_bin_files
mock-data sample-rate:float=1.0 mask-prob:float=0.15 short-seq-prob:float=0.1 num-workers:int=2
reset-position-ids reset-attention-mask dataloader-inter-document-masking eod-mask-loss
no-create-attention-mask-in-dataloader!create_attention_mask_in_dataloader
num-dataset-builder-threads:int=1 object-storage-cache-path:str
mid-level-dataset-surplus:float=0.005 allow-ambiguous-pad-tokens
dataloader-type:str{single|cyclic|external}
fim-data fim-rate:float=0.5 fim-spm-rate:float=0.5 fim-split-sample:str fim-fragment-rate:float
fim-no-prefix:str fim-prefix-token:str fim-middle-token:str fim-suffix-token:str fim-pad-token:str
fim-eod-token:str sft sft-tokenizer-prompt-format:str sft-mock-dataset-config-json:str
use-varlen-dataset varlen-sbhd-validation varlen-mock-dataset-config-json:str
vocab-size:int padded-vocab-size:int ~pad-vocab-size vocab-file:str merge-file:str
vocab-extra-ids:int=0 tokenizer-type:str tokenizer-model:str tokenizer-metadata:str>metadata_path
tokenizer-special-tokens:str+>special_tokens tiktoken-pattern:str{v1|v2}
tiktoken-num-special-tokens:int=1000 tokenizer-sentencepiece-legacy
~tokenizer-sentencepiece-ignore-extra-whitespaces tokenizer-hf-no-use-fast
tokenizer-hf-no-include-special-tokens trust-remote-code null-tokenizer-eod-id:int
null-tokenizer-pad-id:int=-1 chat-template:str enable-msc disable-msc
num-classes:int=1000 img-h:int=224 img-w:int=224 num-channels:int=3 patch-dim:int=16
classes-fraction:float=1.0 data-per-class-fraction:float=1.0 no-data-sharding!data_sharding
head-lr-mult:float=1.0 vision-pretraining vision-pretraining-type:str vision-backbone-type:str
swin-backbone-type:str mask-type:str mask-factor:float=1.0 iter-per-epoch:int=1250
dino-local-img-size:int=96 dino-local-crops-number:int=10 dino-head-hidden-size:int=2048
dino-bottleneck-size:int=256 dino-freeze-last-layer:float=1 dino-norm-last-layer
dino-warmup-teacher-temp:float=0.04 dino-teacher-temp:float=0.07
dino-warmup-teacher-temp-epochs:int=30
logits-save-top-k:int logits-save-top-p:float logits-save-top-p-min-k:int=1 logits-save-dir:str
logits-save-dtype:str=fp16{fp16|bf16|fp32} logits-load-dir:str logits-load-decode-threads:int=4
logits-load-prefetch-factor:int=3 logits-load-msc-prefetch-depth:int=2
logits-load-kd-loss-alpha:float=1.0 logits-load-ignore-errors
"""

CHECKPOINTS = """
save:str save-interval:int persistent-save-interval:int>save_interval save-params-interval:int
save-activations-interval:int save-tokens-per-expert-interval:int save-wgrads-interval:int
save-dgrads-interval:int save-retain-interval:int no-save-optim no-save-rng load:str
no-load-optim no-load-rng load-main-params-from-ckpt non-persistent-save-interval:int
non-persistent-ckpt-type:str{global|local|in_memory} non-persistent-global-ckpt-dir:str
non-persistent-local-ckpt-dir:str
non-persistent-local-ckpt-algo:str=fully_parallel{fully_parallel|atomic} finetune
pretrained-checkpoint:str ckpt-step:int use-checkpoint-args use-mp-args-from-checkpoint-args
~use-tokenizer-model-from-checkpoint-args exit-on-missing-checkpoint override-ckpt-iteration:int
ckpt-format:str=torch_dist{torch|torch_dist|torch_dcp|fsdp_dtensor} auto-detect-ckpt-format
ckpt-convert-format:str{torch|torch_dist} ckpt-convert-save:str
ckpt-convert-update-legacy-dist-opt-format no-ckpt-fully-parallel-save!ckpt_fully_parallel_save
ckpt-fully-parallel-save ckpt-fully-parallel-load async-save async-strategy:str=nvrx{nvrx|mcore}
use-persistent-ckpt-worker async-ckpt-cpu-priority:int=10 async-ckpt-io-priority:int=3
async-ckpt-use-cpu-shm
ckpt-fully-parallel-load-exchange-algo:str=broadcast{broadcast|gather_rounds|gather_object}
ckpt-fully-parallel-save-process-group:str=dp{dp|ep_dp}
ckpt-fully-parallel-load-process-group:str=dp{dp|ep_dp} ~stream-ckpt-dequant
ckpt-assume-constant-structure
ckpt-pg-tensors-cache-path:str ~ckpt-load-validate-sharding-integrity ~strict-fsdp-dtensor-load
dist-ckpt-strictness:str=assume_ok_unexpected dist-ckpt-save-pre-mcore-014
dist-ckpt-optim-fully-reshardable distrib-optim-fully-reshardable-mem-efficient
~save-tokenizer-assets replication replication-jump:int replication-factor:int=2 verify-integrity
use-dist-ckpt dist-ckpt-format:str dist-ckpt-workers:int=1 ckpt-drop-redundant-extra-state
adlr-autoresume adlr-autoresume-interval:int=1000
"""

LOGGING = """
log-interval:int=100 log-params-norm log-throughput log-progress moe-routing-trace-path:str
moe-routing-trace-max-training-iters:int moe-routing-trace-dump-weights
moe-routing-trace-capture-logits moe-routing-trace-capture-hidden-states
timing-log-level:int=0{0|1|2} timing-log-option:str=minmax{max|minmax|all} tensorboard-dir:str
tensorboard-log-interval:int=1 tensorboard-queue-size:int=1000 log-timers-to-tensorboard
~log-loss-scale-to-tensorboard log-validation-ppl-to-tensorboard log-memory-to-tensorboard
log-memory-interval:int log-device-memory-used log-num-zeros-in-grad log-max-attention-logit
no-barrier-with-level-1-timing!barrier_with_L1_time log-world-size-to-tensorboard
wandb-project:str wandb-exp-name:str wandb-save-dir:str wandb-entity:str logging-level:int
log-energy log-per-layer-resource-usage log-per-layer-resource-usage-interval:int
profile use-nsys-profiler>profile profile-step-start:int=10 profile-step-end:int=12
use-pytorch-profiler pytorch-profiler-collect-shapes pytorch-profiler-collect-callstack
pytorch-profiler-collect-chakra profile-ranks:int+ record-memory-history memory-snapshot-path:str
record-shapes nvtx-ranges log-straggler straggler-ctrlr-port:int=65535 straggler-minmax-count:int=1
disable-straggler-on-startup otel-enabled otel-service-name:str otel-span-groups:str
no-one-logger!enable_one_logger one-logger-project:str one-logger-run-name:str one-logger-async
app-tag-run-name:str app-tag-run-version:str
inprocess-restart inprocess-max-iterations:int inprocess-monitor-thread-interval:float=1.0
inprocess-monitor-process-interval:float=1.0 inprocess-progress-watchdog-interval:float=1.0
inprocess-heartbeat-interval:float=30 inprocess-soft-timeout:float=60
inprocess-hard-timeout:float=90 inprocess-heartbeat-timeout:float=60
inprocess-barrier-timeout:float=120 inprocess-completion-timeout:float=120
inprocess-last-call-wait:float=1 inprocess-termination-grace-time:float=1
inprocess-granularity:str=node{node|rank} inprocess-active-world-size:int
inprocess-empty-cuda-cache enable-ft-package calc-ft-timeouts ft-num-warmup-iters:int=5
fault-injector-ranks:str fault-injector-num-ranks:int fault-injector-fault-types:str
fault-injector-fault-probabilities:str fault-injector-fault-delay:float
fault-injector-delay-start-iteration:int fault-injector-mtti-seconds:float
fault-injector-offset-seconds:float fault-injector-seed:int
"""

INFERENCE = """
inference-batch-times-seqlen-threshold:int=-1 max-tokens-to-oom:int=12000 output-bert-embeddings
bert-embedder-type:str=megatron{megatron|huggingface} use-legacy-static-engine
inference-max-requests:int=8 inference-max-seq-length:int=2560 inference-dynamic-batching
inference-dynamic-batching-buffer-size-gb:float=40
inference-dynamic-batching-paused-buffer-size-gb:float
inference-dynamic-batching-mamba-memory-ratio:float inference-dynamic-batching-block-size:int=256
inference-dynamic-batching-max-requests:int inference-dynamic-batching-max-tokens:int
inference-dynamic-batching-num-cuda-graphs:int=16
inference-dynamic-batching-track-paused-request-events
inference-dynamic-batching-track-generated-token-events decode-only-cuda-graphs
inference-cuda-graph-all-prefills inference-cuda-graph-max-tokens:int=512
inference-dynamic-batching-unified-memory-level:int=0{0|1} enable-chunked-prefill
num-speculative-tokens:int=0 inference-dynamic-batching-prefix-caching?
inference-dynamic-batching-prefix-caching-eviction-policy:str=lru{ref_zero|lru}
inference-dynamic-batching-prefix-caching-coordinator-policy:str
inference-dynamic-batching-prefix-caching-routing-alpha:float=1.0
inference-dynamic-batching-prefix-cache-ttl-seconds:float=300
inference-dynamic-batching-media-cache-coordinator-policy:str
inference-dynamic-batching-media-cache-routing-weight:float=1.0
inference-dynamic-batching-vision-embedding-cache-max-bytes:int=0
inference-dynamic-batching-allow-stale-multimodal-embeddings
inference-dynamic-batching-prefix-caching-mamba-gb:float
inference-dynamic-batching-cuda-graph-mixed-prefill-count:int=16
inference-dynamic-batching-cuda-graph-sizing-distribution:str
inference-dynamic-batching-sampling-backend:str=torch{torch|flashinfer}
use-same-sampling-seed-across-dp-ranks!offset_sampling_seed_by_dp_rank
inference-dynamic-batching-async-sched-mode:str=async{async|legacy}
inference-dynamic-batching-logprobs-mode:str inference-logging-step-interval:int=0
inference-text-gen-server-logging? inference-wandb-logging? inference-coordinator-port:int
mamba-inference-conv-states-dtype:str=bf16{bf16|fp16|fp32}
mamba-inference-ssm-states-dtype:str=bf16{bf16|fp16|fp32}
inference-use-synchronous-zmq-collectives? inference-disable-ep-consensus? inference-shards:str
inference-fuse-tp-communication inference-disable-triton-nvls-kernels
inference-grouped-gemm-backend:str=vllm{flashinfer|torch|vllm}
inference-moe-disable-fused-quant-kernels inference-moe-token-dispatcher-type:str=nvls{nccl|nvls}
perform-rl-step rl-prompts-per-eval:int=32 grpo-prompts-per-step:int=32 grpo-group-size:int=2
grpo-iterations:int=2 grpo-clamp-eps-lower:float=0.01 grpo-clamp-eps-upper:float=0.01
grpo-kl-beta:float=0.001 grpo-entropy-term-weight:float=0.0 grpo-filter-groups-with-same-reward
rl-generation-lag:float rl-max-inflight-requests:int rl-submission-granularity:str=B{R|G|B}
rl-consumption-granularity:str=B{R|G|B} rl-durable-rollout-bank rl-rollout-bank-dir:str
rl-rollout-bank-max-bytes:int=0 langrl-env-config:str rl-default-temperature:float=1.0
rl-default-top-p:float=0 rl-default-top-k:int=-1 rl-offload-optimizer-during-inference
rl-kv-cache-management-mode:str=persist{persist|offload|recompute} rl-persist-cuda-graphs?
rl-partial-rollouts? rl-inference-logprobs-is-correction?
rl-importance-sampling-truncation-coef:float rl-use-sequence-packing?
rl-sequence-packing-max-sequences-per-bin:int=50
rl-sequence-packing-algo:str=fifo{fifo|round-robin} rl-training-cuda-graphs?
rl-inference-tensor-model-parallel-size:int rl-inference-pipeline-model-parallel-size:int
rl-inference-expert-model-parallel-size:int rl-inference-expert-tensor-model-parallel-size:int
rl-inference-model-unified-memory-level:int=0{0|1} rl-offload-inference-model-weights-when-idle?
refit-method:str=gloo{nccl|nccl_m2n|gloo|nvshmem|nixl} refit-execution-batch-bytes:int
rl-verify-model-weights-swap? rl-skip-bos-token? rl-profile rl-profile-dir:str
rl-inference-parsers:str*
"""

# Of programs that train BERT, ICT and retrievers; `pretrain_gpt.py` takes them and reads none.
RETRIEVAL = """
ict-head-size:int biencoder-projection-dim:int=0 biencoder-shared-query-context-model bert-load:str
ict-load:str titles-data-path:str query-in-block-prob:float=0.1 use-one-sent-docs
evidence-data-path:str retriever-report-topk-accuracies:int+ retriever-score-scaling
block-data-path:str embedding-path:str indexer-batch-size:int=128 indexer-log-interval:int=1000
"""

TABLES = {
    "model": MODEL,
    "experts": EXPERTS,
    "parallel": PARALLEL,
    "memory": MEMORY,
    "precision": PRECISION,
    "kernels": KERNELS,
    "training": TRAINING,
    "data": DATA,
    "checkpoints": CHECKPOINTS,
    "logging": LOGGING,
    "inference": INFERENCE,
    "retrieval": RETRIEVAL,
}

# Arguments of earlier releases, and what to do instead.
LEFT_OUT = """
no-async-tensor-model-parallel-allreduce disable-async-tensor-model-parallel-allreduce
legacy-tokenizer ckpt-fully-parallel-save-deprecated delay-grad-reduce delay-param-gather
no-delay-grad-reduce data-impl DDP-impl
"""
REMOVED = {
    **dict.fromkeys(LEFT_OUT.split(), "leave it out"),
    "use-legacy-models": "leave it out: models of megatron-core are the only ones",
    "use-custom-fsdp": "use --use-megatron-fsdp",
    "moe-extended-tp": "use --expert-tensor-parallel-size",
    "moe-use-legacy-grouped-gemm": "use --moe-grouped-gemm",
    "standalone-embedding-stage": "use --pipeline-model-parallel-layout",
    "pipeline-model-parallel-split-rank": "leave it out: encoder-decoder models only",
    "encoder-tensor-model-parallel-size": "leave it out: encoder-decoder models only",
    "encoder-pipeline-model-parallel-size": "leave it out: encoder-decoder models only",
    "overlap-p2p-communication": "leave it out: it is the default",
    "fp32-allreduce": "use --accumulate-allreduce-grads-in-fp32",
    "distributed-timeout": "use --distributed-timeout-minutes",
    "lr-decay-ratio": "use --lr-decay-iters",
    "fp8-hybrid": "use --fp8-format hybrid",
    "fp8-e4m3": "use --fp8-format e4m3",
    "retro-project-dir": "leave it out: Retro models are no longer there",
    "retro-add-retriever": "leave it out: Retro models are no longer there",
    "model-type": "leave it out: the program (pretrain_gpt.py) says the kind of model",
}
