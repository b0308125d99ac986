"""Launch lines to training jobs and back."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import (
    arguments_of_job,
    job_of_arguments,
    read_arguments,
)
from ilp_planner.specs.pipeline_layout import even_layout, split_layout
from ilp_planner.specs.training import (
    GRAPHED,
    GRAPHS,
    OFFLOADED,
    ORDERS,
    QUANTISED,
    STEPPED_IN_FULL,
    USUAL_FORMATS,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from tests.examples import examples, for_each
from tests.training_jobs import deepseek, job, jobs

SMALL = (
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
    "--max-position-embeddings 32 --micro-batch-size 2 --vocab-size 100"
)


def small(more: str = "", world: int | None = None) -> TrainingJob:
    return job_of_arguments(read_arguments(f"{SMALL} {more}", world))


@st.composite
def optimizers(draw: st.DrawFn, precision: str, recipe: str) -> OptimizerSettings:
    """Draw what Megatron's arguments can say. recipe: of quantised products."""
    name = draw(st.sampled_from(["adam", "sgd"]))
    sharding = draw(st.sampled_from(["none", "optimizer", "gradients", "parameters"]))
    gradient = 4 if precision == "fp32" else draw(st.sampled_from([2, 4]))
    master, moments = (0 if precision == "fp32" else 4), 8
    offload = 0.0
    if name == "sgd":
        moments = draw(st.sampled_from([0, 4]))
    elif precision == "bf16" and draw(st.booleans()):
        whole = recipe in STEPPED_IN_FULL
        master, moments = 4 if whole else 2, draw(st.sampled_from([2, 3, 4, 5, 6, 8]))
    elif precision != "fp32":
        offload = draw(st.sampled_from([0.0, 0.5, 1.0]))
    return OptimizerSettings(
        name=name,
        sharding=sharding,
        gradient=gradient,
        master=master,
        moments=moments,
        instances=draw(st.sampled_from([1, 2])),
        offload=offload,
        overlap_offload=offload > 0 and draw(st.booleans()),
        overlap_gradients=draw(st.booleans()),
        overlap_parameters=draw(st.booleans()),
    )


@st.composite
def kernels(draw: st.DrawFn) -> Kernels:
    """Draw what Megatron's arguments can say."""
    local = draw(st.booleans())
    on = st.booleans()
    fused_loss = draw(on)
    return Kernels(
        implementation="local" if local else "transformer_engine",
        attention="unfused" if local else draw(st.sampled_from(["flash", "unfused"])),
        fused_loss=fused_loss,
        loss_kernel=draw(st.sampled_from(["te", "native"])) if fused_loss else "te",
        fused_dropout=draw(on),
        fused_activation=draw(on),
        fused_permute=draw(on),
        grouped_experts=draw(on),
        capacity=draw(st.sampled_from([0.0, 1.25, 2.0])),
        pad_to_capacity=draw(on),
        dispatcher=draw(st.sampled_from(["allgather", "alltoall", "flex"])),
        accumulation_fusion=draw(on),
        fused_softmax=draw(on),
        deterministic=draw(on),
        loader_mask=draw(on),
        **draw(quantised(local)),
        **draw(graphs()),
    )


