"""Real training on this machine's CPUs, small and short, with one cause each; its logs diagnosed.

python -m tests.benchmarks.doctor_real KIND FILE writes the log of one run, by as many processes of
gloo as its kind has, in torch's own data loader and checkpoints.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WIDTH, SAMPLES = 384, 256
# Kind -> the cause that is right, processes, steps.
KINDS = {
    "real data": ("data", 1, 96),
    "real checkpoints": ("checkpoint", 1, 160),
    "real straggler": ("straggler", 2, 120),
    "real warm-up": ("warm-up", 1, 60),
}
EVERY = {"real data": 8, "real checkpoints": 40}


def train(kind: str, file: Path) -> None:
    """Train, and write a line of JSON for each step."""
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)
    _, processes, steps = KINDS[kind]
    rank = int(os.environ.get("RANK", "0"))
    if processes > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(rank)
    model: Any = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(4)])
    if processes > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())

    class Data(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return steps

        def __getitem__(self, item: int) -> Any:
            if kind == "real data" and item % EVERY[kind] == EVERY[kind] - 1:
                time.sleep(0.3)  # a shard that is fetched
            return torch.randn(SAMPLES, WIDTH)

    lines = []
    loader = torch.utils.data.DataLoader(Data(), batch_size=None)
    batches, begun = iter(loader), time.perf_counter()
    for step in range(1, steps + 1):
        batch = next(batches)
        if kind == "real warm-up" and step <= 3:
            for width in range(8, 320, 4):  # shapes that are tuned and cached
                torch.linalg.svd(torch.randn(width, width))
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if kind == "real straggler" and rank == 1 and torch.rand(()) < 0.15:
            time.sleep(0.02 + 0.1 * float(torch.rand(())))
        optimizer.step()
        if processes > 1:
            dist.barrier()
        if step % EVERY.get(kind, steps + 1) == 0 and kind == "real checkpoints":
            with file.with_suffix(".pt").open("wb") as handle:
                torch.save([torch.randn(24 * 2**20) for _ in range(2)], handle)
                os.fsync(handle.fileno())
        now = time.perf_counter()
        lines.append({"step": step, "train/loss": loss.item(), "step_time": now - begun})
        begun = now
    file.with_suffix(".pt").unlink(missing_ok=True)
    if rank == 0:
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if processes > 1:
        dist.destroy_process_group()


def log_of(kind: str, folder: Path) -> Path:
    """Run a kind in processes of its own; return its log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = folder / f"{kind.replace(' ', '-')}.jsonl"
    count = KINDS[kind][1]
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    command = [sys.executable, "-m", "tests.benchmarks.doctor_real", kind, str(path)]
    running = [
        subprocess.Popen(command, env=os.environ | told | {"RANK": str(rank)})
        for rank in range(count)
    ]
    codes = [one.wait() for one in running]
    assert not any(codes)
    return path


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]))
