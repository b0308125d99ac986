"""What layers of AMP's models hold, against PyTorch and against the dimensions of the models."""

import math
from typing import Any

import numpy as np
import pytest

from ilp_planner.peers.amp.models import HEADS, AmpMemory, read_model
from ilp_planner.peers.amp.tables import layer_profile
from ilp_planner.specs.toml_reader import Table
from tests.amp_cases import experiment, published
from tests.examples import for_each

SCALARS = 3  # numbers per token that norms and noise keep, beside those per channel


def memory(**dimensions: Any) -> AmpMemory:
    """Return what the layers of a model hold."""
    found = read_model(Table({"gan": dimensions}, file="x"), "gan").memory
    assert found is not None
    return found


def kept_per_token(torch: Any, width: int, tp: int, seen: int) -> float:
    """Return the fp16 bytes per token that PyTorch keeps of a block of AMP's program: norms without
    weights, noise, attention written out over windows with a bias, GELU written out."""
    own = width // tp
    shapes = {"qkv": (3 * own, width), "out": (width, own), "up": (4 * own, width)}
    weights = {name: torch.randn(shape, requires_grad=True) for name, shape in shapes.items()}
    weights["down"] = torch.randn(width, 4 * own, requires_grad=True)
    bias = torch.zeros(HEADS, seen, seen, requires_grad=True)
    inputs = torch.randn(2, seen, width, requires_grad=True)
    own_storages = {w.untyped_storage().data_ptr() for w in weights.values()}
    saved: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own_storages:
            saved[storage.data_ptr()] = tensor
        return tensor

    def norm(x: Any) -> Any:
        return x * torch.rsqrt(torch.mean(x**2, dim=2, keepdim=True) + 1e-8)

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        noise = torch.randn(2, seen, 1) * torch.zeros([], requires_grad=True)
        x = (norm(inputs) + noise) @ weights["qkv"].T
        q, k, v = x.reshape(2, seen, 3, HEADS, own // HEADS).permute(2, 0, 3, 1, 4)
        shares = (q @ k.transpose(-2, -1) * 0.5 + bias.unsqueeze(0)).softmax(dim=-1)
        x = (shares @ v).transpose(1, 2).reshape(2, seen, own) @ weights["out"].T
        middle = inputs + x
        x = norm(middle) @ weights["up"].T
        x = x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
        result = middle + x @ weights["down"].T
    assert result.shape == inputs.shape
    return (
        sum(float(tensor.untyped_storage().nbytes()) for tensor in saved.values()) / 2 / (2 * seen)
    )


@pytest.mark.slow
@for_each("tp", [1, 2, 4])
@for_each("group", range(6))
def test_a_block_keeps_what_pytorch_keeps_of_it(group: int, tp: int) -> None:
    torch = pytest.importorskip("torch")
    bottom, width = 2, 1024
    depth = [int(g == group) for g in range(6)]
    held = memory(depth=depth, gf_dim=width, bottom_width=bottom)
    side, narrower = bottom * 2**group, (1, 1, 1, 4, 16, 64)[group]
    seen = side**2 if group < 3 else (2 * bottom) ** 2
    kept = kept_per_token(torch, width // narrower, tp, seen)
    expected = (held.kept[1] + held.divided[1] / tp) / side**2
    assert expected == kept - 2 * SCALARS
    assert held.sent[1] == 2 * side**2 * width / narrower


def test_every_parameter_is_in_one_layer() -> None:
    """Products of blocks, the first product with its bias, and six tables of positions."""
    for depth in ([12, 0, 0, 0, 0, 12], [5, 4, 4, 4, 4, 4], [1, 0, 0, 0, 0, 0], [0] * 6):
        held = memory(depth=depth, gf_dim=1024, bottom_width=9)
        widths = [1024, 1024, 1024, 256, 64, 16]
        tables = [(9 * 2**g) ** 2 * w for g, w in enumerate(widths)]
        assert held.repeated.sum() == 513 * 81 * 1024 + sum(tables)
        assert held.parameters.sum() == sum(
            12 * n * w**2 for n, w in zip(depth, widths, strict=True)
        )
    held = memory(depth=[1, 0, 0, 2, 0, 0], gf_dim=1024, bottom_width=9)
    assert held.repeated[1:].tolist() == [tables[0], sum(tables[1:4]), sum(tables[4:])]


@published
def test_the_uneven_model_of_amp_as_layers() -> None:
    found = experiment("het_model").profile
    layers = layer_profile(found)
    (device,) = layers.devices
    for tp in (1, 2, 4):
        (key,) = (key for key in layers.time if key.tp == tp)
        assert (layers.time[key] >= 3 * found.forward[device, tp]).all()
        assert layers.state[device, tp].shape == layers.activation[device, tp].shape == (25,)
    assert layers.boundary[[1, 13, 14, -1]].tolist() == [2 * 81 * 1024] * 2 + [2 * 82944 * 16, 0]
    np.testing.assert_array_equal(layers.activation[device, 1][13:], 82944 * (48 * 16 + 8 * 324))
