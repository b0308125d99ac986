from importlib import import_module

import pytest

from ilp_planner.base.peers import FOLDER, layer_profiles, peers
from ilp_planner.spaces.registry import SPACES

NAMES = {"aceso", "alpa", "amp", "analysis_tool", "metis", "sailor"}


def test_every_folder_is_a_system() -> None:
    assert {*peers()} == {path.parent.name for path in FOLDER.glob("*/__init__.py")} == NAMES
    years = [peer.year for peer in peers().values()]
    assert years == sorted(years, reverse=True)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_system_has_what_it_says(name: str) -> None:
    peer = peers()[name]
    assert str(peer.year) in (import_module(f"ilp_planner.peers.{name}").__doc__ or "") or not (
        peer.spaces or peer.layers
    )
    for space in peer.spaces:
        module, _, function = str(SPACES[space].build).partition(":")
        assert callable(getattr(import_module(module), function))
    if peer.layers:
        assert callable(import_module(f"ilp_planner.peers.{name}.source").layers)


def test_formats_of_whole_layers() -> None:
    assert layer_profiles() == ("metis", "amp")
