"""What is exported to NeMo is read again as the same job; NeMo's older names are read too."""

import pytest
import yaml
from hypothesis import given

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.formats.exported import Expected
from ilp_planner.formats.imported.table import flat
from ilp_planner.formats.imports import IMPORTS, Recognised, read
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.changes import as_said
from ilp_planner.formats.megatron.values import VIRTUAL
from ilp_planner.formats.nearest_run import differences
from ilp_planner.formats.nemo import export_nemo
from ilp_planner.specs.training import TrainingJob
from ilp_planner.specs.tuning import BRIDGE_TARGETS, Tuning
from tests.examples import examples
from tests.imported_cases import arguments_of, job_of
from tests.training_jobs import jobs

# Not said by the file, or said in another way: local modules are a specification of the recipe, and
# there is no fused kernel of GeLU without a bias.
UNSAID = ("settings.kernels.", "settings.etp ", "devices_per_node ")
ROW = next(row for row in IMPORTS if row.name == "nemo")


@examples(60)
@given(jobs())
def test_what_is_exported_is_read_again(exported: TrainingJob) -> None:
    try:
        text = export_nemo(exported, "a", Expected()).files[".yaml"]
    except PlanError:
        return
    args = read(Recognised(ROW, tuple(flat(yaml.safe_load(text))), "a.yaml"), exported.world)
    again = job_of_arguments(args, checked=False)
    others = differences(as_said(exported), as_said(again))
    assert not [text for text in others if not text.startswith(UNSAID)]
    assert not [remark for remark in args.remarks if "not read" in remark]
    assert not (args.given("pipeline_model_parallel_layout") and args.given(VIRTUAL))


def test_older_names() -> None:
    found = job_of("nemo", None)
    assert (found.world, found.tp, found.pp, found.dp) == (8, 2, 2, 2)
    assert (found.model.gated, found.model.bias, found.model.norm) == (True, False, "rmsnorm")
    assert (found.model.kv_heads, found.model.sequence) == (4, 512)
    assert found.settings.optimizer.sharding == "optimizer"
    again = job_of(
        "nemo",
        None,
        model__activations_checkpoint_granularity="full",
        model__activations_checkpoint_method="block",
        model__activations_checkpoint_num_layers=1,
    )
    assert again.settings.recompute.kind == "block"


def test_recipes_say_their_model() -> None:
    changed = {f"model__{key}": None for key in ("num_layers", "hidden_size", "vocab_size")}
    changed |= {f"model__{key}": None for key in ("num_attention_heads", "num_query_groups")}
    changed |= {f"model__{key}": None for key in ("ffn_hidden_size", "encoder_seq_length")}
    found = job_of(
        "nemo", None, recipe="llama3_8b_pretrain_config", model__seq_length=512, **changed
    )
    assert found.model.hidden == 4096
    tuned = job_of("nemo", None, recipe="llama3_8b_peft_config", **changed)
    assert tuned.settings.tuning == Tuning(rank=32, targets=BRIDGE_TARGETS)
    with pytest.raises(SpecError, match="recipe: found 'mine'"):
        job_of("nemo", None, recipe="mine", **changed)


def test_adapters() -> None:
    said = {"peft__dim": 8, "peft__target_modules": ["linear_qkv"], "peft__dropout": 0.1}
    tuning = job_of("nemo", None, **said).settings.tuning
    assert tuning == Tuning(rank=8, targets=("linear_qkv",), dropout=0.1)
    with pytest.raises(SpecError, match=r"peft\.target_modules: .*found lm_head"):
        job_of("nemo", None, peft__target_modules=["lm_head"])
    assert not job_of("nemo", None, peft=None).settings.tuning


def test_products_in_eight_bits_are_read_as_they_are_said() -> None:
    for said, scaled in ((True, "hybrid"), ("hybrid", "hybrid"), ("e4m3", "e4m3"), (False, None)):
        assert arguments_of("nemo", None, model__fp8=said)["fp8"] == scaled
    with pytest.raises(SpecError, match=r"model\.fp8: found 'e5m2', expected one of true"):
        job_of("nemo", None, model__fp8="e5m2")
