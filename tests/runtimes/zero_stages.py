"""Jobs that DeepSpeed runs on gloo: its reader, its engine and ZeRO 1 to 3.

Run as `python -m tests.runtimes.zero_stages FOLDER CASE ...` by `processes.measured`. A case is
exported for DeepSpeed; the model is torchtitan's, as plain PyTorch.
"""

import json
import os
from pathlib import Path
from typing import Any

from ilp_planner.formats.deepspeed import export_deepspeed
from ilp_planner.specs.training import TrainingJob
from tests.runtimes.gloo_cases import ZERO
from tests.runtimes.processes import Measured, bytes_of, main, plain

# Gradients travel as they are added up. A model of less than 1e9 parameters would stay gathered.
FP32 = {"communication_data_type": "fp32", "zero_allow_untested_optimizer": True}
NOTHING_STAYS = {
    "stage3_param_persistence_threshold": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_max_live_parameters": 0,
}
# Of an optimizer: gradients that are added up, and the master copy.
HELD = {
    "optimizer": ("fp32_groups_gradients_flat", "fp32_groups_flat_partition"),
    "gradients": ("averaged_gradients", "single_partition_of_fp32_groups"),
    "parameters": ("grad_partitions_flat_buffer", "fp32_partitioned_groups_flat"),
}


def read_case(job: TrainingJob, folder: Path) -> tuple[Any, Any, Any]:
    """Return the configuration, and torchtitan's model with its arguments."""
    config = json.loads(export_deepspeed(job, "run").files[".json"]) | FP32
    config["zero_optimization"] |= NOTHING_STAYS
    titan = read(job, folder)
    spec = train_spec.get_train_spec(titan.model.name)
    arguments = spec.model_args[titan.model.flavor]
    arguments.update_from_config(titan)
    return config, spec.model_cls, arguments


def measure(job: TrainingJob, ready: tuple[Any, Any, Any]) -> Measured:
    """Return what this rank holds and sends in the third iteration; the second compares ranks."""
    config, model_class, arguments = ready
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}  # wanted, and not used
    deepspeed.comm.init_distributed(dist_backend="gloo", verbose=False)
    model = model_class(arguments)
    shapes = [list(p.shape) for p in model.parameters()]
    with torch.no_grad():
        model.init_weights()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, config=config, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3)
    )
    shape = (job.micro_batch, job.model.sequence)
    for iteration in range(3):
        with Recorder() if iteration == 2 else contextlib.nullcontext() as recorder:
            for _ in range(job.micro_batches):
                tokens, labels = (torch.randint(0, job.model.vocab, shape) for _ in range(2))
                loss = cross_entropy_loss(engine(tokens), labels) / tokens.numel()
                engine.backward(loss)
                gradients = _size(getattr(optimizer, HELD[job.settings.optimizer.sharding][0]))
                engine.step()
    states = [v for state in optimizer.state.values() for k, v in state.items() if k != "step"]
    master = _size(getattr(optimizer, HELD[job.settings.optimizer.sharding][1]))
    return Measured(
        parameters=bytes_of([getattr(p, "ds_tensor", p) for p in model.parameters()]),
        gradients=gradients,
        optimizer=master + bytes_of([v for v in states if v.ndim]),
        sent=plain(recorder.sent),
        shapes=shapes,
    )


def _size(held: Any) -> int:
    """Return the bytes of tensors in lists and dictionaries."""
    if isinstance(held, torch.Tensor):
        return bytes_of([held])
    return sum(_size(one) for one in (held.values() if isinstance(held, dict) else held))


if __name__ == "__main__":
    import contextlib
    import sys

    from tests.runtimes.titan import read, stand_in_for_unused

    stand_in_for_unused()
    import deepspeed
    import torch
    from torchtitan.components.loss import cross_entropy_loss
    from torchtitan.protocols import train_spec

    from tests.runtimes.recording import Recorder

    # it compiles an operator that nothing here uses; the attribute `deepspeed.comm.torch` is torch
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    main(ZERO, read_case, measure)
