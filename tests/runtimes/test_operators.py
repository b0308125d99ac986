"""Recomputation by operators in torchtitan's own hands: which products its policy keeps."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ilp_planner.job.operators import outputs_kept, shares_kept
from ilp_planner.job.work import layer_work
from ilp_planner.spaces.training.enumerate.recomputations import BY_OPERATORS
from tests.runtimes.titan import MODELS, read, stand_in_for_unused
from tests.training_jobs import job
from tests.training_jobs import settings as usual

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import TrainingJob

torch = pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
stand_in_for_unused()
pytest.importorskip("tyro", reason="needs the extra 'runtimes': tyro")
pytest.importorskip("torchtitan", reason="needs torchtitan, installed without what it asks for")

from torch.utils import checkpoint  # noqa: E402
from torchtitan.distributed.activation_checkpoint import apply_ac  # noqa: E402
from torchtitan.protocols import train_spec  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
Shape = tuple[int, int, int]  # m, n, k of a product


def products(case: TrainingJob, folder: Path, patch: pytest.MonkeyPatch) -> dict[str, list[Shape]]:
    """Return the products of the first layer that torchtitan's policy keeps and makes again, as it
    is asked about them in the layer's forward pass on the CPU."""
    found: dict[str, list[Shape]] = {"kept": [], "again": []}
    plain = checkpoint.create_selective_checkpoint_contexts

    def watching(policy: Any) -> Any:
        def asked(context: Any, function: Any, *args: Any, **options: Any) -> Any:
            answer = policy(context, function, *args, **options)
            if function == torch.ops.aten.mm.default and not context.is_recompute:
                kept = answer == checkpoint.CheckpointPolicy.MUST_SAVE
                (m, k), n = args[0].shape, args[1].shape[1]
                found["kept" if kept else "again"].append((m, n, k))
            return answer

        return plain(asked)

    patch.setattr(checkpoint, "create_selective_checkpoint_contexts", watching)
    config = read(case, folder)
    spec = train_spec.get_train_spec(config.model.name)
    arguments = spec.model_args[config.model.flavor]
    arguments.update_from_config(config)
    built = spec.model_cls(arguments)
    apply_ac(built, config.activation_checkpoint, op_sac_save_list=saved(spec))
    rope = built.rope_cache if hasattr(built, "rope_cache") else built.freqs_cis
    built.layers["0"](torch.zeros(case.micro_batch, case.model.sequence, 256), rope, None)
    return found


def saved(spec: Any) -> set[Any]:
    """Return the operators whose outputs are kept, of torchtitan's module of a model."""
    own: set[Any] = importlib.import_module(spec.parallelize_fn.__module__)._op_sac_save_list
    return own


@pytest.mark.parametrize("name", MODELS)
def test_the_policy_keeps_what_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of queries, keys and values the other release keeps more: the keys."""
    model: Decoder = MODELS[name]
    settings = usual(sequence_parallel=False, recompute=BY_OPERATORS)
    case = job(model, tp=1, pp=1, layout=None, settings=settings)
    found = products(case, tmp_path, monkeypatch)
    tokens = case.micro_batch * model.sequence
    kept = Counter(n for m, n, _ in found["kept"] if m == tokens)
    said = Counter(k.shape[-1] for k in outputs_kept(case, False) if k.why == "of a product")
    assert not kept - said
    assert list((said - kept).elements()) == ([] if model.latent else [model.kv_heads * model.head])
    again = sum(2 * m * n * k for m, n, k in found["again"])
    shares = shares_kept(case, False)
    expected = sum(
        (1 - shares.get(module.name, 0.0)) * sum(kernel.flops for kernel in module.forward)
        for module in layer_work(case, kind=0)
    )
    assert again == pytest.approx(expected)


@pytest.mark.parametrize("name", MODELS)
def test_attention_and_messages_are_kept(name: str) -> None:
    operators = saved(train_spec.get_train_spec(name))
    assert {
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_cudnn_attention.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    } <= operators
    gather = torch.ops._c10d_functional.all_gather_into_tensor.default
    assert gather not in operators
    if name == "deepseek_v3":
        assert torch.ops._c10d_functional.all_to_all_single.default in operators
    settings = usual(sequence_parallel=True, recompute=BY_OPERATORS)
    case = replace(job(MODELS[name], tp=2, pp=1, layout=None), settings=settings)
    shares = shares_kept(case, False)
    for product in ("self_attention.linear_proj", "mlp.linear_fc2"):
        assert shares[product] == 1
    assert not {"mlp.linear_fc1", "self_attention.linear_qkv"} & set(shares)
