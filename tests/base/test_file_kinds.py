"""Files of all kinds are known from how they begin; what is none of them is let through."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError
from ilp_planner.base.file_kinds import HEAD, FileKind, file_kind, refuse_other_kind

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"


@pytest.mark.parametrize(
    ("folder", "pattern", "kind"),
    [
        (ROOT, "models/*.toml", FileKind.SPEC),
        (ROOT, "clusters/*.toml", FileKind.SPEC),
        (ROOT, "solutions/*.json", FileKind.PLAN),
        (DATA, "models/hf/*.json", FileKind.HUGGING_FACE),
        (DATA, "aceso/plans/*.json", FileKind.ACESO),
        (DATA, "aceso/eurosys/*_algo0.csv", FileKind.PROFILE),
    ],
)
def test_files_that_are_here(folder: Path, pattern: str, kind: FileKind) -> None:
    files = list(folder.glob(pattern))
    if not files:
        pytest.skip(f"no {pattern} here")
    assert {file.name: file_kind(file) for file in files} == dict.fromkeys(
        (file.name for file in files), kind
    )


def test_scripts_are_launches_or_nothing_known() -> None:
    files = [*DATA.glob("megatron/scripts/*.sh"), *DATA.glob("megatron/scripts/*.slurm")]
    if not files:
        pytest.skip("no scripts here")
    assert {file_kind(file) for file in files} <= {FileKind.LAUNCH, None}


@given(st.text(), st.sampled_from(["", "{", "# a\n", "name", "[", "a,b", "#!/bin/sh\n"]))
def test_any_text_has_a_kind_or_none(tmp_path_factory, text: str, begin: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_text(begin + text, encoding="utf-8", errors="replace")
    assert file_kind(path) in (None, *FileKind)


def test_other_files_and_pipes_are_let_through(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long").write_text("{" + "a, " * HEAD)
    os.mkfifo(tmp_path / "pipe")
    for name in ("bytes", "long", "pipe", "nothing", "."):
        refuse_other_kind(tmp_path / name, FileKind.PLAN, PlanError)


def test_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y,z\n1,2,3\n")
    refuse_other_kind(path, FileKind.PROFILE, PlanError)
    with pytest.raises(PlanError, match=r"a\.csv: found a profile, .*, expected a saved plan, the"):
        refuse_other_kind(path, FileKind.PLAN, PlanError)
