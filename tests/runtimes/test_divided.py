"""Backward passes in two parts, as PyTorch runs them on layers of torchtitan: what waits between
them, and why there is no recomputation."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ilp_planner.job.decoder import layer_module
from ilp_planner.job.parts import gradients_waiting
from tests.runtimes.titan import MODELS, read, stand_in_for_unused
from tests.training_jobs import job
from tests.training_jobs import settings as usual

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ilp_planner.specs.training import TrainingJob

torch = pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
stand_in_for_unused()
pytest.importorskip("tyro", reason="needs the extra 'runtimes': tyro")
pytest.importorskip("torchtitan", reason="needs torchtitan, installed without what it asks for")

from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torchtitan.protocols import train_spec  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass(frozen=True)
class Box:
    """A tensor that autograd has saved."""

    tensor: Any


def case_of(name: str) -> TrainingJob:
    settings = usual(sequence_parallel=False, schedule="zb-v")
    return job(MODELS[name], tp=1, pp=1, layout=None, settings=settings)


def first_layer(case: TrainingJob, folder: Path) -> tuple[Any, Callable[[Any], Any]]:
    """Return torchtitan's first layer, and what runs it forward."""
    config = read(case, folder)
    spec = train_spec.get_train_spec(config.model.name)
    arguments = spec.model_args[config.model.flavor]
    arguments.update_from_config(config)
    built = spec.model_cls(arguments)
    rope = built.rope_cache if hasattr(built, "rope_cache") else built.freqs_cis
    layer = built.layers["0"]
    return layer, lambda given: layer(given, rope, None)


def halves(
    case: TrainingJob, layer: Any, run: Callable[[Any], Any]
) -> tuple[Callable[[], list[Any]], Callable[[], object]]:
    """Run a layer forward; return both parts of its backward pass, to be called in this order. The
    first one returns the groups of weights, with the gradients that wait for the second."""
    shape = case.micro_batch, case.model.sequence, case.model.hidden
    given = torch.randn(shape, requires_grad=True)
    output = run(given)
    groups: list[Any] = []

    def inputs() -> list[Any]:
        gradient = torch.randn_like(output)
        _, found = stage_backward_input([output], [gradient], [given], iter(layer.parameters()))
        groups.extend(found)
        return groups

    return inputs, lambda: stage_backward_weight(iter(layer.parameters()), groups)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_products_and_norms_wait_beside_all_that_was_kept(
    name: str, tmp_path: Path
) -> None:
    case, boxes = case_of(name), []

    def pack(tensor: Any) -> Box:
        box = Box(tensor)
        boxes.append(weakref.ref(box))
        return box

    layer, run = first_layer(case, tmp_path)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda box: box.tensor):
        inputs, weights = halves(case, layer, run)
    kept = sum(box() is not None for box in boxes)
    waiting = {
        gradient.untyped_storage().data_ptr(): gradient.numel()
        for group in inputs()
        for gradients in group["grads"]
        for gradient in gradients
        if gradient is not None
    }
    said = gradients_waiting(case, "layer", layer_module(case, kind=0))
    assert sum(waiting.values()) * case.settings.width == said
    assert sum(box() is not None for box in boxes) == kept
    weights()
    assert all(weight.grad is not None for weight in layer.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_computes_again_for_every_group_of_weights(name: str, tmp_path: Path) -> None:
    """So plans that divide backward passes compute nothing again."""
    case, runs = case_of(name), []
    layer, run = first_layer(case, tmp_path)
    layer.register_forward_pre_hook(lambda *_: runs.append(1))
    inputs, weights = halves(case, layer, partial(checkpoint, run, use_reentrant=False))
    groups = len(inputs())
    assert len(runs) == 2  # forward, and again for the gradients of inputs
    weights()
    assert len(runs) == 2 + groups > 2 + 4
