"""What is exported to NeMo is read again as the same job; NeMo's older names are read too."""

import pytest
import yaml

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.exported import Expected
from ilp_planner.formats.imported.table import flat
from ilp_planner.formats.imports import IMPORTS, Recognised, read
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.changes import as_said
from ilp_planner.formats.nemo import export_nemo
from ilp_planner.specs.training import OptimizerSettings, Recompute
from tests.imported_cases import job_of
from tests.training_jobs import deepseek, job, llama
from tests.training_jobs import settings as usual

JOBS = {
    "dense": job(),
    "even": job(layout=None),
    "no gate": job(llama(gated=False, ffn=704)),
    "experts": job(deepseek(), settings=usual(ep=2)),
    "recompute": job(settings=usual(recompute=Recompute(granularity="selective"))),
    "block": job(settings=usual(recompute=Recompute(granularity="full", method="block", layers=2))),
    "gradients": job(settings=usual(optimizer=OptimizerSettings(sharding="gradients"))),
    "narrow": job(settings=usual(optimizer=OptimizerSettings(sharding="optimizer", gradient=2))),
}
ROW = next(row for row in IMPORTS if row.name == "nemo")


@pytest.mark.parametrize("name", JOBS)
def test_what_is_exported_is_read_again(name: str) -> None:
    exported = JOBS[name]
    text = export_nemo(exported, name, Expected()).files[".yaml"]
    pairs = tuple(flat(yaml.safe_load(text)))
    args = read(Recognised(ROW, pairs, f"{name}.yaml"), exported.world)
    again = job_of_arguments(args, checked=False)
    assert as_said(again).model == as_said(exported).model
    assert (again.tp, again.pp, again.dp) == (exported.tp, exported.pp, exported.dp)
    assert (again.micro_batch, again.global_batch) == (exported.micro_batch, exported.global_batch)
    assert again.settings.recompute == exported.settings.recompute
    assert again.settings.optimizer == exported.settings.optimizer


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
    with pytest.raises(SpecError, match="recipe: found 'llama3_8b_peft_config'"):
        job_of("nemo", None, recipe="llama3_8b_peft_config", **changed)
