"""Random problems of any kind of model for the runtimes that share Megatron's search."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from ilp_planner.analysis.calibration.free import FREE
from ilp_planner.base.errors import InfeasibleError, SpecError
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.settings.table import BY_NAME, SETTINGS
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.decoder import (
    CompressedAttention,
    DeltaNet,
    Experts,
    LatentAttention,
    Mamba,
    SparseAttention,
    Window,
)
from ilp_planner.specs.fabric import Fabric
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.lengths import Lengths
from ilp_planner.specs.machine import Machine
from ilp_planner.specs.training import ORDERS, SHARDINGS
from tests.megatron_cases import GIB, small_cluster
from tests.runtime_cases import MODELS, runtime_problem

# Latent attention to chosen keys has kernels of these sizes alone.
CHOSEN = {
    "latent": LatentAttention(query_rank=128, key_value_rank=512, key=64, rotary=64, value=64),
    "max_position_embeddings": 4096,
}
# What a model is besides one of `MODELS`; torchtitan has none of these.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": (
        "dense",
        {
            **{"gated": False, "bias": True, "norm": "layernorm", "positions": "learned"},
            **{"tied": True, "dropout": 0.1},
        },
    ),
    "tied": ("dense", {"tied": True}),
    "some windows": ("dense", {"window": Window(size=128, full_every=2)}),
    "sinks": ("grouped", {"window": Window(size=128), "sinks": True}),
    "dense first": ("experts", {"experts": Experts(count=4, top_k=2, ffn=256, dense_first=1)}),
    "every second": ("experts", {"experts": Experts(count=4, top_k=1, ffn=256, every=2)}),
    "prediction": ("dense", {"prediction_layers": 1}),
    "prediction by experts": ("latent", {"prediction_layers": 1}),
}
ADAPTED: dict[str, tuple[str, ...]] = {
    "moments": ("8bit", "fp32,paged", "paged-8bit"),
    "fused_loss": ("liger", "none,liger"),
    "lora": ("8", "0,16"),
    "lora_targets": ("q_proj,v_proj", "o_proj,down_proj"),
    "lora_dropout": ("0.1", "0,0.1"),
    "qlora": ("on", "off,on"),
    "freeze": ("embedding", "layers:1", "embedding,layers:0-1", "mlp,output"),
}
# Hybrids, with more layers than a problem has: its first ones are those of the model.
HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Mamba": (
        "grouped",
        {"pattern": "M-*M--M*", "mamba": Mamba(heads=8, head=32, state=64, groups=4)},
    ),
    "Mamba and experts": (
        "experts",
        {"pattern": "M*EM-E*M", "mamba": Mamba(heads=8, head=32, state=64, groups=2)},
    ),
    "delta nets and experts": (
        "experts",
        {
            "pattern": "GE *E GE GE *E GE GE GE",
            "delta": DeltaNet(key_heads=4, value_heads=8, key=32, value=32),
            "attention_gate": True,
        },
    ),
}
# Latent attention to keys that an indexer chooses, which DeepSpeed has not.
SPARSE: dict[str, tuple[str, dict[str, Any]]] = {
    "sparse": ("latent", CHOSEN | {"sparse": SparseAttention(heads=8, head=64, top_k=128)}),
    "sparse, taught by nothing": (
        "latent",
        CHOSEN | {"sparse": SparseAttention(heads=12, head=64, top_k=1024, loss="none")},
    ),
    "sparse with prediction": (
        "dense",
        CHOSEN
        | {"sparse": SparseAttention(heads=16, head=128, top_k=512), "prediction_layers": 1}
        | {"qk_norm": True},
    ),
}
# Attention to pooled keys, and streams of hidden states, which DeepSpeed has not.
POOLED: dict[str, tuple[str, dict[str, Any]]] = {
    "pooled keys": (
        "experts",
        {
            "pattern": "WE CE HE CE HE CE HE CE",
            "compressed": CompressedAttention(
                query_rank=64, output_rank=32, groups=2, rotary=16, window=32, index_heads=4,
                index_head=32, top_k=48,
            ),
            "kv_heads": 1,
            "bias": False,
            "streams": 2,
            "experts": Experts(count=4, top_k=2, ffn=256, shared_ffn=256, hashed=1),
        },
    ),
}  # fmt: skip
POOLED |= {
    "pooled keys with prediction": (
        "experts",
        POOLED["pooled keys"][1]
        | {"prediction_layers": 1, "streams": 1, "experts": Experts(count=4, top_k=1, ffn=256)}
        | {"pattern": "CE HE WE HE CE CE HE WE"},
    )
}
# By space; all, where it is none of these.
KINDS_OF = {"torchtitan": sorted(MODELS), "deepspeed": [*sorted(MODELS), *sorted(KINDS)]}
KINDS |= HYBRIDS | SPARSE | POOLED
# What users may ask for, by the space.
ASKED: dict[str, dict[str, tuple[str, ...]]] = {
    "megatron": {
        "pp": ("2", "1..2"),
        "virtual_stages": ("1", "2..3"),
        "micro_batch_group_size": ("1..12", "3,4"),
        "remainder": ("first", "last", "alone,first"),
        "rank_order": ORDERS,
        "recompute": ("none,full", "core_attn,layernorm,mlp", "block", "none,moe,moe_act"),
        "sharding": ("none,optimizer", "gradients,parameters", ",".join(SHARDINGS)),
        "sharding_copies": ("2", "1,2,4"),
        "cp_comm": ("p2p", "p2p,all_gather,a2a", "a2a+p2p"),
        "overlap": ("none", "data,none"),
        "fused_loss": ("none", "native,none"),
        "gradients": ("bf16", "fp32,bf16"),
        "moments": ("bf16", "fp32,bf16,fp8"),
        "optimizer": ("muon", "adam,muon"),
        "muon_tp_mode": ("duplicated", "blockwise,distributed"),
        "muon_packing": ("off", "on,off"),
        "muon_steps": ("5", "8,10"),
        "tensor_overlap": ("on", "off,on"),
        "expert_overlap": ("on", "off,on"),
        "cuda_graphs": ("attn", "none,attn,layer,full_iteration", "router"),
        "optimizer_offload": ("0.5", "0,0.25,1"),
        "activation_offload": ("none,core_attn+attn_proj", "qkv_linear", "1,2", "none,moe_act"),
        "dispatcher": ("flex", "alltoall,allgather"),
        "fused_permute": ("on", "off,on"),
        "defer_embedding_wgrad": ("on", "off,on"),
        "lora": ("8", "0,16"),
        "lora_targets": ("linear_qkv,linear_proj", "linear_proj", "linear_fc1,linear_fc2"),
        "lora_dropout": ("0.1", "0,0.1"),
        "freeze": ("embedding", "layers:1", "embedding,layers:0-1", "mlp,output"),
    },
    "torchtitan": {
        "pp": ("2", "1..2"),
        "recompute": ("none", "full", "operators", "none,selective"),
        "sharding": ("parameters", "gradients"),
        "sharding_copies": ("1", "2", "1,4"),
        "virtual_stages": ("1", "2..3"),
        "micro_batch_group_size": ("1..12", "2"),
        "remainder": ("first", "last,alone"),
        "tensor_overlap": ("on", "off,on"),
        "compile": ("on", "off,on"),
        "schedule": ("1f1b", "zb-v", "dualpipe-v,interleaved-zb"),
        **ADAPTED,
    },
    "deepspeed": {
        "pp": ("2", "1..2"),
        "recompute": ("none", "full"),
        "sharding": ("none,optimizer", "gradients,parameters"),
        **ADAPTED,
    },
}
SMALL = [(2, 2, 0), (1, 4, 0), (1, 2, 1), (1, 1, 1)]  # equal nodes, devices in each, slower nodes
MEASURED = ("A100-80GB", "H100-80GB", "B200")  # GPUs with kernels of their own
LARGE = [*SMALL, (2, 4, 0), (4, 2, 0), (3, 2, 0), (2, 2, 2), (1, 3, 1)]


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Draw a machine with any of the constants at an end of what a calibration may find."""
    names = draw(st.sets(st.sampled_from(sorted(FREE)), min_size=1))
    return Machine(
        **{name: draw(st.sampled_from((FREE[name].low, FREE[name].high))) for name in sorted(names)}
    )


