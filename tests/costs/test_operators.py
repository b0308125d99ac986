"""Surroundings of a stage; layouts and their changes against an independent scorer of Aceso's
formulas."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.costs.models import NativeCosts
from ilp_planner.costs.operators import Change, Layout, Option, Surroundings, change, layout
from ilp_planner.costs.profiles.table import RowKey
from ilp_planner.peers.aceso.costs import AcesoCosts
from ilp_planner.plan import OperatorStage, Strategy
from ilp_planner.specs.model_reader import read_model
from tests.examples import for_each
from tests.oracle import ORACLE, oracle
from tests.tiny import make_profile, make_row


def test_a_stage_of_which_nothing_is_said_is_alone_on_its_node() -> None:
    alone = Surroundings(micro_batch=4, micro_batches=2)
    assert (alone.behind, alone.enters_node, alone.leaves_node) == (0, False, False)


ROOT = Path(__file__).parents[2]
OPERATORS = {
    name
    for model in ("gpt3-1.3b", "wide-resnet-1b")
    for name in read_model(ROOT / "models" / f"{model}.toml").operators
}
OPTIONS = [
    Option(tp, devices // tp, split)
    for devices in (1, 2, 4, 8)
    for tp in (1, 2, 4, 8)
    if tp <= devices
    for split in (0, 1)
]
needs_oracle = pytest.mark.skipif(not ORACLE.exists(), reason="no ../shared/oracles")


def theirs(have: Layout | None, want: Layout | None) -> Any:
    """Return the scorer's collectives; its layouts have no partial sums in any operator."""
    old, new = (x and (x.replicas, 1, x.parts) for x in (have, want))
    try:
        return oracle().reshard_prims(old, new)
    except ValueError:
        return ValueError


def ours(have: Layout | None, want: Layout | None) -> Any:
    """Return our collectives in the scorer's form."""
    try:
        return change(have, want) or (None, None, 0)
    except ValueError:
        return ValueError


@needs_oracle
def test_every_operator_lies_as_aceso_says() -> None:
    for name, option, of_input in itertools.product(OPERATORS, OPTIONS, (True, False)):
        mine = layout(name, option, of_input=of_input)
        said = oracle().spec(name, *option, of_input)
        assert (mine and (mine.replicas, 1, mine.parts)) == said, (name, option, of_input)


@needs_oracle
def test_every_change_between_two_operators_is_the_one_that_aceso_makes() -> None:
    # every pair of operators and options is a pair of these layouts
    out, into = (
        {layout(name, option, of_input=x) for name in OPERATORS for option in OPTIONS}
        for x in (False, True)
    )
    outcomes = set()
    for have, want in itertools.product(out, into):
        assert ours(have, want) == theirs(have, want), (have, want)
        found = ours(have, want)
        outcomes.add(found if found is ValueError else found[0])
    assert outcomes == {None, "split", "all_gather", "all_to_all", ValueError}


def test_an_operator_that_does_not_care_moves_nothing() -> None:
    assert layout("encoder-embedding", Option(2, 1, 0), of_input=True) is None
    assert layout("gpt-post-process", Option(2, 1, 0), of_input=False) is None
    somewhere = Layout(1, (2, 1, 1))
    assert change(None, somewhere) is None
    assert change(somewhere, None) is None
    assert change(somewhere, Layout(1, (2, 1, 1))) is None


def test_the_collectives_and_their_devices() -> None:
    replicated, cut, turned = Layout(4, (1, 2, 1)), Layout(1, (1, 2, 4)), Layout(1, (2, 4, 1))
    assert change(replicated, cut) == Change("split", "all_gather", 4)
    assert change(cut, replicated) == Change("all_gather", "split", 4)
    assert change(cut, turned) == Change("all_to_all", "all_to_all", 4)


def test_the_swapped_split_swaps_both_ends() -> None:
    for name in ("enc-attention-qkv", "enc-MLP-GEMM-1", "enc-attention-dense", "enc-MLP-GEMM-2"):
        usual = [layout(name, Option(2, 4, 0), of_input=x) for x in (True, False)]
        swapped = [layout(name, Option(2, 4, 1), of_input=x) for x in (False, True)]
        assert usual == swapped


@for_each("devices", [1, 2, 4, 8])
def test_on_the_same_devices_there_is_always_a_way(devices: int) -> None:
    options = [option for option in OPTIONS if option.tp * option.dp == devices]
    out, into = (
        {layout(name, option, of_input=x) for name in OPERATORS for option in options}
        for x in (False, True)
    )
    for have, want in itertools.product(out, into):
        assert ours(have, want) is not ValueError, (have, want)


@pytest.mark.parametrize("model", [AcesoCosts, NativeCosts])
def test_a_change_without_a_way_takes_forever(model: type[AcesoCosts] | type[NativeCosts]) -> None:
    # one whole tensor on a single device, to be on two: no stage of equal devices asks for it
    chain = ("enc-1st-layernorm", "enc-2nd-layernorm")
    have, want = layout(chain[0], Option(1, 1, 0), of_input=False), Layout(2, (1, 1, 1))
    assert layout(chain[1], Option(2, 1, 0), of_input=True) == want
    with pytest.raises(ValueError, match="no way"):
        change(have, want)
    rows = {
        RowKey(operator=name, micro_batch=1, tp=t, split=0): make_row()
        for name in chain
        for t in (1, 2)
    }
    cost = model(chain, "gpt", make_profile(rows)).stage_cost(
        OperatorStage(
            start=0, stop=2, first_device=0, device_count=2, strategies=(Strategy(), Strategy(tp=2))
        ),
        Surroundings(
            micro_batch=1, micro_batches=1, behind=0, enters_node=False, leaves_node=False
        ),
    )
    assert cost.time == math.inf
    assert all(map(math.isfinite, cost.memory))


def test_t5_never_pays_in_aceso() -> None:
    chain = ("enc-1st-layernorm", "enc-2nd-layernorm")
    profile = make_profile(
        {RowKey(operator=x, micro_batch=1, tp=1, split=0): make_row() for x in chain}
    )
    assert not AcesoCosts(chain, "t5", profile).reshards(*chain)
    assert AcesoCosts(chain, "gpt", profile).reshards(*chain)
    assert NativeCosts(chain, "t5", profile).reshards(*chain)
