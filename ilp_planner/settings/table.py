"""The table of settings: of training jobs, and of the devices that plans use.

The options of commands, the keywords of Python, the tables of files, the axes of sweeps, the
records of saved plans and the searches of all runtimes are made of it: a new setting is a row here,
a field of `specs.training`, and the module that prices it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from ilp_planner.schedule.formulas import DIVIDED, PIPELINES
from ilp_planner.settings import labels, values
from ilp_planner.settings.base import (
    AS_ASKED,
    FIXED,
    FOLLOWS,
    LEFT_OUT,
    SEARCHED,
    Change,
    JobOption,
    Key,
    Search,
    Setting,
    Unasked,
    whole,
)
from ilp_planner.settings.domains import (
    CLOSED,
    SWITCH,
    Count,
    Counts,
    Degree,
    Layers,
    Nodes,
    Offloads,
    OneOf,
    Shares,
    Size,
    Stages,
    Together,
)
from ilp_planner.specs.lengths import BATCHINGS, FULL, GROUPED, JOINED, LONGEST, PACKED
from ilp_planner.specs.pipeline_layout import REMAINDERS
from ilp_planner.specs.training import (
    CP_COMMUNICATIONS,
    LIGER,
    MUON,
    MUON_MODES,
    OFFLOADED,
    OPERATORS,
    ORDERS,
    PARTS,
    RECOMPUTATIONS,
    SHARDINGS,
)
from ilp_planner.specs.tuning import (
    BRIDGE_ONLY,
    FROZEN,
    MOST_DROPOUT,
    OF_EACH,
    OF_EXPERTS,
    OF_SCANS,
    PEFT_ONLY,
    TARGETS,
    frozen_part,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.specs.training import Settings

MEGATRON, DEEPSPEED = ("megatron",), ("deepspeed",)
# Arguments of Megatron-LM that its own rules are about.
CP_COMM, DISPATCHER = "cp_comm_type", "moe_token_dispatcher_type"
GROUP_SIZE = "micro_batch_group_size"
LOSS_FUSION, SEQUENCE = "cross_entropy_loss_fusion", "sequence_parallel"
# Fields that readers of other systems' files name.
SHARED_FIELD, COMPILED_FIELD = "settings.optimizer.sharding", "settings.kernels.compiled"
FUSED_FIELD, LOSS_FIELD = "settings.kernels.fused_loss", "settings.kernels.loss_kernel"
FP8_FIELD = "settings.kernels.fp8_attention"
GROUPED_FIELD, GROUPED_PRODUCTS = "settings.kernels.grouped_experts", "moe_grouped_gemm"
MOMENTS_FIELD, FORMAT_FIELD = "settings.optimizer.moments", "settings.optimizer.moment_format"
TITAN, TITAN_022 = ("torchtitan",), ("torchtitan@0.2.2",)
TITANS = TITAN + TITAN_022
OTHERS = TITANS + DEEPSPEED
TUNERS = TITAN + DEEPSPEED  # whose jobs the export `peft` writes
# Products with adapters, in the names of Hugging Face and of Megatron-LM.
PEFT_EXAMPLE, BRIDGE_EXAMPLE = ("q_proj+v_proj",), ("linear_qkv+linear_proj",)
SCAN_EXAMPLE = ("+".join(OF_SCANS),)  # of both systems
BESIDE = ("lora", "16")  # the rank of adapters, where something else is said of them alone
BY_PEFT = "by PEFT and the Trainer, which the export `peft` writes for"
ON_SWITCH = "on, off or both; off without this option"
NO_SETTING = "it has no setting for it"
OF_FIGURES = "the figures are of Megatron-LM's kernels"
UNSAID = "no export says it"
NO_MUON = "plans have Adam"
KERNEL_OF_FIGURES = {
    "": Search(FIXED, ("yes",), remark=OF_FIGURES),
    "megatron": Search(FIXED, ("yes",)),
}
IMPORTED = "judged in imported plans, never tried"
DEFAULT = "Megatron-LM's default"
SHARES = ("0", "0.25", "0.5", "0.75", "1")  # of the optimizer's states

ROWS = (
    Setting(
        "inputs",
        title="inputs",
        fields=("model", "global_batch", "devices_per_node", "gpu_architecture"),
        search={"": Search(AS_ASKED, ("as given",))},
        asked_by=("model", "global_batch", "cluster", "gpus"),
    ),
    Setting(
        "tp",
        Degree(),
        "Tensor-parallel degree: 4, a list as 2,4 or a range as 2..8.",
        also=("tensor_model_parallel_size",),
        title="tp",
        fields=("tp",),
        remark="must divide heads, widths and samples",
        search={"": Search(SEARCHED, ("divisors of a node's devices",))},
    ),
    Setting(
        "pp",
        Degree(),
        "Pipeline stages, but for virtual ones; likewise.",
        also=("pipeline_model_parallel_size",),
        title="pp",
        fields=("pp",),
        remark="at most layers + 2",
        search={"": Search(SEARCHED, ("divisors of the devices",))},
    ),
    Setting(
        "cp",
        Degree(),
        "Context-parallel degree; likewise.",
        title="cp",
        remark="more with `max_cp`; 1 without flash attention",
        search={
            "": Search(SEARCHED, ("1 to 8",)),
            "deepspeed": Search(
                FIXED, ("1",), remark="it has no ring, only Ulysses, which divides heads"
            ),
        },
        of_degrees=True,
        keys=(
            Key(MEGATRON, "cp", "context_parallel_size"),
            Key(TITANS, "cp", "parallelism.context_parallel_degree"),
            Key(DEEPSPEED, "cp"),
        ),
        job_option=JobOption("cp"),
    ),
    Setting(
        "ep",
        Degree(),
        "Expert-parallel degree; likewise.",
        title="ep",
        remark="1 without experts",
        search={
            "": Search(SEARCHED, ("divisors of the experts",)),
            "deepspeed": Search(
                SEARCHED, ("divisors of the experts",), remark="without a pipeline alone"
            ),
        },
        label=labels.EP,
        of_degrees=True,
        keys=(
            Key(MEGATRON, "ep", "expert_model_parallel_size"),
            Key(TITANS, "ep", "parallelism.expert_parallel_degree"),
            Key(DEEPSPEED, "ep", "expert_parallel.autoep_size"),
        ),
        job_option=JobOption("ep"),
    ),
    Setting(
        "etp",
        title="tp of experts",
        remark="1 where experts have biases",
        search={
            "": Search(SEARCHED, ("1", "tp")),
            "torchtitan": Search(SEARCHED, ("1", "tp"), remark="1 with ep above 1, tp otherwise"),
            "torchtitan@0.2.2": Search(
                SEARCHED, ("1", "tp"), remark="1 or tp with ep above 1, tp otherwise"
            ),
            "deepspeed": Search(SEARCHED, ("1", "tp"), remark="1 with ep; tp in pipelines"),
        },
        label=labels.unusual(40, "etp", "etp {}"),
        of_degrees=True,
        keys=(
            Key(MEGATRON, "etp", "expert_tensor_parallel_size"),
            Key(OTHERS, "etp"),
        ),
        job_option=JobOption("etp", unsaid=0, others=Change(3, (1,)), of_experts=True),
    ),
    Setting(
        "dp",
        Degree(),
        "Data-parallel degree; likewise.",
        also=("@replicas", "@shards"),
        title="dp",
        fields=("dp",),
        search={"": Search(SEARCHED, ("what the others leave",))},
    ),
    Setting(
        "micro_batch_size",
        Degree(),
        also=("mbs",),
        title="micro-batch",
        fields=("micro_batch",),
        remark="samples of a replica",
        search={"": Search(SEARCHED, ("divisors of a replica's samples",))},
    ),
    Setting(
        "virtual_stages",
        Degree(),
        "Virtual stages of a pipeline rank; likewise.",
        also=(
            "num_layers_per_virtual_pipeline_stage",
            "num_virtual_stages_per_pipeline_rank",
            "virtual_pipeline_model_parallel_size",
        ),
        title="virtual stages",
        fields=("virtual",),
        remark="where pp divides the number of micro-batches",
        search={
            "torchtitan": Search(
                SEARCHED,
                ("any number",),
                remark=(
                    "where pp divides the number of micro-batches: Interleaved1F1B, or "
                    "InterleavedZeroBubble; two with ZBVZeroBubble and DualPipeV"
                ),
            ),
            "megatron": Search(SEARCHED, ("any number",)),
            "deepspeed": Search(FIXED, ("1",), remark="its pipeline has one stage per rank"),
        },
        label=labels.VIRTUAL_STAGES,
        job_label=labels.JOB_VIRTUAL_STAGES,
    ),
    Setting(
        GROUP_SIZE,
        Degree(),
        "Micro-batches that pass one virtual stage of a rank before the next one's turn "
        "(--microbatch-group-size-per-virtual-pipeline-stage); likewise; as many as pipeline ranks "
        "without this option.",
        title="turns",
        fields=("settings.turn",),
        remark="of micro-batches that pass one virtual stage before the next one's",
        search={
            "": Search(FIXED, ("pp micro-batches",), remark=NO_SETTING),
            "megatron": Search(
                AS_ASKED, ("pp micro-batches",), ("more, with none or at least pp left over",)
            ),
        },
        keys=(Key(MEGATRON, "turn", "microbatch_group_size_per_vp_stage"),),
        job_option=JobOption("turn", unsaid=0, degree="virtual"),
    ),
    Setting(
        "layout",
        Layers(),
        "Which layers every virtual stage has: even, any, how many as 10,11,11, or Megatron's "
        "letters as 'Et*10|t*11|t*11L'.",
        "LAYERS",
        also=("pipeline_model_parallel_layout",),
        title="layout",
        fields=("layout",),
        remark=(
            "a rank's layers are spread evenly over its virtual stages, the first or "
            "the last ones taking what is left over, with or without stages for the "
            "embedding and the output alone; or, where layers differ, all virtual "
            "stages but the first and the last have as many; any that is asked for, or "
            "any at all"
        ),
        search={
            "": Search(SEARCHED, ("any cuts between ranks",)),
            "deepspeed": Search(
                SEARCHED,
                ("any cuts between ranks",),
                remark="every stage needs a layer, the embedding or the output layer",
            ),
        },
        asked_by=("layout", "remainder"),
    ),
    Setting(
        "remainder",
        OneOf(REMAINDERS),
        "Which virtual stages take what is left over of a rank's layers: some of first, last and "
        "alone (the last ones, and the embedding and the output have stages without layers); all "
        "are tried without this option.",
        "WHICH",
        search={"": Search(SEARCHED, REMAINDERS), "deepspeed": Search(FIXED, REMAINDERS[:1])},
        not_of_jobs="the layout of a job says where layers are",
    ),
    Setting(
        "rank_order",
        OneOf(ORDERS),
        f"Order of ranks: {', '.join(ORDERS)} or both.",
        "ORDER",
        also=("use_tp_pp_dp_mapping",),
        title="order of ranks",
        remark="with pp and dp above 1",
        search={
            "": Search(FIXED, ("tp-cp-ep-dp-pp",), remark="the one that it has"),
            "megatron": Search(SEARCHED, ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")),
        },
        label=labels.unusual(90, "order", "rank order {}"),
        of_degrees=True,
        keys=(Key(OTHERS, "order"),),
        job_option=JobOption(
            "order", unsaid="tp-cp-ep-dp-pp", section="Parallelism", help="Fastest first."
        ),
    ),
    Setting(
        "sequence_parallel",
        title="sequence parallelism",
        remark="yes with tp above 1",
        search={
            "": Search(FOLLOWS, ("no", "yes")),
            "deepspeed": Search(FOLLOWS, ("no", "yes"), remark="yes with tp above 1 in a pipeline"),
        },
        label=labels.unusual(50, "sequence_parallel", "sequence parallel"),
        job_label=labels.JOB_SEQUENCE_PARALLEL,
        of_degrees=True,
        keys=(
            Key(TITAN, "sequence_parallel", "parallelism.enable_sequence_parallel"),
            Key(DEEPSPEED, "sequence_parallel"),
        ),
        job_option=JobOption("sequence_parallel", others=Change(1, (True,))),
    ),
    Setting(
        "schedule",
        OneOf(PIPELINES),
        f"Order of a pipeline's operations: some of {', '.join(PIPELINES)}; all that the runtime "
        "has are tried without this option.",
        "NAME",
        only=dict.fromkeys(DIVIDED, "torchtitan"),
        title="schedule",
        remark="1f1b is interleaved where ranks have several virtual stages",
        search={
            "": Search(SEARCHED, ("1f1b",)),
            "torchtitan": Search(
                SEARCHED,
                ("1f1b", "interleaved-zb", "zb-v", "dualpipe-v"),
                remark=(
                    "1f1b is 1F1B or Interleaved1F1B; interleaved-zb, zb-v and dualpipe-v "
                    "(InterleavedZeroBubble, ZBVZeroBubble, DualPipeV) divide backward passes: "
                    "in a pipeline, without recomputation, quantised products, compiled layers "
                    "and parameters that are given up; all stages but the first and the last "
                    "have as many layers, or all ranks but that of the output"
                ),
            ),
        },
        keys=(Key(OTHERS, "schedule"),),
        job_option=JobOption("schedule", unsaid=PIPELINES[0]),
    ),
    Setting(
        "recompute",
        OneOf((*RECOMPUTATIONS, *PARTS), aliases={"uniform": "full"}),
        f"What may be computed again: some of {', '.join(RECOMPUTATIONS)}, or parts of every "
        f"layer: some of {', '.join(PARTS)}.",
        "KIND",
        only={OPERATORS: "torchtitan"},
        also=(
            "recompute_granularity",
            "recompute_activations",
            "recompute_modules",
            "recompute_method",
            "recompute_num_layers",
            "gradient_checkpointing",
            "activation_checkpointing",
        ),
        title="recomputation",
        remark=(
            "of parts those that a layer has, combined as in NVIDIA's recipes; in every"
            " combination where they are asked for"
        ),
        search={
            "torchtitan": Search(
                SEARCHED,
                ("none", "operators", "full"),
                remark=(
                    "operators: outputs of attention, of messages and of every other product "
                    "are kept (`selective` with `op`); of every n-th layer is left out"
                ),
                heard=("none", "selective", "full", "operators"),
            ),
            "megatron": Search(
                SEARCHED,
                (
                    "none",
                    "core_attn",
                    "moe_act",
                    "layernorm",
                    "mla_up_proj",
                    "mlp",
                    "moe",
                    "mhc",
                    "full",
                    "block of any number of layers",
                ),
                ("shared_experts",),
                heard=(
                    "none",
                    "selective",
                    "full",
                    "block",
                    "core_attn",
                    "moe_act",
                    "layernorm",
                    "mla_up_proj",
                    "mlp",
                    "moe",
                    "shared_experts",
                    "mhc",
                ),
            ),
            "deepspeed": Search(
                SEARCHED,
                ("none", "full"),
                remark="checkpoints of equally many layers, a divisor of the model's",
            ),
        },
        label=labels.RECOMPUTE,
        job_label=labels.JOB_RECOMPUTE,
        of_degrees=True,
        at_first=("none", "core_attn", "full", "block"),
        keys=(
            *(
                Key(OTHERS, f"recompute.{part}")
                for part in ("granularity", "modules", "method", "layers")
            ),
        ),
    ),
    Setting(
        "encoder_recompute",
        OneOf(("none", "core", "full")),
        "What layers of encoders compute again: some of none, core (of attention), full; none "
        "without this option, and as the decoder's layers where the runtime has them so.",
        "KIND",
        title="recomputation of encoders",
        remark=(
            "of encoders that are trained; Qwen3-VL's of Megatron-Bridge as the decoder's layers, "
            "none, core or full, in blocks of one"
        ),
        search={
            "": Search(FIXED, ("none",), remark="no encoders"),
            "megatron": Search(AS_ASKED, ("none",), ("core", "full")),
        },
        choice=values.ENCODER_RECOMPUTE,
        label=labels.unusual(15, "encoder_recompute", "encoder recomputed: {}"),
        job_option=JobOption(
            "encoder_recompute",
            unsaid="none",
            others=Change(5, ("full", "core")),
            of_encoders=True,
        ),
    ),
    Setting(
        "distribute",
        title="kept inputs divided",
        remark="sequence parallelism divides them already",
        search={
            "": Search(LEFT_OUT, ("no",)),
            "torchtitan": Search(
                LEFT_OUT, ("no",), remark="tensor parallelism divides them already"
            ),
        },
        of_degrees=True,
        keys=(
            Key(
                DEEPSPEED, "recompute.distribute", "activation_checkpointing.partition_activations"
            ),
        ),
    ),
    Setting(
        "sharding",
        OneOf(SHARDINGS),
        f"What data-parallel ranks share: some of {', '.join(SHARDINGS)} (ZeRO 0 to 3).",
        "KIND",
        also=(
            "use_distributed_optimizer",
            "data_parallel_sharding_strategy",
            "use_megatron_fsdp",
            "zero",
            "zero_stage",
            "fsdp",
        ),
        title="sharding",
        remark=(
            "where several ranks have the same parameters; sharded parameters or "
            "gradients in a pipeline only if asked for"
        ),
        search={
            "torchtitan": Search(
                SEARCHED,
                ("gradients", "parameters", "none"),
                remark=(
                    "by FSDP: parameters are given up after a layer's forward pass where they "
                    "are sharded (`fsdp_reshard_after_forward` always), else never; or none, "
                    "plain replicas (`data_parallel_replicate_degree` alone), without cp; by "
                    "0.2.2 with nothing but dp"
                ),
            ),
            "megatron": Search(
                SEARCHED,
                ("optimizer", "parameters"),
                ("none", "gradients"),
                left_out=Unasked(
                    "parameters without a pipeline",  # as NVIDIA's recipes have them
                    lambda job: job.settings.optimizer.divides and job.pp > 1,
                ),
            ),
            "deepspeed": Search(
                SEARCHED,
                ("optimizer", "none", "gradients", "parameters"),
                remark="ZeRO 0 to 3; none or optimizer in a pipeline",
            ),
        },
        choice=values.SHARDING,
        change=Change(1, SHARDINGS),
        label=labels.SHARDING,
        job_label=labels.JOB_SHARDING,
        at_first="optimizer",
        keys=(
            Key(
                TITANS,
                "optimizer.sharding",
                "parallelism.fsdp_reshard_after_forward",
                {kind: "always" if kind == "parameters" else "never" for kind in SHARDINGS},
            ),
            Key(
                DEEPSPEED,
                "optimizer.sharding",
                "zero_optimization.stage",
                {kind: stage for stage, kind in enumerate(SHARDINGS)},
            ),
        ),
        job_option=JobOption(others=Change(4, ("optimizer",))),
    ),
    Setting(
        "sharding_copies",
        Counts(("1", "2")),
        "How many copies there are of what is sharded, divisors of dp: 2, or a list as 1,2,4 "
        "(--num-distributed-optimizer-instances, HSDP); without this option 1 for Megatron-LM, all "
        "for torchtitan.",
        title="copies of sharded states",
        remark="any divisor of dp x cp but this itself: instances of the distributed optimizer",
        search={
            "torchtitan": Search(
                SEARCHED, ("1", "2"), remark="HSDP: any divisor of dp but dp x cp itself"
            ),
            "megatron": Search(AS_ASKED, ("1",), ("2",)),
            "deepspeed": Search(FIXED, ("1",), remark="it shards over all replicas"),
        },
        choice=values.SHARDING_COPIES,
        keys=(
            Key(MEGATRON, "optimizer.instances", "num_distributed_optimizer_instances"),
            Key(TITANS, "optimizer.instances"),
        ),
    ),
    Setting(
        "cp_comm",
        OneOf(CP_COMMUNICATIONS),
        f"How context-parallel ranks attend: some of {', '.join(CP_COMMUNICATIONS)}.",
        "HOW",
        title="cp by",
        remark=(
            "a2a where cp divides a rank's heads and groups; nothing else with windows "
            "and sinks; with latent attention only if asked for"
        ),
        search={
            "": Search(
                SEARCHED,
                ("p2p", "a2a"),
                ("all_gather", "a2a+p2p"),
                left_out=Unasked(
                    "a2a without latent attention",
                    lambda job: job.settings.cp_comm == "a2a" and job.model.latent is not None,
                ),
            ),
            "torchtitan": Search(
                FIXED, ("all_gather",), remark="keys and values gathered for flex attention"
            ),
            "torchtitan@0.2.2": Search(
                SEARCHED, ("all_gather", "p2p"), remark="keys and values gathered, or around a ring"
            ),
            "deepspeed": Search(
                FIXED, (), remark="it has no context parallelism around a ring", heard=("p2p",)
            ),
        },
        choice=values.CP_COMM,
        change=Change(5, ("p2p", "a2a")),
        label=labels.CONTEXT,
        job_label=labels.JOB_CONTEXT,
        of_degrees=True,
        at_first="p2p",
        keys=(
            Key(MEGATRON, "cp_comm", CP_COMM, heard={"allgather": "all_gather"}),
            Key(
                TITAN,
                "cp_comm",
                words={"all_gather": ""},
                does="gathers keys and values for flex attention",
            ),
            Key(
                TITAN_022,
                "cp_comm",
                "parallelism.context_parallel_rotate_method",
                {"p2p": "alltoall", "all_gather": "allgather"},
            ),
        ),
        job_option=JobOption(
            "cp_comm",
            unsaid="p2p",
            others=Change(4, ("a2a", "all_gather")),
            degree="cp",
            section="Kernels",
            help="Of attention over --cp.",
            values=("p2p", "all_gather", "a2a"),
        ),
    ),
    Setting(
        "cp_inner",
        title="inner ranks of a2a+p2p",
        fields=("settings.cp_inner",),
        remark="those that exchange heads",
        search={
            "": Search(FIXED, ("none",), remark=NO_SETTING),
            "megatron": Search(AS_ASKED, ("none",), ("divisors of cp between 1 and cp",)),
        },
        asked_by=("cp_comm",),
        of_degrees=True,
    ),
    Setting(
        "overlap",
        OneOf(("data", "none")),
        "Whether gradients and parameters travel while passes compute: data, none or both; data "
        "without this option.",
        "WHAT",
        title="overlap of data parallelism",
        remark="of gradients and parameters with passes; none for being asked alone",
        search={
            "torchtitan": Search(
                FOLLOWS,
                ("overlap_gradients yes or no", "overlap_parameters yes"),
                remark="of gradients without a pipeline",
                heard=("data", "none"),
            ),
            "megatron": Search(AS_ASKED, ("data",), ("none",)),
            "deepspeed": Search(
                FOLLOWS,
                ("overlap_gradients yes or no", "overlap_parameters no"),
                remark="of gradients, without a pipeline, from ZeRO 1 on",
                heard=("none",),
            ),
        },
        choice=values.OVERLAP,
        change=Change(4, ("none", "data")),
        label=labels.unusual(
            130, "optimizer.overlap_gradients", "data-parallel messages overlapped"
        ),
        symptom="overlap",
        at_first="none",
        keys=(
            Key(MEGATRON, "optimizer.overlap_gradients", "overlap_grad_reduce"),
            Key(MEGATRON, "optimizer.overlap_parameters", "overlap_param_gather"),
        ),
    ),
    Setting(
        "fused_loss",
        OneOf(("native", "none", LIGER)),
        "The loss as one kernel: native, Megatron's own, or none; native without this option. "
        "liger: with the output layer, in chunks of tokens (Liger's, by the Trainer).",
        "KERNEL",
        only={LIGER: "torchtitan"},
        title="fused loss",
        remark="Megatron-LM's own kernel; none for being asked alone",
        search={
            "": Search(AS_ASKED, ("none",), (LIGER,), remark=BY_PEFT),
            "torchtitan@0.2.2": Search(FIXED, ("none",), remark=OF_FIGURES),
            "megatron": Search(AS_ASKED, ("native",), ("none",)),
        },
        choice=values.FUSED_LOSS,
        change=Change(3, ("none", "native", LIGER)),
        label=labels.LOSS,
        at_first="none",
        keys=(
            Key(MEGATRON, "kernels.fused_loss", LOSS_FUSION),
            Key(TUNERS, "kernels.fused_loss"),
            Key(TUNERS, "kernels.loss_kernel"),
        ),
        job_option=JobOption(unsaid="none"),
        alone="native",
    ),
    Setting(
        "fused_dropout",
        title="fused dropout and bias",
        remark=DEFAULT,
        search=KERNEL_OF_FIGURES,
        keys=(Key(MEGATRON, "kernels.fused_dropout", "bias_dropout_fusion"),),
    ),
    Setting(
        "fused_activation",
        title="fused activation",
        fields=("settings.kernels.fused_activation",),
        remark=DEFAULT,
        search=KERNEL_OF_FIGURES,
    ),
    Setting(
        "fused_softmax",
        title="fused softmax",
        remark="counts for local layers alone",
        search=KERNEL_OF_FIGURES,
        keys=(Key(MEGATRON, "kernels.fused_softmax", "masked_softmax_fusion"),),
    ),
    Setting(
        "accumulation_fusion",
        title="fused gradient accumulation",
        remark=DEFAULT,
        search=KERNEL_OF_FIGURES,
        keys=(Key(MEGATRON, "kernels.accumulation_fusion", "gradient_accumulation_fusion"),),
    ),
    Setting(
        "gradients",
        OneOf(("fp32", "bf16")),
        "Types that gradients may be added up and sent in: fp32, bf16.",
        "TYPE",
        also=("grad_reduce_in_bf16",),
        title="gradients",
        remark=(
            "changes the arithmetic: never without being asked for; bf16 with parameters of bf16"
        ),
        search={
            "": Search(FIXED, ("fp32",), remark="no others in the figures"),
            "megatron": Search(AS_ASKED, ("fp32",), ("bf16",)),
        },
        learns=True,
        lighter=("bf16",),
        choice=values.GRADIENTS,
        label=labels.GRADIENTS,
        keys=(Key(DEEPSPEED, "optimizer.gradient"),),
    ),
    Setting(
        "moments",
        OneOf(("fp32", "bf16", "fp8", *values.BY_TRAINER)),
        "Types that Adam's moments may be kept in: fp32, bf16, fp8; or as bitsandbytes has them: "
        "8bit (AdamW8bit), paged (PagedAdamW), paged-8bit.",
        "TYPE",
        only=dict.fromkeys(values.BY_TRAINER, "torchtitan"),
        also=("use_precision_aware_optimizer", "exp_avg_dtype", "exp_avg_sq_dtype", "optim"),
        title="moments",
        remark=(
            "changes the arithmetic: never without being asked for; others with parameters of bf16"
        ),
        search={
            "": Search(AS_ASKED, ("fp32",), values.BY_TRAINER, remark=BY_PEFT),
            "torchtitan@0.2.2": Search(FIXED, ("fp32",), remark=NO_SETTING),
            "megatron": Search(AS_ASKED, ("fp32",), ("bf16", "fp8")),
        },
        learns=True,
        lighter=("bf16", "fp8", "8bit"),
        choice=values.MOMENTS,
        keys=(
            Key(TUNERS, "optimizer.moments"),
            Key(TUNERS, "optimizer.moment_format"),
        ),
        label=labels.MOMENTS,
        job_label=labels.JOB_MOMENTS,
        job_option=JobOption(
            unsaid="fp32",
            section="Memory",
            help="Of Adam: as Megatron-LM (bf16, fp8) and bitsandbytes can keep them.",
        ),
    ),
    Setting(
        "master",
        title="bytes of the stepped copy",
        fields=("settings.optimizer.master",),
        remark=(
            "0 where parameters are fp32 themselves; 2 with moments of bf16 or fp8, but for "
            "fp8-current, fp8-blockwise and mxfp8"
        ),
        search={
            "": Search(FOLLOWS, ("4", "0"), remark="0 where parameters are fp32 themselves"),
            "megatron": Search(FOLLOWS, ("4", "0")),
        },
    ),
    Setting(
        "from_master",
        title="parameters from the stepped copy",
        fields=("settings.optimizer.from_master",),
        remark="they are gathered in the training precision",
        search={
            "": Search(FIXED, ("no",)),
            "torchtitan": Search(FOLLOWS, ("yes", "no"), remark="where several ranks have them"),
        },
    ),
    Setting(
        "keep",
        Stages(),
        "A stage of a saved plan that stays as it is, its layers, devices and degrees, as "
        "plan.json:stage0; may be repeated.",
        "PLAN:STAGE",
        not_of_jobs="a job has all of its stages",
    ),
    Setting(
        "tensor_overlap",
        OneOf(SWITCH),
        "Whether messages of tensor parallelism travel while products run (Megatron-LM's "
        f"--tp-comm-overlap, torchtitan's async tensor parallelism): {ON_SWITCH}.",
        "SWITCH",
        alone="on",
        title="overlap of tensor parallelism",
        remark=(
            "with tp above 1 and parameters of 2 bytes; Megatron-LM turns it off with "
            "latent attention"
        ),
        search={
            "torchtitan": Search(
                AS_ASKED,
                ("off",),
                ("on",),
                remark=(
                    "async tensor parallelism, with tp above 1 and parameters of 2 bytes; "
                    "compiles the layers as well"
                ),
            ),
            "megatron": Search(AS_ASKED, ("off",), ("on",)),
            "deepspeed": Search(FIXED, ("off",), remark=NO_SETTING),
        },
        choice=values.TENSOR_OVERLAP,
        label=labels.unusual(170, "overlap_tensor", "tensor-parallel messages overlapped"),
        job_label=labels.JOB_OVERLAPS,
        keys=(
            Key(MEGATRON, "overlap_tensor", "tp_comm_overlap"),
            Key(TITAN, "overlap_tensor", "compile.enable_async_tensor_parallel"),
            Key(TITAN_022, "overlap_tensor", "parallelism.enable_async_tensor_parallel"),
        ),
    ),
    Setting(
        "expert_overlap",
        OneOf(SWITCH),
        "Whether tokens travel to experts and back while another micro-batch computes "
        f"(--overlap-moe-expert-parallel-comm): {ON_SWITCH}.",
        "SWITCH",
        alone="on",
        title="overlap of expert parallelism",
        remark=(
            "with ep above 1, virtual stages in a pipeline, and neither layers nor "
            "experts computed again whole"
        ),
        search={
            "": Search(FIXED, ("off",), remark=NO_SETTING),
            "megatron": Search(AS_ASKED, ("off",), ("on",)),
        },
        choice=values.EXPERT_OVERLAP,
        label=labels.unusual(180, "overlap_experts", "expert-parallel messages overlapped"),
        keys=(Key(MEGATRON, "overlap_experts", "overlap_moe_expert_parallel_comm"),),
    ),
    Setting(
        "async_tensor",
        title="asynchronous backward products",
        fields=("settings.async_tensor",),
        remark=DEFAULT,
        search=KERNEL_OF_FIGURES,
    ),
    Setting(
        "overlap_sends",
        title="overlap of virtual stages' messages",
        remark=DEFAULT,
        search=KERNEL_OF_FIGURES,
        label=labels.OVERLAP_SENDS,
        keys=(Key(MEGATRON, "overlap_sends", "overlap_p2p_comm"),),
    ),
    Setting(
        "scatter_sends",
        title="shares of sends gathered",
        fields=("settings.scatter_sends",),
        remark="only without sequence parallelism, and until 2023",
        search={"": Search(FIXED, ("no",), remark=OF_FIGURES), "megatron": Search(FIXED, ("no",))},
    ),
    Setting(
        "keeps_gathered",
        title="gathered inputs kept",
        fields=("settings.keeps_gathered",),
        remark="they are gathered again for gradients of weights",
        search={
            "": Search(FIXED, ("no",)),
            "torchtitan": Search(FIXED, ("yes",), remark="DTensor keeps them"),
        },
    ),
    Setting(
        "vocab_multiple",
        title="vocabulary padded to a multiple of",
        fields=("settings.vocab_multiple",),
        remark="times tp",
        search={
            "": Search(FIXED, ("1",), remark="what tp divides"),
            "megatron": Search(FIXED, ("128",)),
        },
    ),
    Setting(
        "carried",
        title="words of a launch line",
        fields=("settings.carried",),
        remark="what is not modelled of an imported line, for an export to write back",
        search={"": Search(FIXED, ("none",))},
    ),
    Setting(
        "cuda_graphs",
        OneOf(("none", "attn", "router", "layer", "full_iteration")),
        "What CUDA graphs have: some of none, attn, router (attention and routing), layer, "
        "full_iteration; none without this option.",
        "WHAT",
        also=("cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph", "cuda_graph_modules"),
        title="CUDA graphs",
        remark=(
            "they hide what the host takes to start kernels; router: attention and routing; layer "
            "and full_iteration without experts; layers are computed again whole with "
            "full_iteration alone"
        ),
        search={
            "": Search(AS_ASKED, ("none",), ("attn", "router", "layer", "full_iteration")),
            "torchtitan": Search(
                FIXED,
                ("none",),
                remark=(
                    "of whole steps, without a pipeline and ep: judged in imported plans, never"
                    " tried"
                ),
            ),
            "torchtitan@0.2.2": Search(FIXED, ("none",), remark="it has none"),
            "deepspeed": Search(FIXED, ("none",), remark=NO_SETTING),
        },
        choice=values.CUDA_GRAPHS,
        change=Change(8, ("none", *values.GRAPHED)),
        label=labels.CUDA_GRAPHS,
        job_label=labels.JOB_CUDA_GRAPHS,
        keys=(
            Key(TITAN, "kernels.graphs"),
            Key(TITAN, "kernels.graphed"),
        ),
    ),
    Setting(
        "optimizer_offload",
        Shares(SHARES),
        "Shares of the optimizer's states that may be in the host's memory and stepped there, from "
        "0 to 1: 0.5, or a list as 0,0.5,1; 0 without this option.",
        "SHARE",
        also=("optimizer_cpu_offload", "optimizer_offload_fraction"),
        title="states on the host",
        fields=(
            "settings.optimizer.offload",
            "settings.optimizer.keeps_master",
            "settings.optimizer.overlap_offload",
        ),
        remark=(
            "any share, with optimizer sharding and moments of fp32; stepped there "
            "while gradients and parameters travel"
        ),
        search={
            "": Search(FIXED, ("none",), remark="judged in imported plans alone", heard=("0",)),
            "megatron": Search(AS_ASKED, ("0",), ("0.25", "0.5", "0.75", "1")),
        },
        choice=values.OPTIMIZER_OFFLOAD,
        change=Change(2, SHARES),
        keys=(Key(OTHERS, "optimizer.offload"),),
    ),
    Setting(
        "precision",
        also=("bf16", "fp16", "fp8", "fp8_format", "fp8_recipe", "fp4_format"),
        title="precision",
        remark="else the model's; changes the arithmetic",
        search={
            "": Search(AS_ASKED, ("bf16", "fp16", "fp32")),
            "torchtitan": Search(AS_ASKED, ("bf16", "fp32")),
        },
        asked_by=("precision",),
        job_label=labels.JOB_PRECISION,
        keys=(Key(OTHERS, "precision"),),
    ),
    Setting(
        "quantised",
        title="products in 8 or 4 bits",
        remark="where the devices have it; changes the arithmetic",
        search={
            "": Search(
                AS_ASKED, ("none", "fp8-delayed", "fp8-current", "fp8-blockwise", "mxfp8", "nvfp4")
            ),
            "torchtitan": Search(
                AS_ASKED,
                ("none", "mxfp8", "nvfp4"),
                remark=(
                    "where the devices have it, by torchao's converters; times and bytes are "
                    "those of Transformer Engine's recipe; changes the arithmetic"
                ),
            ),
            "torchtitan@0.2.2": Search(
                AS_ASKED,
                ("none", "fp8-current", "mxfp8"),
                remark=(
                    "where the devices have it, by torchao's converters; times and bytes are "
                    "those of Transformer Engine's recipe; changes the arithmetic"
                ),
            ),
            "deepspeed": Search(FIXED, ("none",), remark=NO_SETTING),
        },
        asked_by=("precision",),
        label=labels.unusual(10, "kernels.quantised", "products in {}"),
        keys=(
            Key(
                TITAN,
                "kernels.quantised",
                "components.quantization",
                {"mxfp8": "MXFP8LinearConverter", "nvfp4": "NVFP4LinearConverter"},
                does=", and FP8 only with a scale for every row",
            ),
            Key(
                TITAN_022,
                "kernels.quantised",
                "model.converters",
                {"fp8-current": "quantize.linear.float8", "mxfp8": "quantize.linear.mx"},
            ),
        ),
    ),
    Setting(
        "number_format",
        title="format of these",
        search={
            "": Search(FIXED, ("the recipe's",)),
            "deepspeed": Search(FIXED, ("the recipe's",), remark=NO_SETTING),
        },
        keys=(Key(TITANS, "kernels.number_format"),),
    ),
    Setting(
        "quantised_parameters",
        title="parameters gathered so",
        fields=("settings.kernels.quantised_parameters",),
        remark="as NVIDIA's recipes: but for fp8-blockwise and nvfp4",
        search={
            "": Search(FOLLOWS, ("no", "yes")),
            "deepspeed": Search(FIXED, ("no",), remark=NO_SETTING),
        },
    ),
    Setting(
        "fp8_attention",
        OneOf(SWITCH),
        "Whether attention multiplies in 8 bits beside products of --precision fp8-delayed, "
        "fp8-current or mxfp8, as Megatron-Bridge can (fp8_dot_product_attention): "
        f"{ON_SWITCH}.",
        "SWITCH",
        alone="on",
        title="attention in 8 bits",
        fields=(FP8_FIELD,),
        remark="by cuDNN, where devices have it; by Megatron-Bridge alone; changes the arithmetic",
        search={
            "": Search(FIXED, ("off",), remark=NO_SETTING),
            "megatron": Search(AS_ASKED, ("off",), ("on",)),
        },
        learns=True,
        choice=values.FP8_ATTENTION,
        label=labels.unusual(11, "kernels.fp8_attention", "attention in 8 bits"),
    ),
    Setting(
        "exact_first",
        title="layers at the ends not so",
        remark=IMPORTED,
        search={
            "": Search(LEFT_OUT, ("none",)),
            "deepspeed": Search(FIXED, ("none",), remark=NO_SETTING),
        },
        keys=(
            Key(TITANS, "kernels.exact_first"),
            Key(TITANS, "kernels.exact_last"),
        ),
    ),
    Setting(
        "implementation",
        title="layers",
        fields=("settings.kernels.implementation",),
        remark=DEFAULT,
        search={
            "": Search(
                FIXED,
                ("transformer_engine",),
                remark=f"{OF_FIGURES}, and of transformers where a part of a model is trained",
            ),
            "torchtitan@0.2.2": Search(FIXED, ("transformer_engine",), remark=OF_FIGURES),
            "megatron": Search(FIXED, ("transformer_engine",)),
        },
    ),
    Setting(
        "attention",
        title="attention",
        remark="unfused where a device has no flash attention",
        search={
            "torchtitan": Search(FIXED, ("flash",), remark=OF_FIGURES),
            "megatron": Search(FOLLOWS, ("flash", "unfused")),
            "deepspeed": Search(FOLLOWS, ("flash", "unfused"), remark=OF_FIGURES),
        },
        job_label=labels.JOB_ATTENTION,
        job_option=JobOption(
            "kernels.attention",
            section="Kernels",
            help="Kernel; flash where the GPUs have it.",
            values=("flash", "unfused"),
        ),
    ),
    Setting(
        "activation_offload",
        Offloads(("none", "core_attn", "qkv_linear+mlp_norm", "1"), OFFLOADED),
        "Which activations may wait in the host's memory: none, those of modules as "
        "core_attn+attn_proj (--offload-modules), or of a number of layers as 4 "
        "(--cpu-offloading-num-layers); likewise a list; none without this option.",
        "WHAT",
        also=("cpu_offloading", "cpu_offloading_num_layers", "offload_modules"),
        title="activations on the host",
        fields=("settings.offload.layers", "settings.offload.modules", "settings.offload.smallest"),
        remark=(
            "any modules together; or of a number of layers, without a pipeline and recomputation"
        ),
        search={
            "": Search(FIXED, ("none",), remark=NO_SETTING),
            "megatron": Search(AS_ASKED, ("none",), ("core_attn", "qkv_linear+mlp_norm", "1")),
        },
        choice=values.ACTIVATION_OFFLOAD,
        label=labels.OFFLOAD,
        job_label=labels.JOB_OFFLOAD,
    ),
    Setting(
        "optimizer",
        OneOf(("adam", MUON)),
        "What steps matrices, beside Adam for tables of words and vectors: adam, muon or both; "
        "adam without this option.",
        "NAME",
        title="optimiser",
        remark="changes the arithmetic: never without being asked for",
        search={
            "": Search(FIXED, ("adam",), remark="the states of Adam"),
            "megatron": Search(AS_ASKED, ("adam",), (MUON,)),
        },
        learns=True,
        choice=values.OPTIMIZER,
        label=labels.OPTIMIZER,
        job_label=labels.JOB_OPTIMIZER,
        job_option=JobOption(
            unsaid="adam", section="Memory", help="Of matrices; Adam steps all others."
        ),
        keys=(
            Key(MEGATRON, "optimizer.name", "optimizer", heard={"dist_muon": MUON}),
            Key(OTHERS, "optimizer.name"),
        ),
    ),
    Setting(
        "muon_tp_mode",
        OneOf(MUON_MODES),
        f"Ways of Muon with matrices that tp divides (--muon-tp-mode): some of "
        f"{', '.join(MUON_MODES)}; blockwise without this option.",
        "HOW",
        title="Muon over tp",
        fields=("settings.optimizer.muon_tp_mode",),
        remark="a shard of its own on each rank, the whole matrix on each, or on all together",
        search={
            "": Search(FIXED, MUON_MODES[:1], remark=NO_MUON),
            "megatron": Search(AS_ASKED, MUON_MODES[:1], MUON_MODES[1:]),
        },
        learns=True,
        choice=values.MUON_TP_MODE,
        beside=("optimizer", MUON),
        job_option=JobOption(
            unsaid=MUON_MODES[0], section="Memory", help="Of Muon, with matrices over --tp."
        ),
    ),
    Setting(
        "muon_packing",
        OneOf(SWITCH),
        "Whether Muon's buffers have a part for the whole matrices of each rank "
        "(--no-use-layer-wise-param-layout for off): on, off or both; on without this option.",
        "SWITCH",
        alone="on",
        title="Muon's buffers packed",
        remark="off: every rank sums all gradients, and buffers have no room to spare",
        search={
            "": Search(FIXED, ("on",), remark=NO_MUON),
            "megatron": Search(AS_ASKED, ("on",), ("off",)),
        },
        choice=values.MUON_PACKING,
        beside=("optimizer", MUON),
        keys=(Key(MEGATRON, "optimizer.packed", "use_layer_wise_param_layout"),),
    ),
    Setting(
        "muon_steps",
        Counts(("5", "8", "10")),
        "Turns of Muon's iteration (--muon-num-ns-steps): 5, or a list as 5,10; 5 without this "
        "option.",
        title="turns of Muon's iteration",
        fields=("settings.optimizer.muon_steps",),
        remark="of Newton and Schulz, three products of matrices each",
        search={
            "": Search(FIXED, ("5",), remark=NO_MUON),
            "megatron": Search(AS_ASKED, ("5",), ("8", "10")),
        },
        learns=True,
        choice=values.MUON_STEPS,
        beside=("optimizer", MUON),
        job_option=JobOption(unsaid="5"),
    ),
    Setting(
        "dispatcher",
        OneOf(("alltoall", "allgather", "flex")),
        "How tokens get to experts: some of alltoall, allgather, flex (DeepEP); alltoall without "
        "this option.",
        "HOW",
        title="dispatcher of tokens",
        remark=(
            "alltoall where nothing is asked, as Megatron's recipes; flex is DeepEP, from Ampere on"
        ),
        search={
            "": Search(FOLLOWS, ("allgather", "alltoall"), remark=OF_FIGURES, heard=("alltoall",)),
            "megatron": Search(AS_ASKED, ("alltoall",), ("allgather", "flex")),
        },
        choice=values.DISPATCHER,
        label=labels.of_choice(150, values.DISPATCHER),
        job_label=labels.JOB_EXPERTS,
        keys=(Key(MEGATRON, "kernels.dispatcher", DISPATCHER),),
        job_option=JobOption(
            "kernels.dispatcher",
            unsaid="alltoall",
            of_experts=True,
            section="Kernels",
            help="Of tokens to experts.",
        ),
    ),
    Setting(
        "capacity",
        title="capacity of experts",
        remark=("drops tokens, which changes the training: judged in imported plans, never tried"),
        search={
            "": Search(LEFT_OUT, ("all tokens",)),
            "torchtitan": Search(FIXED, ("all tokens",), remark="its routers drop no tokens"),
        },
        keys=(
            Key(MEGATRON, "kernels.capacity", "moe_expert_capacity_factor"),
            Key(MEGATRON, "kernels.pad_to_capacity", "moe_pad_expert_input_to_capacity"),
            Key(DEEPSPEED, "kernels.capacity"),
            Key(DEEPSPEED, "kernels.pad_to_capacity"),
        ),
    ),
    Setting(
        "imbalance",
        title="imbalance of tokens",
        remark="routing is assumed even",
        search={"": Search(FIXED, ("1",))},
        job_option=JobOption("kernels.imbalance"),
        symptom="experts",
    ),
    Setting(
        "fused_permute",
        OneOf(SWITCH),
        "Whether one kernel puts tokens in the order of experts (--moe-permute-fusion): "
        f"{ON_SWITCH}.",
        "SWITCH",
        alone="on",
        title="fused permutation of tokens",
        remark="needs Transformer Engine 2.1",
        search={
            "": Search(FIXED, ("off",), remark=OF_FIGURES),
            "megatron": Search(AS_ASKED, ("off",), ("on",)),
        },
        choice=values.FUSED_PERMUTE,
        label=labels.unusual(160, "kernels.fused_permute", "fused permutation of tokens"),
        keys=(Key(MEGATRON, "kernels.fused_permute", "moe_permute_fusion"),),
    ),
    Setting(
        "grouped_experts",
        title="grouped products of experts",
        remark="with experts, as Megatron's recipes",
        search={
            "": Search(FOLLOWS, ("no", "yes"), remark=OF_FIGURES),
            "megatron": Search(FOLLOWS, ("no", "yes")),
        },
        keys=(Key(MEGATRON, "kernels.grouped_experts", GROUPED_PRODUCTS),),
        job_option=JobOption("kernels.grouped_experts", unsaid=True, of_experts=True),
        change=Change(7, (False, True)),
    ),
    Setting(
        "compile",
        OneOf(SWITCH),
        "Whether torch.compile compiles layers and the loss, as torchtitan can: "
        f"{ON_SWITCH}, but for async tensor parallelism (--tensor-overlap on).",
        "SWITCH",
        alone="on",
        only={"on": "torchtitan"},
        also=("torch_compile",),
        title="compiled layers",
        remark="by torch.compile: norms, rotation, activation fused; a compiled loss not counted",
        search={
            "torchtitan": Search(AS_ASKED, ("off",), ("on",)),
            "megatron": Search(
                FIXED, ("off",), remark="it has no setting for it: fused kernels are its own"
            ),
            "deepspeed": Search(FIXED, ("off",), remark=NO_SETTING),
        },
        choice=values.COMPILE,
        label=labels.unusual(210, "kernels.compiled", "layers compiled"),
        job_label=labels.JOB_COMPILE,
        keys=(Key(TITANS, "kernels.compiled"),),
    ),
    Setting(
        "defer_embedding_wgrad",
        OneOf(SWITCH),
        "Whether the last pipeline rank computes weight gradients of the output layer after its "
        f"last micro-batch (--defer-embedding-wgrad-compute): {ON_SWITCH}.",
        "SWITCH",
        alone="on",
        title="deferred gradients of the output layer",
        remark="in a pipeline; the memory of the deferred products is counted, the hidden time not",
        search={
            "": Search(FIXED, ("off",), remark=NO_SETTING),
            "megatron": Search(AS_ASKED, ("off",), ("on",)),
        },
        choice=values.DEFER_EMBEDDING_WGRAD,
        change=Change(6, ("off",)),
        label=labels.unusual(220, "kernels.deferred_output", "output gradients deferred"),
        keys=(Key(MEGATRON, "kernels.deferred_output", "defer_embedding_wgrad_compute"),),
    ),
    Setting(
        "deferral_limit",
        title="micro-batches with deferred gradients",
        remark=IMPORTED,
        search={
            "": Search(FIXED, ("all",), remark=NO_SETTING),
            "megatron": Search(LEFT_OUT, ("all",)),
        },
        keys=(Key(MEGATRON, "kernels.deferral_limit", "wgrad_deferral_limit"),),
    ),
    Setting(
        "deterministic",
        title="deterministic",
        remark=IMPORTED,
        search={"": Search(FIXED, ("no",), remark=UNSAID), "megatron": Search(LEFT_OUT, ("no",))},
        keys=(Key(MEGATRON, "kernels.deterministic", "deterministic_mode"),),
    ),
    Setting(
        "overlap_shared",
        title="shared experts beside the exchange",
        remark="their memory is counted, the time that they hide is not",
        search={"": Search(FIXED, ("no",), remark=UNSAID), "megatron": Search(LEFT_OUT, ("no",))},
        keys=(Key(MEGATRON, "kernels.overlap_shared", "moe_shared_expert_overlap"),),
    ),
    Setting(
        "loader_mask",
        title="mask of the loader",
        remark="causal attention needs none: judged in imported plans, never tried",
        search={"": Search(FIXED, ("no",), remark=UNSAID), "megatron": Search(LEFT_OUT, ("no",))},
        keys=(Key(MEGATRON, "kernels.loader_mask", "create_attention_mask_in_dataloader"),),
    ),
    Setting(
        "flash_package",
        title="package flash-attn",
        remark=IMPORTED,
        search={
            "": Search(FIXED, ("no",), remark=UNSAID),
            "megatron": Search(LEFT_OUT, ("no",)),
            "torchtitan": Search(FIXED, ("yes",), remark="FlexAttention in its place"),
            "torchtitan@0.2.2": Search(FIXED, ("no",), remark="cuDNN's attention comes first"),
        },
        keys=(Key(MEGATRON, "kernels.flash_package", "attention_backend", words={True: "flash"}),),
    ),
    Setting(
        "lora",
        Counts(("0", "8", "16", "64"), least=0),
        "Rank of low-rank adapters, which alone are trained then (LoRA): 16, or a list as 8,16; 0, "
        "none, without this option.",
        "RANK",
        also=("lora_rank", "lora_r"),
        title="rank of adapters",
        remark="0: all parameters are trained; changes the training: never without being asked for",
        search={
            "": Search(AS_ASKED, ("0",), ("8", "16", "64")),
            "megatron": Search(
                AS_ASKED, ("0",), ("8", "16", "64"), remark="by Megatron-Bridge's `peft`"
            ),
            "torchtitan": Search(AS_ASKED, ("0",), ("8", "16", "64"), remark=BY_PEFT),
            "torchtitan@0.2.2": Search(FIXED, ("0",), remark=NO_SETTING),
            "deepspeed": Search(AS_ASKED, ("0",), ("8", "16", "64"), remark=BY_PEFT),
        },
        learns=True,
        lighter=("16",),
        choice=values.LORA,
        keys=(Key(TUNERS, "tuning.rank"),),
        label=labels.TUNING,
        job_label=labels.JOB_TUNING,
        job_option=JobOption(unsaid="0"),
    ),
    Setting(
        "lora_targets",
        Together(
            (*PEFT_EXAMPLE, *BRIDGE_EXAMPLE, *SCAN_EXAMPLE),
            names=TARGETS,
            example="q_proj,v_proj",
            families=((*PEFT_ONLY, *OF_EXPERTS), (*BRIDGE_ONLY, *OF_EACH), OF_SCANS),
        ),
        "Products with adapters, in the names of Hugging Face or of Megatron-LM: q_proj,v_proj or "
        "linear_qkv,linear_proj; without this option those that PEFT (queries and values) and "
        "Megatron-Bridge (all of attention and MLP) take.",
        "NAMES",
        only={"q_proj+v_proj": "torchtitan"},
        beside=BESIDE,
        title="products with adapters",
        remark="as PEFT has them, and Megatron-Bridge, routed experts among them",
        search={
            "": Search(
                AS_ASKED,
                (values.USUAL_TARGETS,),
                PEFT_EXAMPLE,
                heard=(*PEFT_EXAMPLE, *SCAN_EXAMPLE),
            ),
            "megatron": Search(
                AS_ASKED,
                (values.USUAL_TARGETS,),
                BRIDGE_EXAMPLE,
                heard=(*BRIDGE_EXAMPLE, *SCAN_EXAMPLE),
            ),
            "torchtitan@0.2.2": Search(FIXED, (values.USUAL_TARGETS,), remark=NO_SETTING, heard=()),
        },
        learns=True,
        choice=values.LORA_TARGETS,
        keys=(Key(TUNERS, "tuning.targets"),),
        job_option=JobOption(unsaid=values.USUAL_TARGETS),
    ),
    Setting(
        "lora_dropout",
        Shares(("0", "0.05", "0.1"), most=MOST_DROPOUT),
        "Dropout of the adapters' inputs, from 0 to 0.9: 0.05; 0 without this option.",
        "SHARE",
        beside=BESIDE,
        title="dropout of adapters",
        remark="a mask, and a copy, of every input; changes the training",
        search={
            "": Search(AS_ASKED, ("0",), ("0.05", "0.1")),
            "torchtitan@0.2.2": Search(FIXED, ("0",), remark=NO_SETTING),
        },
        learns=True,
        choice=values.LORA_DROPOUT,
        keys=(Key(TUNERS, "tuning.dropout"),),
        job_option=JobOption(unsaid="0"),
    ),
    Setting(
        "qlora",
        OneOf(SWITCH),
        "Whether the parameters beside adapters are kept in 4 bits (QLoRA: NF4 with double "
        f"quantisation, of the layers' products): {ON_SWITCH}.",
        "SWITCH",
        alone="on",
        only={"on": "torchtitan"},
        beside=BESIDE,
        title="base in 4 bits",
        remark="with adapters alone; by bitsandbytes; changes the training",
        search={
            "": Search(AS_ASKED, ("off",), ("on",)),
            "megatron": Search(FIXED, ("off",), remark=NO_SETTING),
            "torchtitan@0.2.2": Search(FIXED, ("off",), remark=NO_SETTING),
        },
        learns=True,
        lighter=("on",),
        choice=values.QLORA,
        keys=(Key(TUNERS, "tuning.base"),),
        job_option=JobOption(unsaid="off"),
    ),
    Setting(
        "adapters",
        title="precision of adapters",
        fields=("settings.tuning.adapters",),
        remark="fp32 and stepped themselves by PEFT, as other parameters by Megatron-Bridge",
        search={
            "": Search(FIXED, ("as other parameters",)),
            "torchtitan": Search(FOLLOWS, ("as other parameters", "fp32")),
            "torchtitan@0.2.2": Search(FIXED, ("as other parameters",), remark=NO_SETTING),
        },
    ),
    Setting(
        "freeze",
        Together(
            ("none", "embedding", "embedding+layers:0"),
            names=("none", *FROZEN),
            alone="none",
            further=frozen_part,
            example="embedding,layers:0-27",
        ),
        f"Parts of the model that are not trained: some of {', '.join(FROZEN)}, and layers as "
        "layers:0-27, from 0; none without this option.",
        "PARTS",
        title="frozen parts",
        remark="no gradients of theirs, and no backward pass below the lowest trained layer",
        search={
            "": Search(AS_ASKED, ("none",), ("embedding", "embedding+layers:0")),
            "torchtitan@0.2.2": Search(FIXED, ("none",), remark=NO_SETTING),
        },
        learns=True,
        choice=values.FREEZE,
        keys=(Key(TUNERS, "tuning.frozen"),),
        job_option=JobOption(unsaid="none"),
    ),
    Setting(
        "batching",
        title="samples of documents",
        fields=("batching",),
        remark=(
            "with `lengths`; packed by best fit decreasing, a pack in a micro-batch (THD); "
            "longest, grouped and full: a document each"
        ),
        search={
            "megatron": Search(AS_ASKED, BATCHINGS),
            "torchtitan": Search(
                AS_ASKED,
                (PACKED,),
                (JOINED, LONGEST, GROUPED, FULL),
                remark=(
                    "documents are masked by FlexAttention; it pads none: others by PEFT and the "
                    "Trainer alone"
                ),
            ),
            "torchtitan@0.2.2": Search(
                AS_ASKED, (JOINED,), remark="documents are joined and cut, and none is masked"
            ),
            "deepspeed": Search(
                AS_ASKED,
                (LONGEST, GROUPED, FULL),
                remark="as the training program pads: it packs none",
            ),
        },
        asked_by=("lengths", "batching"),
    ),
    Setting(
        "max_devices", Count(), "Devices at most, in whole nodes that are equal.", of_devices=True
    ),
    Setting(
        "without",
        Nodes(),
        "A node that stays idle, by its number from 0, or all of a group by its name; may be "
        "repeated.",
        "NODE",
        of_devices=True,
    ),
    Setting(
        "headroom",
        Size(),
        "Memory of every device that stays free, as 2GiB.",
        "SIZE",
        of_devices=True,
    ),
)
SETTINGS = tuple(map(whole, ROWS))
OF_DEGREES = tuple(
    field.removeprefix("settings.") for row in SETTINGS if row.of_degrees for field in row.fields
)
BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}
OF_MUON = tuple(
    field
    for name in ("muon_tp_mode", "muon_packing", "muon_steps")
    for field in BY_NAME[name].fields
)
DEMANDS = tuple(setting for setting in SETTINGS if setting.domain is not CLOSED)


def row_of(choice: values.Choice) -> Setting:
    """Return the row of a choice."""
    return next(row for row in SETTINGS if row.choice is choice)


def of_symptom(name: str) -> tuple[str, ...]:
    """Return the attributes of a `TrainingJob` that a cause of slow steps may be the setting of."""
    return tuple(field for row in SETTINGS if row.symptom == name for field in row.fields)


def with_degrees_of(settings: Settings, other: Settings) -> Settings:
    """Return settings with the degrees of others, and with what is chosen for these alone."""
    return values.with_fields(settings, {name: attrgetter(name)(other) for name in OF_DEGREES})