@st.composite
def on_any_machine(draw: st.DrawFn, cluster: ClusterSpec) -> ClusterSpec:
    """Draw the constants of a cluster's devices, whether their kernels are a measured GPU's, and
    the switches between its nodes."""
    types = {}
    for name, kind in cluster.device_types.items():
        changes: dict[str, Any] = {"machine": draw(machines())}
        if said := draw(st.sampled_from(("", *MEASURED))):
            row = gpu(said)
            changes |= {"gpu": row.name, "kernels": row.constants, "processors": row.units}
            changes |= {"peak": row.peak, "memory_bandwidth": row.memory_bandwidth}
        types[name] = replace(kind, **changes)
    leaf = draw(st.integers(0, 3))
    fabric = Fabric(
        nodes_per_leaf=leaf,
        oversubscription=draw(st.sampled_from((1.0, 2.0, 16.0))) if leaf else 1.0,
        rail_only=draw(st.booleans()),
    )
    return replace(cluster, device_types=types, fabric=fabric)


def hopper(cluster: ClusterSpec) -> ClusterSpec:
    """Return a cluster of GPUs that have kernels of sparse attention, and their measured times."""
    row = gpu("H100-80GB")
    own: dict[str, Any] = {"gpu": row.name, "kernels": row.constants, "processors": row.units}
    own |= {"peak": row.peak, "memory_bandwidth": row.memory_bandwidth}
    kinds = cluster.device_types.items()
    return replace(cluster, device_types={name: replace(one, **own) for name, one in kinds})


