"""torchtitan without the packages that read text and draw charts: they do nothing here."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# of `Requires-Dist`
UNUSED = ("datasets", "einops", "PIL", "tokenizers", "torchdata")
# single modules, and what they need; torch itself must not find a Triton that is none
MODULES = {
    "torch.utils.tensorboard": "tensorboard",
    "torchtitan.models.moe.kernels": "triton",
    "torchtitan.distributed.minimal_async_ep.kernels": "triton",
}


class AbsentModule(ModuleType):
    """A module that has a class of every name."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the unused packages where they are not installed."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] not in UNUSED:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stand_in_for_unused() -> None:
    """Let torchtitan be imported where only its configuration and models are needed."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())
    for name, needed in MODULES.items():
        if importlib.util.find_spec(needed) is None:
            sys.modules.setdefault(name, AbsentModule(name))
