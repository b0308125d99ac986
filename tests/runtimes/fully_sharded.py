"""Jobs that torchtitan runs on gloo: its reader, model, meshes, FSDP, tensor parallelism, pipeline.

Run as `python -m tests.runtimes.fully_sharded FOLDER CASE ...` by `processes.measured`. A case is
exported, and what torchtitan makes of the files is trained as `torchtitan/train.py` does.
"""

from pathlib import Path
from typing import Any

from ilp_planner.specs.training import TrainingJob
from tests.runtimes.gloo_cases import TITAN, WHOLE_LOGITS
from tests.runtimes.processes import Measured, bytes_of, main, plain


class Trainer:
    """A job as torchtitan spreads it over the ranks, this one of them.

    parts: of the model, one per virtual stage. whole, gradients: bytes of whole parameters after a
    forward pass, and of gradients before they are reduced (pipelines) or stepped, at most.
    """

    def __init__(self, job: TrainingJob, config: Any, spec: Any) -> None:
        self.job, self.whole, self.gradients = job, 0, 0
        self.dims = parallel_dims_of(job, config)
        self.divided = self.dims.tp_enabled and not config.parallelism.disable_loss_parallel
        arguments = spec.model_args[config.model.flavor]
        arguments.update_from_config(config)
        with torch.device("meta"):
            model = spec.model_cls(arguments)
        self.schedule = None
        if job.pp == 1:
            self.parts = [spec.parallelize_fn(model, self.dims, config)]
        else:
            cpu = torch.device("cpu")
            self.schedule, self.parts, self.first, self.last = spec.pipelining_fn(
                model, self.dims, config, cpu, arguments, spec.parallelize_fn, cross_entropy_loss
            )
            self._watch(self.schedule)
        for part in self.parts:
            for module in part.modules():
                if isinstance(module, FSDPModule):  # gloo has no sums with a factor
                    module.set_force_sum_reduction_for_comms(True)
            part.to_empty(device="cpu")
            with torch.no_grad():
                part.init_weights()
            part.train()
        self.shards = {id(p) for p in self.parameters}

    @property
    def parameters(self) -> list[Any]:
        """Return the parameters of all parts."""
        return [p for part in self.parts for p in part.parameters()]

    def run(self) -> None:
        """Run forward and backward passes of all micro-batches."""
        size = self.job.micro_batch
        if self.schedule is None:
            for _ in range(self.job.micro_batches):
                tokens, labels = self._batch(size)
                with get_train_context(self.divided)():
                    predicted = self.parts[0](tokens)
                    loss = cross_entropy_loss(predicted, labels) / tokens.numel()
                    self._after_forward()
                    del predicted
                    loss.backward()
        else:
            tokens, labels = self._batch(size * self.job.micro_batches)
            ends = {"target": labels, "losses": []} if self.last else {}
            inputs = (tokens,) if self.first else ()
            self.schedule.step(*inputs, **ends, return_outputs=False)
        self.gradients = max(self.gradients, bytes_of([p.grad for p in self.parameters]))

    def _batch(self, samples: int) -> tuple[Any, Any]:
        shape = (samples, self.job.model.sequence)
        tokens, labels = (torch.randint(0, self.job.model.vocab, shape) for _ in range(2))
        return tokens, labels

    def _after_forward(self) -> None:
        whole = [p for p in self.parameters if id(p) not in self.shards]
        self.whole = max(self.whole, bytes_of(whole))

    def _watch(self, schedule: Any) -> None:
        """Look after every forward pass, and before gradients are reduced."""
        stages = getattr(schedule, "_stages", None) or [schedule._stage]
        waiting = []

        def reduced(reduce: Any, *args: Any) -> None:
            if not waiting:  # before the first of this rank's stages
                groups = [g for part in self.parts for g in param_groups(part)]
                held = [p.unsharded_accumulated_grad for g in groups for p in g.fsdp_params]
                self.gradients = max(self.gradients, bytes_of(held))
            waiting.append(reduce)
            reduce(*args)

        def forward(run: Any, *args: Any, **options: Any) -> Any:
            found = run(*args, **options)
            self._after_forward()
            return found

        for stage in stages:
            stage.perform_reduce_grad = functools.partial(reduced, stage.perform_reduce_grad)
            stage.forward_one_chunk = functools.partial(forward, stage.forward_one_chunk)


def param_groups(part: Any) -> list[Any]:
    """Return what `fully_shard` gathers and reduces together."""
    states = fully_shard.state(part)._state_ctx.all_states
    return [group for state in states for group in state._fsdp_param_groups]


def parallel_dims_of(job: TrainingJob, config: Any) -> Any:
    """Return torchtitan's meshes."""
    p = config.parallelism
    return ParallelDims(
        dp_replicate=p.data_parallel_replicate_degree,
        dp_shard=p.data_parallel_shard_degree,
        cp=p.context_parallel_degree,
        tp=p.tensor_parallel_degree,
        pp=p.pipeline_parallel_degree,
        ep=p.expert_parallel_degree,
        etp=p.expert_tensor_parallel_degree,
        world_size=job.world,
    )


def read_case(job: TrainingJob, folder: Path) -> tuple[Any, Any]:
    """Return the configuration and the model that torchtitan reads of a job."""
    config = read(job, folder)
    config.parallelism.disable_loss_parallel = job in WHOLE_LOGITS
    return config, train_spec.get_train_spec(config.model.name)


def measure(job: TrainingJob, ready: tuple[Any, Any]) -> Measured:
    """Return what this rank holds and sends in the second iteration."""
    trainer = Trainer(job, *ready)
    optimizer = torch.optim.AdamW(trainer.parameters, lr=1e-3, foreach=True)
    for _ in range(2):
        optimizer.zero_grad()
        with Recorder() as recorder:
            trainer.run()
            clip_grad_norm_(trainer.parameters, 1.0, pp_mesh=trainer.dims.get_optional_mesh("pp"))
            optimizer.step()
    states = [v for state in optimizer.state.values() for k, v in state.items() if k != "step"]
    return Measured(
        parameters=bytes_of(trainer.parameters) + trainer.whole,
        gradients=trainer.gradients,
        optimizer=bytes_of(states),
        sent=plain(recorder.sent),
        shapes=[list(p.shape) for p in trainer.parameters],
    )


if __name__ == "__main__":
    import functools

    import torch
    from torch.distributed.fsdp import FSDPModule, fully_shard

    from tests.runtimes.recording import Recorder
    from tests.runtimes.titan import read, stand_in_for_unused

    stand_in_for_unused()
    from torchtitan.components.loss import cross_entropy_loss
    from torchtitan.distributed import ParallelDims, parallel_dims
    from torchtitan.distributed.utils import clip_grad_norm_, get_train_context
    from torchtitan.protocols import train_spec

    parallel_dims.device_type = "cpu"  # it says "cuda" where there is none
    main(TITAN, read_case, measure)
