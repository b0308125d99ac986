"""Lengths of documents in `solve`, `fit` and saved plans."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.faces.cli.conftest import Done

LENGTHS = "length,count\n64,300\n256,40\n1024,3\n"
SMALL = ("--sequence-length", "1024", "--global-batch-size", "16")


def test_a_saved_plan_holds_its_lengths(ilp_plan: Callable[..., Done], tmp_path: Path) -> None:
    lengths, saved = tmp_path / "lengths.csv", tmp_path / "plan.json"
    lengths.write_text(LENGTHS)
    asked = ("solve", "gpt3-1.3b", "--gpus", "2xH100", "--runtime", "megatron", *SMALL)
    told = ilp_plan(*asked, "--lengths", str(lengths), "--output", str(saved))
    assert told.code == 0
    assert "packed, " in told.out
    inputs = json.loads(saved.read_text())["inputs"]
    assert inputs["lengths"]["text"] == LENGTHS
    assert inputs["batching"] == "packed"
    lengths.unlink()
    again = ilp_plan("evaluate", str(saved), "--check-certificate", "--json")
    assert again.code == 0
    assert 0 <= json.loads(again.out)["throughput"]["padding"] < 0.1


def test_fit_judges_samples_of_documents(ilp_plan: Callable[..., Done], tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text(LENGTHS)
    asked = ("fit", "gpt3-1.3b", "--gpus", "8xH100", *SMALL, "--lengths", str(lengths))
    assert ilp_plan(*asked, "--batching", "longest", "--verdict").code == 0
    refused = ilp_plan(*asked, "--micro-batch-size", "2")
    assert refused.code
    assert "--micro-batch-size: found 2 with packed samples" in refused.err
    alone = ilp_plan("fit", "gpt3-1.3b", "--gpus", "8xH100", "--batching", "packed")
    assert "--batching: found packed without --lengths" in alone.err


def test_images_and_lengths_are_refused_together(
    ilp_plan: Callable[..., Done], tmp_path: Path
) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("\ufeff" + LENGTHS)  # as spreadsheets write it
    asked = (*SMALL, "--gpus", "2xH100", "--lengths", str(lengths))
    refused = ilp_plan("fit", "qwen2-vl-2b", *asked)
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "found lengths for qwen2-vl-2b, which sees images, expected" in refused.err
    assert "; --text-only plans its text alone" in refused.err
    assert ilp_plan("fit", "qwen2-vl-2b", *asked, "--text-only", "--verdict").code == 0
