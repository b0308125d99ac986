"""Nanotron's configurations become jobs; what Megatron-LM has no likeness of is refused."""

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.training import Recompute
from tests.imported_cases import arguments_of, job_of


def test_degrees_batch_and_model() -> None:
    job = job_of("nanotron", None)
    assert (job.world, job.tp, job.dp, job.pp) == (8, 2, 4, 1)
    assert (job.micro_batch, job.global_batch) == (2, 2 * 8 * 4)
    model, settings = job.model, job.settings
    assert (model.layers, model.hidden, model.ffn, model.heads, model.kv_heads) == (
        4,
        256,
        512,
        8,
        4,
    )
    assert (model.vocab, model.sequence, model.dropout) == (1024, 512, 0.0)
    assert model.gated
    assert not model.bias
    assert not model.tied
    assert (model.norm, model.positions) == ("rmsnorm", "rope")
    assert settings.sequence_parallel
    assert settings.precision == "bf16"
    assert settings.optimizer.sharding == "none"


@pytest.mark.parametrize(
    ("key", "value", "place", "expected"),
    [
        ("optimizer__zero_stage", 1, "settings.optimizer.sharding", "optimizer"),
        ("optimizer__accumulate_grad_in_fp32", False, "settings.optimizer.gradient", 2),
        ("parallelism__tp_mode", "ALL_REDUCE", "settings.sequence_parallel", False),
        ("parallelism__recompute_layer", True, "settings.recompute",
         Recompute(granularity="full", method="uniform", layers=1)),
        ("model__model_config__tie_word_embeddings", True, "model.tied", True),
        ("model__model_config__hidden_act", "gelu", "model.gated", False),
        ("model__model_config__rope_theta", 5e5, "model.rotary.base", 5e5),
        ("model__dtype", "float32", "settings.precision", "fp32"),
    ],
)  # fmt: skip
def test_keys_by_value(key: str, value: object, place: str, expected: object) -> None:
    found: object = job_of("nanotron", None, **{key: value})
    for name in place.split("."):
        found = getattr(found, name)
    assert found == expected


def test_experts() -> None:
    section = "model__model_config__moe_config__"
    experts = job_of(
        "nanotron",
        None,
        **{
            f"{section}num_experts": 4,
            f"{section}top_k": 1,
            f"{section}moe_intermediate_size": 64,
            f"{section}enable_shared_expert": True,
            f"{section}shared_expert_intermediate_size": 96,
            f"{section}layers": [1, 3],
            "parallelism__expert_parallel_size": 2,
        },
    )
    assert experts.settings.ep == 2
    assert experts.model.experts is not None
    assert (experts.model.experts.count, experts.model.experts.top_k) == (4, 1)
    assert (experts.model.experts.ffn, experts.model.experts.shared_ffn) == (64, 96)
    assert experts.model.expert_layers == (False, True, False, True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model__model_config__is_mamba_config": True}, "not Mamba"),
        ({"parallelism__pp": 2, "parallelism__pp_engine": "afab"}, "expected 1f1b"),
        ({"parallelism__tp": "two"}, "parallelism.tp: found 'two', expected a whole number"),
        ({"parallelism__dp": 0}, "parallelism.dp: found 0, expected a whole number from 1"),
        ({"optimizer__zero_stage": 3}, "optimizer.zero_stage: found 3, expected one of 0, 1"),
        ({"optimizer__zero_stage": True}, "optimizer.zero_stage: found true, expected one of 0, 1"),
        ({"parallelism__tp_mode": ["x"]}, "parallelism.tp_mode: found a list of 1"),
        ({"tokens__micro_batch_size": None}, "tokens.micro_batch_size: found none"),
    ],
)
def test_what_is_refused_is_said_in_its_keys(changed: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=r"^run\.yaml: ") as error:
        job_of("nanotron", None, **changed)
    assert said in str(error.value)
    assert "--" not in str(error.value)


def test_keys_that_are_not_read_are_named() -> None:
    args = arguments_of("nanotron", None, general__run="a", logging__level=1, parallelism__new=3)
    text = "\n".join(args.remarks)
    assert "not about the plan: general.run, logging.level" in text
    assert "parallelism.new: not read" in text
    assert "Megatron-LM, the nearest runtime" in text