@st.composite
def documents(draw: st.DrawFn, space: str, sequence: int) -> Lengths | None:
    """Draw lengths of the documents that samples are made of, as the runtime makes some."""
    if not draw(st.booleans()):
        return None
    found = draw(st.sets(st.integers(1, sequence), min_size=1, max_size=4))
    return Lengths(
        lengths=tuple(sorted(found)),
        counts=tuple(draw(st.integers(1, 50)) for _ in found),
        batching=draw(st.sampled_from(BY_NAME["batching"].search_of(space).values)),
    )


def of_layers(changes: dict[str, Any], layers: int) -> dict[str, Any]:
    """Return what a kind of model has of its own with so many layers: the first ones of a
    pattern."""
    if not changes.get("pattern"):
        return changes
    words = changes["pattern"].split()
    first = (words if len(words) > 1 else words[0])[:layers]
    return changes | {"pattern": (" " if len(words) > 1 else "").join(first)}


@st.composite
def problems(
    draw: st.DrawFn,
    space: str,
    clusters: Sequence[tuple[int, int, int]],
    layers: int,
    demands: int,
    batches: Sequence[int],
    any_machine: bool = False,
) -> Problem[Any]:
    """Draw a problem of any kind of model with so many layers and demands at most, one of these
    batches, much or little memory, and fast or slow links; with any constants of its machines if
    that is asked for."""
    family = space.partition("@")[0]
    kind = draw(st.sampled_from(KINDS_OF.get(family, [*sorted(MODELS), *sorted(KINDS)])))
    base, changes = KINDS.get(kind, (kind, {}))
    nodes, devices, slow = draw(st.sampled_from(clusters))
    between = draw(st.sampled_from((1e9, 2e10, 2e11)))
    cluster = small_cluster(nodes, devices, slow=slow, between=between)
    if any_machine:
        cluster = draw(on_any_machine(cluster))
    if kind in SPARSE or kind in POOLED:
        cluster = hopper(cluster)
    askable = {
        name: values
        for name, values in ASKED[family].items()
        if name not in ADAPTED or BY_NAME[name].search_of(space).is_open
    }
    asked = draw(st.sets(st.sampled_from(sorted(askable)), max_size=demands))
    said = {name: draw(st.sampled_from(askable[name])) for name in sorted(asked)}
    sizes = {
        "layers": draw(st.integers(3, layers)),
        "vocab": draw(st.sampled_from((501, 16000))),
        "sequence": draw(st.sampled_from((256, 2048))),
    }
    documents_too = (
        None if kind in SPARSE or kind in POOLED else draw(documents(space, sizes["sequence"]))
    )
    changes = {**changes, "lengths": documents_too}
    changes = of_layers(changes, sizes["layers"])
    try:
        return runtime_problem(
            space,
            base,
            cluster=cluster,
            global_batch=draw(st.sampled_from(batches)),
            memory_limit=int(draw(st.sampled_from((1.5, 2.0, 3.0, 9.0))) * GIB),
            constraints=constraints_of(said),
            changes={**changes, **sizes},
        )
    except InfeasibleError:  # demands that no degrees meet
        assume(False)
        raise
    except SpecError:  # no part of such a model is trained alone
        assume(not said.keys() & {row.name for row in SETTINGS if row.learns})
        raise


def small_problems(space: str, *, any_machine: bool = False) -> st.SearchStrategy[Problem[Any]]:
    """Return problems on up to four devices, which are solved in less than a second."""
    return problems(space, SMALL, 4, 1, (4, 8, 6), any_machine)


def large_problems(space: str) -> st.SearchStrategy[Problem[Any]]:
    """Return problems on up to eight devices, of several nodes and types."""
    return problems(space, LARGE, 8, 3, (4, 8, 12))
