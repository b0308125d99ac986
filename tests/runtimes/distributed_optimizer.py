"""Jobs that Megatron-Core runs on gloo: its model, its gradient buffers, its optimizers.

Run as `python -m tests.runtimes.distributed_optimizer FOLDER CASE ...` by `processes.measured`, or
as `... --pretrain ARGUMENTS` by torchrun, where it trains by Megatron-LM's arguments.
What Megatron asks of CUDA is answered for the CPU: devices, names of types, streams of random
numbers. Its norm, which is Transformer Engine's or Apex's on a GPU, is PyTorch's.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ilp_planner.specs.training import TrainingJob
from tests.runtimes.gloo_cases import LOCAL, MEGATRON
from tests.runtimes.processes import Measured, bytes_of, main, plain


def read_case(job: TrainingJob, _: Path) -> dict[str, Any]:
    """Return the configuration that Megatron-LM makes of the job's launch line."""
    return section_of_arguments(job, arguments_of_job(job))


def model_of(job: TrainingJob, section: dict[str, Any]) -> tuple[Any, Any]:
    """Return this rank's model and its configuration."""
    settings = {**WITHOUT_GPU, "sequence_parallel": job.tp > 1, "perform_initialization": True}
    config = transformer_config(job, section, **settings)
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=job.padded_vocab,
        max_sequence_length=job.model.sequence,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    )
    return model.bfloat16(), config


def built(job: TrainingJob, section: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return this rank's model, the same in its gradient buffers, and its optimizer."""
    parallel_state.initialize_model_parallel(
        job.tp,
        num_distributed_optimizer_instances=job.settings.optimizer.instances,
        order=job.settings.order,
    )
    sharded = job.settings.optimizer.sharding == "optimizer"
    with OnCpu():
        model, config = model_of(job, section)
        buffers = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True,
            use_distributed_optimizer=sharded,
            num_distributed_optimizer_instances=job.settings.optimizer.instances,
        )
        wrapped = DistributedDataParallel(config, buffers, model)
        stepping = OptimizerConfig(
            optimizer="adam",
            lr=1e-3,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=sharded,
            clip_grad=1.0,
        )
        return model, wrapped, get_megatron_optimizer(stepping, [wrapped])


def step(job: TrainingJob, wrapped: Any, optimizer: Any) -> None:
    """Train for an iteration."""
    for number in range(job.micro_batches):
        last = number == job.micro_batches - 1
        with contextlib.nullcontext() if last else wrapped.no_sync():
            wrapped(*batch(job)).mean().backward()
    finalize_model_grads([wrapped])
    optimizer.step()


def measure(job: TrainingJob, section: dict[str, Any]) -> Measured:
    """Return what this rank holds and sends in the second iteration."""
    model, wrapped, optimizer = built(job, section)
    with OnCpu():
        for _ in range(2):
            wrapped.zero_grad_buffer()
            optimizer.zero_grad()
            with Recorder() as recorder:
                step(job, wrapped, optimizer)
    (adam,) = getattr(optimizer, "chained_optimizers", [optimizer])
    masters = [p for group in adam.optimizer.param_groups for p in group["params"]]
    states = [v for state in adam.optimizer.state.values() for v in state.values()]
    states = [v for v in states if isinstance(v, torch.Tensor) and v.ndim]
    parallel_state.destroy_model_parallel()
    return Measured(
        parameters=bytes_of(list(model.parameters())),
        gradients=bytes_of([buffer.grad_data for buffer in wrapped.buffers]),
        optimizer=bytes_of([*masters, *states]),
        sent=plain(recorder.sent),
        shapes=[list(p.shape) for p in model.parameters()],
    )


def pretrain(arguments: list[str]) -> None:
    """Train by Megatron-LM's arguments, and print its lines."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    job = job_of_arguments(read_arguments(arguments, world, strict=False))
    job = replace(job, settings=replace(job.settings, kernels=LOCAL))  # of the CPU
    steps = int(arguments[arguments.index("--train-iters") + 1])
    _, wrapped, optimizer = built(job, section_of_arguments(job, arguments_of_job(job)))
    with OnCpu():
        for number in range(1, steps + 1):
            begun = time.perf_counter()
            wrapped.zero_grad_buffer()
            optimizer.zero_grad()
            step(job, wrapped, optimizer)
            torch.distributed.barrier()
            took = 1e3 * (time.perf_counter() - begun)
            if rank == 0:
                print(
                    f" iteration {number:8}/{steps:8} | elapsed time per iteration (ms): "
                    f"{took:.1f} | global batch size: {job.global_batch:5} |",
                    flush=True,
                )
    torch.distributed.destroy_process_group()


def batch(job: TrainingJob) -> tuple[Any, ...]:
    """Return tokens, positions, mask and no decoder input; the tokens are labels as well."""
    size = job.model.sequence
    tokens = torch.randint(0, job.model.vocab, (job.micro_batch, size))
    positions = torch.arange(size).expand(job.micro_batch, -1)
    mask = torch.ones(1, 1, size, size, dtype=torch.bool).triu(1)
    return tokens, positions, mask, None, tokens


def norm(_: Any, config: Any, hidden_size: int, eps: float = 1e-5, **__: Any) -> Any:
    """Return PyTorch's norm, marked as Transformer Engine marks its own."""
    found = torch.nn.RMSNorm(hidden_size, eps=eps)
    found.weight.sequence_parallel = config.sequence_parallel
    return found


if __name__ == "__main__":
    import contextlib
    import sys
    import time
    from unittest.mock import MagicMock

    import torch

    # after the module above, which silences what they say of missing packages
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import torch_norm
    from torch.overrides import TorchFunctionMode

    from ilp_planner.formats.megatron.arguments import (
        arguments_of_job,
        job_of_arguments,
        read_arguments,
    )
    from tests.runtimes.megatron_core import (
        WITHOUT_GPU,
        GPTModel,
        parallel_state,
        section_of_arguments,
        transformer_config,
    )
    from tests.runtimes.recording import Recorder

    class OnCpu(TorchFunctionMode):
        """Makes tensors on the CPU that are asked for on a GPU, and calls those of the CPU so."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            options = dict(kwargs or {})
            if "cuda" in str(options.get("device", "")):
                options["device"] = "cpu"
            found = func(*args, **options)
            if func is torch.Tensor.type and isinstance(found, str):
                return found.replace("torch.", "torch.cuda.")
            return found

    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.FloatTensor = torch.FloatTensor
    torch.cuda.Stream = torch.cuda.current_stream = torch.cuda.default_stream = MagicMock
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    torch_norm.WrappedTorchNorm.__new__ = norm
    if sys.argv[1:2] == ["--pretrain"]:
        pretrain(sys.argv[2:])
    else:
        main(MEGATRON, read_case, measure)
