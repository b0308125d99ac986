"""The rest of a training step besides forward and backward: adding up gradients, and Adam."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

CLIP = 1.0  # norm of all gradients, Megatron's default
LOSS_SCALE = 4096.0  # of fp16


class MixedAdam:
    """Adam as in mixed-precision training, and the gradients of all micro-batches of a step.

    Gradients are added up in single precision, with 2-byte parameters a master copy is stepped and
    then rounded: 2 + 4 + 4 + 8 bytes for each, in single precision 4 + 4 + 8 (as in Megatron-LM). A
    product's gradient is made first and then added: PyTorch has no kernel for both.

    scale: factor of the loss.

    stepped: make the master copy and the moments as well; without, gradients only.
    """

    def __init__(self, parameters: Iterable[Any], *, stepped: bool = True) -> None:
        self.parameters = list(parameters)
        self.gradients = [torch.zeros_like(p, dtype=torch.float32) for p in self.parameters]
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_add_up, gradient))
            for parameter, gradient in zip(self.parameters, self.gradients, strict=True)
        ]
        self.single = all(p.dtype == torch.float32 for p in self.parameters)
        self.scale = LOSS_SCALE if any(p.dtype == torch.float16 for p in self.parameters) else 1.0
        self.masters: list[Any] = []
        self.adam: Any = None
        if stepped:
            self.masters = (
                self.parameters
                if self.single
                else [p.detach().to(torch.float32).requires_grad_() for p in self.parameters]
            )
            self.adam = torch.optim.AdamW(self.masters, lr=1e-5, fused=True)

    def step(self) -> None:
        """Unscale and clip the gradients, step, round, and begin to add up anew."""
        for master, gradient in zip(self.masters, self.gradients, strict=True):
            master.grad = gradient
        if self.scale != 1.0:
            torch._foreach_mul_(self.gradients, 1.0 / self.scale)
        torch.nn.utils.clip_grad_norm_(self.masters, CLIP)
        self.adam.step()
        if not self.single:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)
        for master in self.masters:
            master.grad = None
        torch._foreach_zero_(self.gradients)

    def release(self) -> None:
        """Let go of the parameters, as they would keep the gradients otherwise."""
        for hook in self.hooks:
            hook.remove()


def state_bytes(parameters: float, dtype: str) -> float:
    """Return the bytes that `MixedAdam` and so many parameters of a precision hold."""
    return parameters * (16 if dtype == "fp32" else 18)


def learnt_bytes(parameters: int, width: int, dtype: str) -> dict[str, float]:
    """Return the columns of the states of so many parameters, of so many bytes each."""
    return {
        "weight_bytes": parameters * width,
        "gradient_bytes": 4 * parameters,
        "state_bytes": state_bytes(parameters, dtype),
    }


def _add_up(gradient: Any, parameter: Any) -> None:
    gradient.add_(parameter.grad)
    parameter.grad = None
