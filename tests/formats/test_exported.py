"""What all exporters say of a plan in the same words."""

import importlib
from collections.abc import Callable
from dataclasses import replace

from ilp_planner.formats.deepspeed import export_deepspeed
from ilp_planner.formats.exported import ROCM, Expected, Exported
from ilp_planner.formats.exports import EXPORTS, Export
from ilp_planner.formats.megatron.launch import export_megatron
from ilp_planner.formats.nemo import export_nemo
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.specs.gpu_architectures import BLACKWELL, CDNA_4
from ilp_planner.specs.training import OptimizerSettings
from ilp_planner.specs.tuning import Tuning
from tests.examples import for_each
from tests.training_jobs import job
from tests.training_jobs import settings as usual

EVERY = [row for releases in EXPORTS.values() for row in releases.values()]
OTHERS = [export_deepspeed, export_megatron, export_nemo]
OF_ADAPTERS = ("export_peft",)
OF_ENGINE = ("export_megatron", "export_nemo", "export_swift")
OPTIMIZER = OptimizerSettings(sharding="parameters", from_master=True)


def notes_about(found: Exported, setting: str) -> list[str]:
    return [note for note in found.notes if note.startswith(f"settings.{setting}: ")]


@for_each("export", OTHERS)
def test_shards_of_the_master_copy_are_torchs_alone(export: Callable[..., Exported]) -> None:
    case = job(tp=1, pp=1, dp=4, layout=None, settings=usual(optimizer=OPTIMIZER))
    assert notes_about(export(case, "run", None), "optimizer.from_master")
    assert not notes_about(export_torchtitan(case, "run"), "optimizer.from_master")


@for_each("export", OTHERS)
def test_inputs_are_gathered_again_where_sequences_are_divided(
    export: Callable[..., Exported],
) -> None:
    case = job(settings=usual(keeps_gathered=True))
    assert notes_about(export(case, "run", None), "keeps_gathered")
    alone = replace(case, tp=1)
    assert not notes_about(export(alone, "run", None), "keeps_gathered")
    assert not notes_about(export_torchtitan(case, "run"), "keeps_gathered")


@for_each("row", EVERY)
def test_variables_of_amd_are_in_every_export(row: Export) -> None:
    """Set, or said in the head of a file that sets none; on no other GPU, and those of Transformer
    Engine alone where it runs."""
    module, _, name = row.function.partition(":")
    export = getattr(importlib.import_module(module), name)
    for gpu in (CDNA_4, BLACKWELL):
        made = job(tp=1, pp=1, layout=None, gpu_architecture=gpu)
        made = replace(made, micro_batch=1, global_batch=made.dp)
        if name in OF_ADAPTERS:
            tuning = Tuning(rank=8, targets=("q_proj", "v_proj"))
            made = replace(made, settings=replace(made.settings, tuning=tuning))
        exported = export(made, "run", Expected(model="meta-llama/Meta-Llama-3-8B"))
        found = "".join((*exported.files.values(), *exported.notes))
        for variable in ROCM:
            engine = name in OF_ENGINE or not variable.startswith("NVTE_")
            assert (f"{variable}=" in found) is (gpu is CDNA_4 and engine), variable
