"""GPT-NeoX's configurations become jobs, with its widths, biases, kernels and batches."""

import pytest

from ilp_planner.base.errors import SpecError
from tests.imported_cases import arguments_of, job_of


def test_degrees_batch_and_model() -> None:
    job = job_of("gpt-neox")
    assert (job.world, job.tp, job.pp, job.dp) == (8, 2, 2, 2)
    assert (job.micro_batch, job.global_batch) == (2, 2 * 4 * 2)
    assert (job.model.layers, job.model.hidden, job.model.ffn) == (8, 256, 1024)
    assert (job.model.positions, job.model.norm, job.model.vocab) == ("rope", "layernorm", 50257)
    assert job.model.tied
    settings = job.settings
    assert (settings.precision, settings.optimizer.sharding) == ("fp16", "optimizer")
    assert settings.kernels.implementation == "local"
    assert settings.recompute.granularity == "none"


@pytest.mark.parametrize(
    ("said", "wide", "multiple", "gated"),
    [
        ({"activation": "swiglu"}, 4 * 256, 1, True),
        ({"activation": "swiglu", "mlp_multiple_of": 128}, 4 * 256, 128, True),
        ({"activation": "geglu", "intermediate_size": 1536}, 1536, 1, True),
        ({"intermediate_size": 1536}, 1536, 1, False),
    ],
)
def test_gates_divide_the_width(
    said: dict[str, object], wide: int, multiple: int, gated: bool
) -> None:
    """As `ParallelMLP` has it: two thirds, half of which goes on, in multiples."""
    half = int(wide * 2 / 3) // 2
    model = job_of("gpt-neox", model_parallel_size=1, **said).model
    assert model.ffn == (-(-half // multiple) * multiple if gated else wide)
    assert model.gated is gated


@pytest.mark.parametrize(
    ("changed", "place", "expected"),
    [
        ({"pipe-parallel-size": 0}, "pp", 1),
        ({"precision": "bfloat16", "fp16.enabled": False}, "settings.precision", "bf16"),
        ({"fp16.enabled": False}, "settings.precision", "fp32"),
        ({"attention_config": [[["flash"], 8]]}, "settings.kernels.attention", "flash"),
        ({"checkpoint_activations": True}, "settings.recompute.method", "uniform"),
        ({"checkpoint_activations": False, "checkpoint_num_layers": 2},
         "settings.recompute.granularity", "none"),
        ({"no-weight-tying": True}, "model.tied", False),
        ({"use_bias_in_mlp": False, "use_bias_in_attn_linear": False}, "model.bias", False),
        ({"use_bias_in_mlp": False}, "model.bias", True),
        ({"tokenizer_type": "HFTokenizer", "vocab-file": "/a/20B_tokenizer.json"},
         "model.vocab", 50277),
        ({"zero_optimization.stage": 0}, "settings.optimizer.sharding", "none"),
        ({"train_batch_size": 64, "gradient_accumulation_steps": None}, "global_batch", 64),
        ({"moe_num_experts": 4, "moe_top_k": 2, "model_parallel_size": 1},
         "model.experts.count", 4),
        ({"moe_num_experts": 1}, "model.experts", None),
        ({"norm": "rmsnorm"}, "model.norm", "rmsnorm"),
    ],
)  # fmt: skip
def test_keys_by_value(changed: dict[str, object], place: str, expected: object) -> None:
    found: object = job_of("gpt-neox", **changed)
    for name in place.split("."):
        found = getattr(found, name)
    assert found == expected


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"attention_config": [[["mamba"], 8]]}, "flash or global"),
        ({"tokenizer_type": "SPMTokenizer"}, "vocab_size: found none"),
        ({"train_micro_batch_size_per_gpu": None}, "train_micro_batch_size_per_gpu: found none"),
        ({"hidden-size": 1.5}, "hidden_size: found '1.5', expected a whole number"),
        ({"activation": "tanh"}, "activation: found 'tanh', expected one of"),
        ({"train_impl": "dpo"}, "train_impl: found 'dpo', expected normal"),
    ],
)
def test_what_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=r"^run\.yaml: ") as error:
        job_of("gpt-neox", **changed)
    assert said in str(error.value)


def test_what_is_not_counted_is_said() -> None:
    text = "\n".join(arguments_of("gpt-neox", gpt_j_residual=True, use_bnb_optimizer=True).remarks)
    assert "gpt_j_residual: not counted" in text
    assert "use_bnb_optimizer: not counted: 8-bit" in text
