"""The measured machine, and its requirements."""

from __future__ import annotations

import importlib
import importlib.util
import platform
from pathlib import Path

from ilp_planner.base.errors import MeasureError

CPU_INFO = Path("/proc/cpuinfo")


def need_torch(command: str) -> None:
    """Find out that PyTorch is there and can be imported.
    command: that needs it, as `profile measure`.

    Raises
    ------
    MeasureError: it is not; says what installs it.
    """
    try:
        found = importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise MeasureError(f"{command} needs PyTorch: pip install 'ilp-planner[torch]'")
    try:
        importlib.import_module("torch")
    except (ImportError, OSError) as error:
        raise MeasureError(
            f"{command}: PyTorch is installed but cannot be imported ({error}): pip install "
            "--force-reinstall 'ilp-planner[torch]'"
        ) from None


def device_name(kind: str, index: int = 0) -> str:
    """Return the name of the device in a table. kind: `cuda` or `cpu`."""
    if kind == "cpu":
        return "CPU"
    import torch

    return str(torch.cuda.get_device_name(index))


def describe_machine(kind: str, index: int = 0) -> dict[str, str]:
    """Return the lines about this machine that stand above a table's rows.
    kind: `cuda` or `cpu`."""
    import torch

    facts = {
        "device": device_name(kind, index),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if kind == "cuda":
        facts["device memory"] = f"{torch.cuda.get_device_properties(index).total_memory} bytes"
        facts["cuda"] = str(torch.version.cuda)
    return facts


def _processor() -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        for line in CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
