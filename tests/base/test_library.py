"""Models and clusters are found by name or by path, and a name that is nearly one is told so."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.library import Kind, find_spec, find_specs, library_files, library_folder

ROOT = Path(__file__).parents[2]
KINDS: tuple[Kind, ...] = ("models", "clusters")
EVERY = [(kind, path) for kind in KINDS for path in library_files(kind)]


def test_a_checkout_has_them_at_its_top():
    assert library_folder() == ROOT
    for kind in KINDS:
        assert library_files(kind) == sorted((ROOT / kind).glob("*.toml"))
        assert library_files(kind)


def test_every_file_is_found_by_name_and_by_path():
    for kind, path in EVERY:
        for name in (path.stem, path.name, f"{kind}/{path.name}", str(path)):
            assert find_spec(name, kind).samefile(path)


@given(st.sampled_from(EVERY), st.data())
def test_a_name_with_one_letter_missing_is_told_the_nearest(
    case: tuple[Kind, Path], data: st.DataObject
):
    kind, path = case
    place = data.draw(st.integers(0, len(path.stem) - 1))
    name = path.stem[:place] + path.stem[place + 1 :]
    if name in {other.stem for other in library_files(kind)}:
        return
    with pytest.raises(SpecError, match="did you mean '") as caught:
        find_spec(name.upper(), kind)
    assert find_spec(str(caught.value).split("'")[1], kind)


def test_a_name_that_is_like_none_is_told_all_of_them():
    with pytest.raises(SpecError) as caught:
        find_spec("zzz", "clusters")
    assert all(path.stem in str(caught.value) for path in library_files("clusters"))


def test_files_of_the_user_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    mine, beside = Path("gpt3-350m"), tmp_path / "plans" / "gpt3-350m"
    beside.parent.mkdir()
    for path in (mine, beside):
        path.touch()
    found = find_specs("gpt3-350m", "models", (beside.parent,))
    assert found == [mine, beside, ROOT / "models" / "gpt3-350m.toml"]
