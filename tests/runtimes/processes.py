"""A training job on gloo: as many processes as it has ranks, which meet in a file.

A module that measures is started once for all of its cases, and forks its ranks when PyTorch and
the training system have been imported, which takes longer than all the cases. Each rank writes what
it found. There is no network: gloo connects the processes over the loopback device.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ilp_planner.specs.training import TrainingJob

ROOT = Path(__file__).parents[2]
SECONDS = 300
Messages = Counter[tuple[str, tuple[int, ...], int]]  # collective, ranks, bytes: how often


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a rank held and sent in an iteration that was not its first.

    parameters, gradients, optimizer: bytes. sent: [collective, ranks, bytes of the whole tensor,
    how often]. shapes: of the parameters, as this rank sees them.
    """

    parameters: int
    gradients: int
    optimizer: int
    sent: list[Any]
    shapes: list[Any]

    @property
    def messages(self) -> Messages:
        """Return how often what was sent to whom."""
        return Counter({(name, tuple(ranks), size): n for name, ranks, size, n in self.sent})


def plain(sent: Messages) -> list[Any]:
    """Return counted messages as lists, for JSON."""
    return [[*message, count] for message, count in sent.items()]


def measured(module: str, names: Iterable[str]) -> dict[str, list[Measured]]:
    """Return what every rank of the named cases of a module measured."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", module, folder, *names]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
        environment |= {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
        run = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-6000:]
        found: dict[str, list[Measured]] = {name: [] for name in names}
        for name in found:
            for file in sorted(Path(folder).glob(f"{name}.rank*")):
                found[name].append(Measured(**json.loads(file.read_text())))
    return found


def main(
    cases: Mapping[str, TrainingJob],
    read: Callable[[TrainingJob, Path], Any],
    measure: Callable[[TrainingJob, Any], Measured],
) -> None:
    """Measure the cases that the command line names, those of equally many ranks one by one.

    read: what the training system reads of a job, once for all ranks. measure: what one of them
    holds and sends then.
    """
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    context = multiprocessing.get_context("fork")
    ready = {}
    for name in sorted(names, key=lambda name: cases[name].world):
        own = folder / name
        own.mkdir()
        ready[name] = read(cases[name], own)
    for world, group in groupby(ready, key=lambda name: cases[name].world):
        chosen = [(name, cases[name], ready[name]) for name in group]
        ranks = [
            context.Process(target=_rank, args=(rank, world, folder, chosen, measure))
            for rank in range(world)
        ]
        for process in ranks:
            process.start()
        _wait(ranks)


def _wait(ranks: Sequence[BaseProcess]) -> None:
    """Wait for all ranks; where one fails, end the others, which would wait for it."""
    left = list(ranks)
    while left:
        wait([process.sentinel for process in left])
        left = [process for process in left if process.is_alive()]
        if any(process.exitcode for process in ranks):
            for process in left:
                process.terminate()
            sys.exit(1)


def _rank(
    rank: int,
    world: int,
    folder: Path,
    cases: Sequence[tuple[str, TrainingJob, Any]],
    measure: Callable[[TrainingJob, Any], Measured],
) -> None:
    from torch import distributed

    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    store = distributed.FileStore(str(folder / f"store{world}"), world)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    for name, job, config in cases:
        found = measure(job, config)
        (folder / f"{name}.rank{rank}").write_text(json.dumps(asdict(found)))
    distributed.barrier()
    distributed.destroy_process_group()


def bytes_of(tensors: Sequence[Any]) -> int:
    """Return the bytes that this rank has of tensors of several ranks."""
    own = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in own)