@st.composite
def quantised(draw: st.DrawFn, local: bool) -> dict[str, Any]:
    """Draw a recipe of quantised products, or none."""
    recipe = "" if local else draw(st.sampled_from(["", *QUANTISED]))
    if not recipe:
        return {}
    other = {"hybrid": "e4m3", "e4m3": "hybrid"}.get(USUAL_FORMATS[recipe], "")
    return {
        "quantised": recipe,
        "number_format": draw(st.sampled_from(["", other])),
        "quantised_parameters": draw(st.booleans()),
        "exact_first": draw(st.integers(0, 2)),
        "exact_last": draw(st.integers(0, 2)),
    }


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what CUDA graphs have."""
    kind = draw(st.sampled_from(GRAPHS))
    if kind in ("", "full_iteration"):
        return {"graphs": kind}
    modules = draw(st.lists(st.sampled_from(GRAPHED), unique=True))
    return {"graphs": kind, "graphed": tuple(modules)}


@st.composite
def offloads(draw: st.DrawFn) -> Offload:
    """Draw which activations go to the host."""
    modules = draw(st.lists(st.sampled_from(OFFLOADED), unique=True))
    if modules:
        return Offload(modules=tuple(modules), smallest=draw(st.sampled_from([0, 1000, 2**20])))
    return Offload(layers=draw(st.integers(0, 4)))


@st.composite
def rich_jobs(draw: st.DrawFn) -> TrainingJob:
    """Draw a job with all kinds of settings, sensible together or not."""
    drawn = draw(jobs())
    precision = draw(st.sampled_from(["bf16", "fp16", "fp32"]))
    modules = draw(
        st.lists(st.sampled_from(["core_attn", "mlp", "layernorm"]), min_size=1, unique=True)
    )
    recompute = draw(
        st.sampled_from(
            [
                drawn.settings.recompute,
                Recompute(granularity="selective", modules=tuple(modules)),
                Recompute(granularity="full", method="block", layers=2, distribute=True),
            ]
        )
    )
    comm = draw(st.sampled_from(["p2p", "all_gather", "a2a", "a2a+p2p"]))
    drawn_kernels = draw(kernels())
    changed = replace(
        drawn.settings,
        etp=draw(st.sampled_from([0, 1, 2])),
        order=draw(st.sampled_from(ORDERS)),
        precision=precision,
        recompute=recompute,
        offload=draw(offloads()),
        optimizer=draw(optimizers(precision, drawn_kernels.quantised)),
        kernels=drawn_kernels,
        cp_comm=comm,
        cp_inner=1 if comm == "a2a+p2p" else 0,
        overlap_tensor=draw(st.booleans()),
        overlap_experts=draw(st.booleans()),
    )
    return replace(drawn, settings=changed, devices_per_node=draw(st.sampled_from([1, 4, 8])))


@given(rich_jobs())
@examples(100)
def test_there_and_back(drawn: TrainingJob) -> None:
    args = arguments_of_job(drawn)
    again = read_arguments(args.argv, args.world)
    assert again.values == args.values
    back = job_of_arguments(replace(again, devices_per_node=drawn.devices_per_node), checked=False)
    assert back.model.expert_layers == drawn.model.expert_layers
    # The same pattern of expert layers can be said in several ways.
    if drawn.model.experts:
        assert back.model.experts is not None
        same = replace(
            drawn.model.experts,
            dense_first=back.model.experts.dense_first,
            every=back.model.experts.every,
        )
        drawn = replace(
            drawn, model=replace(drawn.model, experts=same, experts_in=back.model.experts_in)
        )
    assert back == drawn


def test_the_example_of_the_analysis_tool() -> None:
    """Its own line, launcher included: 24 layers on two nodes."""
    line = (
        "torchrun --nproc_per_node 8 --nnodes 2 --node_rank 0 --master_addr localhost "
        "pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
        "--num-layers 24 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 "
        "--max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size 512 --lr 0.00015 "
        "--train-iters 500000 --lr-decay-iters 320000 --lr-decay-style cosine --min-lr 1.0e-5 "
        "--weight-decay 1e-2 --lr-warmup-fraction .01 --clip-grad 1.0 --use-flash-attn "
        "--use-distributed-optimizer --swiglu --bf16"
    )
    found = job_of_arguments(read_arguments(line))
    assert (found.world, found.tp, found.pp, found.dp) == (16, 2, 2, 4)
    assert (found.model.ffn, found.model.vocab, found.padded_vocab) == (10880, 50257, 50432)
    assert found.micro_batches == 32
    assert found.settings.optimizer.sharding == "optimizer"
    assert found.model.gated
    assert found.model.tied
    tool = line.replace("torchrun ", "python ../get_training_info.py ").replace(
        "pretrain_gpt.py ", ""
    )
    assert job_of_arguments(read_arguments(tool)) == found


@for_each(
    ("line", "world", "each"),
    [
        ("", 1, 1),
        ("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 4, 4),
        ("WORLD_SIZE=16 python pretrain_gpt.py", 16, 8),
        ("torchrun --nproc-per-node=4 --nnodes=3 a/pretrain_gpt.py", 12, 4),
        ("torchrun --standalone --nproc_per_node 2 pretrain_gpt.py", 2, 2),
        ("python -m torch.distributed.run --nnodes 4:4 --nproc_per_node 2 pretrain_gpt.py", 8, 2),
        ("srun -N 2 --ntasks-per-node=4 python -u pretrain_gpt.py", 8, 4),
        ("mpirun -np 6 python pretrain_gpt.py", 6, 6),
        ("--num-experts 8 --expert-model-parallel-size 8 --disable-bias-linear", 8, 8),
    ],
)
def test_world(line: str, world: int, each: int) -> None:
    args = read_arguments(f"{line} {SMALL}")
    assert (args.world, args.devices_per_node) == (world, each)


def test_a_given_world_is_the_one() -> None:
    line = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SMALL}"
    assert read_arguments(line, 64).world == 64


def test_defaults_are_megatrons() -> None:
    found = small()
    assert found.global_batch == 2
    assert (found.model.ffn, found.model.head, found.model.norm) == (256, 16, "layernorm")
    assert found.settings == Settings(
        precision="fp32",
        optimizer=OptimizerSettings(master=0),
        kernels=Kernels(loader_mask=True),  # which plans do without
    )
    assert small("--swiglu").model.ffn == 128  # 8/3 of 64 in multiples of 64
    assert small("--quick-geglu").model.ffn == 256


def test_sequence_parallelism_is_off_without_tensor_parallelism() -> None:
    assert not small("--sequence-parallel").settings.sequence_parallel
    assert small("--sequence-parallel --tensor-model-parallel-size 2").settings.sequence_parallel


@for_each(
    ("more", "layers"),
    [
        ("", [2, 2, 2, 2]),
        ("--num-layers-per-virtual-pipeline-stage 1", [1] * 8),
        (
            "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3",
            [1, 2, 2, 3],
        ),
        ("--decoder-last-pipeline-num-layers 2", [2, 2, 2, 2]),
        ("--pipeline-model-parallel-layout E|t*4|t*4|L", [0, 4, 4, 0]),
    ],
)
def test_pipelines(more: str, layers: list[int]) -> None:
    many = "--pipeline-model-parallel-size 4 --global-batch-size 16"
    assert small(f"{many} {more}").layout == split_layout(layers)


def test_embedding_and_loss_counted_as_layers() -> None:
    both = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    found = small(f"--pipeline-model-parallel-size 5 {both}".replace("8", "8"))
    assert found.layout == split_layout([1, 2, 2, 2, 1])


@for_each(
    ("pattern", "expected"),
    [
        ("1", (0, 1, ())),
        ("2", (0, 2, ())),
        ("([0]*3+[1]*5)", (3, 1, ())),
        ("([0]+[1])*4", (1, 2, ())),
        ("([1]*3+[0]*1)*2", (0, 1, (True, True, True, False) * 2)),
    ],
)
def test_expert_layers(pattern: str, expected: tuple[int, int, tuple[bool, ...]]) -> None:
    model = small(f"--num-experts 4 --disable-bias-linear --moe-layer-freq {pattern}").model
    assert model.experts is not None
    assert (model.experts.dense_first, model.experts.every, model.experts_in) == expected


def test_a_model_like_deepseek() -> None:
    """Latent attention, a dense layer first, shared and routed experts."""
    made = job(deepseek(), tp=1, pp=2, dp=4, layout=None, settings=Settings(ep=4))
    args = arguments_of_job(made)
    assert "--kv-lora-rank 32" in " ".join(args.argv)
    assert "--moe-layer-freq ([0]+[1]*7)" in " ".join(args.argv)
    assert "--num-query-groups" not in args.argv
    assert job_of_arguments(args) == made


@for_each(
    ("flags", "expected"),
    [
        ("--bf16", (4, 4, 8)),
        ("--bf16 --grad-reduce-in-bf16", (2, 4, 8)),
        ("--bf16 --accumulate-allreduce-grads-in-fp32", (4, 4, 8)),
        ("--fp16", (2, 4, 8)),
        ("", (4, 0, 8)),
        ("--bf16 --optimizer sgd", (4, 4, 4)),
        ("--bf16 --optimizer sgd --sgd-momentum 0", (4, 4, 0)),
        ("--bf16 --optimizer lion", (4, 4, 4)),
        ("--bf16 --optimizer muon", (4, 4, 4)),
        ("--bf16 --optimizer adaptive_muon", (4, 4, 8)),  # AdaMuon keeps squares as well
        (
            "--bf16 --use-distributed-optimizer --use-precision-aware-optimizer "
            "--main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
            (2, 2, 4),
        ),
        *(
            (
                "--bf16 --use-distributed-optimizer --use-precision-aware-optimizer "
                f"--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --fp8-format {kind}"
                f" --fp8-recipe {recipe}",
                (4, master, 4),
            )
            for kind, recipe, master in (
                ("hybrid", "delayed", 2),
                ("hybrid", "tensorwise", 4),
                ("e4m3", "blockwise", 4),
                ("e4m3", "mxfp8", 4),
            )
        ),
    ],
)
def test_bytes_of_states(flags: str, expected: tuple[int, int, int]) -> None:
    optimizer = small(flags).settings.optimizer
    assert (optimizer.gradient, optimizer.master, optimizer.moments) == expected


@for_each(
    ("line", "message"),
    [
        ("", "found an empty command line"),
        ("ls -l", "expected pretrain_gpt.py and its arguments, found 'ls'"),
        ("python pretrain_t5.py --num-layers 2", "trains T5, expected one that trains decoder"),
        ("torchrun --nproc_per_node gpu pretrain_gpt.py", "--nproc_per_node: found gpu, which"),
        (f"{SMALL} --model-type t5", "--model-type: .* no such argument any more"),
        (f"{SMALL} --hybrid-layer-pattern M-M-",
         "--hybrid-layer-pattern: found 4 layers, expected --num-layers"),
        (f"{SMALL} --spec my.module spec", "--spec: found a model of its own"),
        (f"{SMALL} --cp-comm-type p2p a2a", "--cp-comm-type: found a2a, p2p in different"),
        (f"{SMALL} --optimizer soap", "--optimizer: found soap"),
        ("--micro-batch-size 1 --use-checkpoint-args --load here",
         r"--num-layers: found none, .* that the checkpoint has .* \(and 4 more\)"),
        ("'", "not a command line"),
    ],
)  # fmt: skip
def test_what_is_no_launch(line: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        job_of_arguments(read_arguments(line))
    assert "\n" not in str(caught.value)


def test_a_vocabulary_that_only_a_file_says() -> None:
    line = SMALL.replace(
        "--vocab-size 100", "--tokenizer-type Llama2Tokenizer --tokenizer-model t.m"
    )
    with pytest.raises(SpecError, match=r"Llama2Tokenizer of t\.m.*add --vocab-size N"):
        job_of_arguments(read_arguments(line))
    assert small("--padded-vocab-size 256").padded_vocab == 256


def test_the_source_is_named() -> None:
    with pytest.raises(SpecError, match=r"^run\.sh: line 3: --bogus"):
        read_arguments("--bogus", source="run.sh: line 3")


def test_what_megatron_cannot_say() -> None:
    odd = job(settings=Settings(kernels=Kernels(implementation="local")))
    with pytest.raises(SpecError, match=r"kernels\.attention: found flash with local"):
        arguments_of_job(odd)


def test_an_even_pipeline_needs_no_layout() -> None:
    made = job(pp=2, dp=1, layout=even_layout(8, 2, 2))
    words = " ".join(arguments_of_job(made).argv)
    assert "--num-virtual-stages-per-pipeline-rank 2" in words
    assert "layout" not in words
