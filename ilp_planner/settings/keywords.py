"""The settings that are keywords of Python, with their types.

`python -m tests.settings.keywords` makes them of the table of settings.
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
    activation_offload: int | str | Sequence[int | str] | None
    dispatcher: str | Sequence[str] | None
    fused_permute: str | Sequence[str] | None
    compile: str | Sequence[str] | None
    defer_embedding_wgrad: str | Sequence[str] | None
    max_devices: int | None
    without: int | str | Sequence[int | str] | None
    headroom: str | int | None
