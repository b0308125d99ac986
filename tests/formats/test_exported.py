"""What all exporters say of a plan in the same words."""

from collections.abc import Callable
from dataclasses import replace

from ilp_planner.formats.deepspeed import export_deepspeed
from ilp_planner.formats.exported import Exported
from ilp_planner.formats.megatron.launch import export_megatron
from ilp_planner.formats.nemo import export_nemo
from ilp_planner.formats.torchtitan import export_torchtitan
from ilp_planner.specs.training import OptimizerSettings
from tests.examples import for_each
from tests.training_jobs import job
from tests.training_jobs import settings as usual

OTHERS = [export_deepspeed, export_megatron, export_nemo]
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
