"""What a process sends to others, seen by PyTorch's dispatcher.

All collectives pass it: those of `torch.distributed` (`c10d`) and those that tensors of several
ranks make (`_c10d_functional`). Names and arguments are those of PyTorch 2.13 (`torch/csrc/
distributed/c10d/Ops.cpp` and `Functional.cpp`).
"""

from collections import Counter
from typing import Any

import torch
from torch import distributed
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.runtimes.processes import Messages

NAMESPACES = ("c10d", "_c10d_functional")
NOTHING_SENT = {
    "wait_tensor",
    "_wrap_tensor_autograd",
    "barrier",
    "recv_",
}  # senders count what is received
# The argument that is the whole tensor, or several; -1: of the first, each rank has a part of it.
GATHERS = {
    "_allgather_base_": 0,
    "allgather_into_tensor_coalesced_": 0,
    "all_gather_into_tensor": -1,
}
SCATTERS = {
    "_reduce_scatter_base_": 1,
    "reduce_scatter_tensor_coalesced_": 1,
    "reduce_scatter_tensor": 0,
}
REDUCTIONS = {"allreduce_", "allreduce_coalesced_", "all_reduce"}


class Recorder(TorchDispatchMode):
    """Counts the messages of this process while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Messages = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Count a collective; tensors of several ranks first become those of this one."""
        if DTensor in types:
            return NotImplemented
        if func.namespace in NAMESPACES:
            name = func.__name__.split(".")[0]
            if name not in NOTHING_SENT:
                message = _message(name, args)
                self.sent[message] += len(message[1]) > 1
        return func(*args, **(kwargs or {}))


def _message(name: str, args: tuple[Any, ...]) -> tuple[str, tuple[int, ...], int]:
    ranks = _ranks(args)
    if name in GATHERS:
        at = GATHERS[name]
        size = _size(args[0]) * len(ranks) if at < 0 else _size(args[at])
        return "all_gather", ranks, size
    if name in SCATTERS:
        return "reduce_scatter", ranks, _size(args[SCATTERS[name]])
    if name in REDUCTIONS:
        return "all_reduce", ranks, _size(args[0])
    if name == "send":
        return "send_recv", ranks, _size(args[0])
    raise NotImplementedError(f"the tests do not know the collective {name}")


def _size(tensors: Any) -> int:
    """Return the bytes of a tensor or of several."""
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(map(_size, tensors))


def _ranks(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the members of the group, an object or at last a name."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
            group = distributed.ProcessGroup.unbox(arg)
            return tuple(sorted(distributed.get_process_group_ranks(group)))
    group = distributed.distributed_c10d._resolve_process_group(args[-1])
    return tuple(sorted(distributed.get_process_group_ranks(group)))
