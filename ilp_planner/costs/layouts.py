"""The layouts of tensors on the devices of a stage, and the cost of changing them between two
operators.

Source: Aceso's flexible parallelism (EuroSys 2024 artifact); the operators are Megatron's. A layout
is (replicas, (d0, d1, d2)): how often the tensor is repeated, and into how many parts each
dimension is cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ilp_planner.costs.operators import Option

COLUMN_FIRST = {"enc-attention-qkv", "enc-MLP-GEMM-1"}
ROW_FIRST = {"enc-attention-dense", "enc-MLP-GEMM-2"}
TOKEN = {
    "enc-1st-layernorm",
    "enc-2nd-layernorm",
    "enc-post-attention-dropout",
    "enc-post-MLP-dropout",
}
HEAD = {"enc-attention-softmax", "enc-attention-dropout"}


class Layout(NamedTuple):
    """replicas: copies of the tensor; parts: cuts per dimension."""

    replicas: int
    parts: tuple[int, int, int]


class Change(NamedTuple):
    """Collectives that turn one layout into another, forward and backward, over so many devices."""

    forward: str
    backward: str
    devices: int


def layout(operator: str, option: Option, *, of_input: bool) -> Layout | None:
    """Return the layout an operator wants of its input or gives its output; None: it does not
    care."""
    tp, dp, split = option
    token = Layout(tp, (1, dp, 1))
    column = Layout(1, (1, dp, tp))
    head = Layout(1, (dp, tp, 1))
    batch = Layout(tp, (dp, 1, 1))
    if operator == "encoder-embedding":
        return None if of_input else token
    if operator == "gpt-post-process":
        return batch if of_input else None
    if operator == "final-layernorm":
        return token if of_input else batch
    if operator in TOKEN:
        return token
    if operator in COLUMN_FIRST:
        return token if of_input == (split == 0) else column
    if operator in ROW_FIRST:
        return column if of_input == (split == 0) else token
    if operator == "enc-attention-score":
        return column if of_input else head
    if operator in HEAD:
        return head
    if operator == "enc-attention-context":
        return head if of_input else column
    if operator == "enc-MLP-gelu":
        return column
    return batch


def change(have: Layout | None, want: Layout | None) -> Change | None:
    """Return the collectives from one layout to another, None when nothing needs to move.

    Raises
    ------
    ValueError: Aceso knows no way between these two.
    """
    if have is None or want is None or have == want:
        return None
    if have.replicas > want.replicas:
        for a, b in zip(have.parts, want.parts, strict=True):
            if a < b:
                return Change("split", "all_gather", have.replicas // want.replicas)
        raise ValueError(f"no way from {have} to {want}")
    for i, (a, b) in enumerate(zip(have.parts, want.parts, strict=True)):
        if a > b:
            if have.replicas < want.replicas:
                return Change("all_gather", "split", a // b)
            for j, (c, d) in enumerate(zip(have.parts, want.parts, strict=True)):
                if j != i and c < d:
                    return Change("all_to_all", "all_to_all", a // b)
    raise ValueError(f"no way from {have} to {want}")
