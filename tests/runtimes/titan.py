"""torchtitan without the packages that read text and draw charts, which do nothing here, and what
it reads of an exported plan."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ilp_planner.formats.exported import file_name
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.job.decoder import rank_modules
from ilp_planner.specs.training import TrainingJob
from tests.training_jobs import deepseek, llama

# of `Requires-Dist`
UNUSED = ("datasets", "einops", "PIL", "tokenizers", "torchdata")
# single modules, and what they need; torch itself must not find a Triton that is none
MODULES = {
    "torch.utils.tensorboard": "tensorboard",
    "torchtitan.models.moe.kernels": "triton",
    "torchtitan.distributed.minimal_async_ep.kernels": "triton",
}

SMALL = {"layers": 2, "sequence": 64}
MODELS = {
    "llama3": llama(**SMALL),
    "qwen3": llama(**SMALL, qk_norm=True, kv_heads=4),
    "deepseek_v3": deepseek(**SMALL),
}  # by torchtitan's names


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


def whole_parameters(case: TrainingJob) -> int:
    """Return the parameters of a plan's whole model, which no rank divides or pads."""
    settings = replace(case.settings, cp=1, ep=1, etp=0, vocab_multiple=1)
    alone = replace(case, tp=1, pp=1, dp=1, layout=None, settings=settings)
    return sum(module.parameters for module in rank_modules(alone, 0))


def read(case: TrainingJob, folder: Path, name: str = "run") -> Any:
    """Write the exported files, import the model if there is one, and let torchtitan read."""
    from torchtitan.config import ConfigManager
    from torchtitan.protocols import train_spec

    for suffix, text in export_torchtitan(case, name).files.items():
        (folder / file_name(name, suffix)).write_text(text)
    for module in folder.glob("*_model.py"):
        train_spec._extra_train_specs.pop(module.stem, None)
        spec = importlib.util.spec_from_file_location(module.stem, module)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return ConfigManager().parse_args(["--job.config_file", str(folder / f"{name}.toml")])
