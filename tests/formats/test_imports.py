"""Whose configuration a file is, and what commands do with it."""

from pathlib import Path

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.imports import IMPORTS, read, recognise
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.ranks import Gpus
from ilp_planner.formats.megatron.script import read_launch
from tests.imported_cases import SMALLEST, arguments_of, recognised, write


@pytest.mark.parametrize("name", SMALLEST)
def test_a_file_is_recognised_and_read_where_launches_are(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name)
    assert recognised(file).row.name == name
    args = read_launch(str(file), 8)
    assert args.values == arguments_of(name).values
    assert job_of_arguments(args).world == 8


def test_other_files_are_nobodys(tmp_path: Path) -> None:
    for text in ("layers: 8\n", "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 2\n", ""):
        (tmp_path / "a.yaml").write_text(text)
        assert recognise(tmp_path / "a.yaml") is None
    assert recognise(tmp_path / "none.yaml") is None


def test_ranks_are_those_of_the_file_else_of_the_cluster(tmp_path: Path) -> None:
    gpus = Gpus(16, 8, "two-nodes")
    nanotron = read(recognised(write(tmp_path, "nanotron")), gpus=gpus)
    assert nanotron.world == 8
    assert "8 ranks" in nanotron.launch
    assert read(recognised(write(tmp_path, "gpt-neox")), gpus=gpus).world == 16
    assert read(recognised(write(tmp_path, "gpt-neox")), 4).world == 4


def test_values_from_outside_count(tmp_path: Path) -> None:
    found = recognised(write(tmp_path, "gpt-neox"))
    args = read(found, 8, supplied={"train_micro_batch_size_per_gpu": "1", "pos_emb": "learned"})
    assert args["micro_batch_size"] == 1
    assert args["position_embedding_type"] == "learned_absolute"


def test_strict_refuses_unknown_keys(tmp_path: Path) -> None:
    found = recognised(write(tmp_path, "gpt-neox", new_key=3))
    assert read(found, 8).remarks
    with pytest.raises(SpecError, match="new_key: found 3, expected a key of GPT-NeoX"):
        read(found, 8, strict=True)


def test_every_import_has_a_case() -> None:
    assert {row.name for row in IMPORTS} == SMALLEST.keys()
