"""torchtitan 0.3.0 in a process of its own: it has the package name of the release that the tests
import. Reads a JSON list of exported modules, and prints what torchtitan makes of each."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSION = "0.3.0"
# Where `make` installs it, beside the environment's own packages.
FOLDER = Path(sys.prefix) / f"torchtitan-{VERSION}"
ROPE = (
    *("dim", "max_seq_len", "theta", "scaling", "scaling_factor", "low_freq_factor"),
    *("high_freq_factor", "original_max_position_embeddings", "rope_factor", "beta_fast"),
    *("beta_slow", "original_seq_len", "truncate"),
)


def look_at(modules: list[dict[str, Any]], what: str = "facts") -> list[dict[str, Any]]:
    """Return what torchtitan makes of exported modules, or its error.

    Parameters
    ----------
    modules: of each the `folder`, the name of the `module`, and the `world` that it is for.
    what: the function of this file that is asked.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, what],
        input=json.dumps(modules),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{FOLDER}:{Path(__file__).parents[2]}", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


# ---- in the process of torchtitan ---------------------------------------------------------------


@contextlib.contextmanager
def as_rank(rank: int, world: int) -> Iterator[None]:
    """Let this process be a rank of so many."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def read(folder: str, module: str, *options: str) -> Any:
    """Return the configuration that torchtitan reads."""
    from torchtitan.config import ConfigManager

    sys.path.insert(0, folder)
    sys.modules.pop(module, None)
    try:
        return ConfigManager().parse_args(["--module", module, "--config", "planned", *options])
    finally:
        sys.path.remove(folder)


def facts(folder: str, module: str, world: int) -> dict[str, Any]:
    """Return the configuration that torchtitan reads, and what it builds of it."""
    import torch
    from torchtitan.distributed.parallel_dims import ParallelDims

    config = read(folder, module)
    dims = ParallelDims.from_config(config.parallelism, world)
    with as_rank(0, world):
        dims.build_mesh()
        groups = {
            name: torch.distributed.get_process_group_ranks(mesh.get_group())
            for name in ("pp", "batch", "dp_replicate", "dp_shard", "cp", "tp", "ep")
            if (mesh := dims.get_optional_mesh(name)) is not None
        }
    model = config.model_spec.model
    model.update_from_config(config=config)
    with torch.device("meta"):
        built = model.build()
    checkpoint = config.activation_checkpoint
    return {
        "family": config.model_spec.name,
        "training": dataclasses.asdict(config.training),
        "parallelism": dataclasses.asdict(config.parallelism),
        "compile": dataclasses.asdict(config.compile),
        "checkpoint": checkpoint and type(checkpoint).__qualname__,
        "groups": groups,
        "parameters": sum(p.numel() for p in built.parameters()),
        "rope": {name: getattr(model.layers[0].attention.rope, name) for name in ROPE},
        "epsilons": sorted({m.eps for m in built.modules() if isinstance(m, torch.nn.RMSNorm)}),
        "routers": routers(model),
        "quantised": list(QUANTISED),
        "stages": stages(config, built),
    }


def parallelized(folder: str, module: str, world: int) -> dict[str, Any]:
    """Return the parameters that the first rank holds when torchtitan has split, parallelized and
    sharded the model. Once in a process: torch keeps meshes.

    DTensors stand in for spmd_types, which asks for a PyTorch after 2.13.
    """
    import torch
    from torchtitan.distributed import parallel_dims, utils

    parallel_dims.device_type = "cpu"
    backend = "full_dtensor"
    config = read(folder, module, "--parallelism.spmd_backend", backend)
    utils.set_spmd_backend(backend)
    dims = parallel_dims.ParallelDims.from_config(config.parallelism, world)
    spec = config.model_spec
    said = {
        "parallel_dims": dims,
        "training": config.training,
        "parallelism": config.parallelism,
        "compile_config": config.compile,
        "ac_config": config.activation_checkpoint,
        "dump_folder": folder,
    }
    with as_rank(0, world):
        dims.build_mesh()
        spec.model.update_from_config(config=config)
        with torch.device("meta"):
            model = spec.model.build()
        if dims.pp_enabled:
            parts = spec.pipelining_fn(
                model,
                device=torch.device("cpu"),
                model_config=spec.model,
                parallelize_fn=spec.parallelize_fn,
                loss_fn=torch.nn.functional.mse_loss,
                **said,
            )[1]
        else:
            parts = [spec.parallelize_fn(model, **said)]
        held = sum(p.to_local().numel() for part in parts for p in part.parameters())
    return {"held": held}


def routers(model: Any) -> list[dict[str, Any] | None]:
    """Return how every layer routes tokens to experts; None where it has none."""
    names = ("score_func", "route_norm", "route_scale", "num_expert_groups", "num_limited_groups")
    return [
        layer.moe
        and {name: getattr(layer.moe.router, name) for name in names}
        | {"correction": layer.moe.load_balance_coeff is not None}
        for layer in model.layers
    ]


def stages(config: Any, model: Any) -> list[dict[str, Any]]:
    """Return what torchtitan's split and schedule give to every pipeline rank."""
    import torch
    from torchtitan.distributed.pipeline_parallel import (
        _build_pipeline_schedule,
        _pipeline_module_split,
    )

    p, found = config.parallelism, []
    pp = p.pipeline_parallel_degree
    for rank in range(pp if pp > 1 else 0):
        with as_rank(rank, pp):
            mesh = torch.distributed.device_mesh.init_device_mesh(
                "cpu", (pp,), mesh_dim_names=("pp",)
            )
            split, parts = _pipeline_module_split(
                model,
                mesh,
                p.pipeline_parallel_schedule,
                torch.device("cpu"),
                p.module_fqns_per_model_part,
            )
            schedule = _build_pipeline_schedule(
                parallelism=p,
                local_batch_size=config.training.local_batch_size,
                stages=split,
                loss_fn=torch.nn.functional.mse_loss,
            )
        found.append(
            {
                "schedule": type(schedule).__name__,
                "micro_batches": schedule._n_microbatches,
                "parts": [
                    {
                        "number": stage.stage_index,
                        "layers": [int(name) for name in part.layers],
                        "embedding": part.tok_embeddings is not None,
                        "loss": part.norm is not None and part.lm_head is not None,
                    }
                    for stage, part in zip(split, parts, strict=True)
                ],
            }
        )
    return found


QUANTISED: list[dict[str, Any]] = []  # converters of the module that is read


def stand_in_for_torchao() -> None:
    """Let converters say what they would change: torchao and a GPU would do it."""
    from torchtitan.components import quantization

    class Said:
        def convert(self, config: Any) -> Any:
            return config

    def build(self: Any) -> Said:
        QUANTISED.append({"converter": type(self)._owner.__name__, "fqns": self.fqns})
        return Said()

    for converter in (quantization.MXFP8LinearConverter, quantization.NVFP4LinearConverter):
        converter.Config.build = build


def main() -> None:
    from tests.runtimes.titan import stand_in_for_unused

    stand_in_for_unused()
    import torchtitan.trainer  # noqa: F401 - loads all that the modules import

    stand_in_for_torchao()
    answers = []
    for module in json.load(sys.stdin):
        QUANTISED.clear()
        try:
            answers.append(globals()[sys.argv[1]](**module))
        except (Exception, SystemExit) as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
