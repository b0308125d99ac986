"""The keywords of Python that are settings or inputs, with their types.

`python -m tests.inputs.keywords` makes them of the two tables.
"""

from collections.abc import Sequence
from typing import TypedDict


class Demands(TypedDict, total=False):
    """What plans must have, and which devices they may use."""

    tp: int | str | Sequence[int] | None
    pp: int | str | Sequence[int] | None
    cp: int | str | Sequence[int] | None
    ep: int | str | Sequence[int] | None
    dp: int | str | Sequence[int] | None
    virtual_stages: int | str | Sequence[int] | None
    micro_batch_group_size: int | str | Sequence[int] | None
    layout: str | Sequence[int] | None
    remainder: str | Sequence[str] | None
    rank_order: str | Sequence[str] | None
    schedule: str | Sequence[str] | None
    recompute: str | Sequence[str] | None
    encoder_recompute: str | Sequence[str] | None
    sharding: str | Sequence[str] | None
    sharding_copies: int | str | Sequence[int] | None
    cp_comm: str | Sequence[str] | None
    overlap: str | Sequence[str] | None
    fused_loss: str | Sequence[str] | None
    gradients: str | Sequence[str] | None
    moments: str | Sequence[str] | None
    keep: str | Sequence[str] | None
    tensor_overlap: str | Sequence[str] | None
    expert_overlap: str | Sequence[str] | None
    cuda_graphs: str | Sequence[str] | None
    optimizer_offload: float | str | Sequence[float] | None
    fp8_attention: str | Sequence[str] | None
    activation_offload: int | str | Sequence[int | str] | None
    optimizer: str | Sequence[str] | None
    muon_tp_mode: str | Sequence[str] | None
    muon_packing: str | Sequence[str] | None
    muon_steps: int | str | Sequence[int] | None
    dispatcher: str | Sequence[str] | None
    fused_permute: str | Sequence[str] | None
    compile: str | Sequence[str] | None
    defer_embedding_wgrad: str | Sequence[str] | None
    lora: int | str | Sequence[int] | None
    lora_targets: str | Sequence[str] | None
    lora_dropout: float | str | Sequence[float] | None
    qlora: str | Sequence[str] | None
    freeze: str | Sequence[str] | None
    max_devices: int | None
    without: int | str | Sequence[int | str] | None
    headroom: str | int | None


class Inputs(Demands, total=False):
    """What a request says besides."""

    text_only: bool | None
    cost_model: str | None
    space: str | None
    memory_rule: str | None
    placement: str | None
    shares: str | None
    stage_tp: str | None
    seats: str | None
    experiment: str | None
    precision: str | None
    price: float | str | None
    global_batch: int | None
    micro_batch_sizes: str | Sequence[int] | None
    memory_limit: str | float | None
    max_stages: int | None
    max_tp: int | None
    max_cp: int | None
    max_stage_nodes: int | None
    hidden_size: int | None
    sequence_length: int | None
    images_per_sample: int | None
    image_size: int | None
    audio_seconds: int | None
    batching: str | None
    vocab_size: int | None


KEYWORDS = Inputs.__annotations__
