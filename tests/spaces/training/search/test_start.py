"""A search that starts from a saved plan finds what one without it finds, whatever has changed, and
no bound that it takes is above a plan."""

from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import ilp_planner as ilp
from ilp_planner.base.errors import InfeasibleError, SpecError, UsageError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.registry import RUNTIMES
from tests.examples import examples, for_each
from tests.megatron_cases import GIB, small_cluster, small_model, small_problem
from tests.random_plans import Drawer
from tests.random_problems import ASKED, KINDS, KINDS_OF, SMALL, of_layers
from tests.runtime_cases import MODELS

PLANS = 100  # that are drawn of a problem
SEEDS = st.integers(0, 2**32 - 1)
TAKEN = "not derived again"  # what a note says of bounds that were taken
runtimes = pytest.mark.parametrize("space", RUNTIMES)


def draws(space: str) -> dict[str, st.SearchStrategy[Any]]:
    """Return what may be asked, by the names of keywords of `ilp.problem`; None asks nothing."""
    family = space.partition("@")[0]
    asked = {**ASKED[family], "tp": ("1", "2"), "dp": ("1", "2..4"), "layout": ("even", "1,2")}
    return {
        "global_batch": st.sampled_from((4, 8, 12)),
        "memory_limit": st.sampled_from([int(size * GIB) for size in (1.5, 2.0, 3.0, 9.0)]),
        "micro_batch_sizes": st.sampled_from(((), (4,), (2, 4))),
        "max_stages": st.sampled_from((None, 1, 2)),
        "max_tp": st.sampled_from((None, 1, 2)),
        "max_cp": st.sampled_from((None, 1, 2)),
        "headroom": st.sampled_from((None, "0.2 GiB")),
        "without": st.sampled_from((None, "1")),
        **{name: st.sampled_from((None, *values)) for name, values in asked.items()},
    }


@st.composite
def pairs(draw: st.DrawFn, space: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw what is asked, mostly little, and the same but for one to three answers."""
    family, every = space.partition("@")[0], draws(space)
    kind = draw(st.sampled_from(KINDS_OF.get(family, [*sorted(MODELS), *sorted(KINDS)])))
    base, changes = KINDS.get(kind, (kind, {}))
    own = of_layers(changes, 3)
    nodes, devices, slow = draw(st.sampled_from(SMALL))
    old = {
        "model": small_model(**{**MODELS[base], **own, "layers": 3, "sequence": 256}),
        "cluster": small_cluster(nodes, devices, slow=slow),
        "space": space,
        "global_batch": draw(every["global_batch"]),
        "memory_limit": draw(every["memory_limit"]),
    }
    names = st.sets(st.sampled_from(sorted(every)), max_size=2)
    old |= {name: draw(every[name]) for name in sorted(draw(names))}
    changed = st.sets(st.sampled_from(sorted(every)), min_size=1, max_size=3)
    return old, {**old, **{name: draw(every[name]) for name in sorted(draw(changed))}}


def assert_the_same(old: dict[str, Any], new: dict[str, Any], gap: float, seed: int) -> bool:
    """Solve a problem from a plan of another one and without it; tell whether bounds were taken."""
    try:
        problem = ilp.problem(**new)
        first = ilp.solve(ilp.problem(**old), limits=Limits(gap=gap))
    except (InfeasibleError, UsageError):  # demands that nothing meets
        assume(False)
        raise
    except SpecError as error:
        assume("expected a model without" not in str(error))
        raise
    assume(first.plan is not None)
    cold, warm = ilp.solve(problem), ilp.solve(problem, start=first)
    assert (warm.status, warm.among) == (cold.status, cold.among)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    # The plan may leave nodes out: its certificate is of the nodes that it uses, its bound of all.
    assert check_certificate(warm.problem, warm.certificate).holds
    assert warm.check().holds
    for plan in islice(Drawer(cold.problem, seed).plans(cold.plan), PLANS):
        evaluation = evaluate(cold.problem, plan)
        if evaluation.legal and cold.problem.space.outside(cold.problem, plan) is None:
            assert evaluation.iteration_time >= warm.bound * (1 - ROUNDING)
    return any(TAKEN in note for note in warm.notes)


DEMANDS: tuple[dict[str, str], ...] = (
    {},
    {"sharding": "parameters"},
    {"sharding": "none,optimizer"},
    {"cp_comm": "a2a+p2p", "overlap": "none,data"},
    {"gradients": "bf16", "tp": "2"},
)


@for_each(("before", "now"), list(permutations(DEMANDS, 2)))
def test_names_of_before_are_those_of_the_same_settings(
    before: dict[str, str], now: dict[str, str]
) -> None:
    """Names say what differs from the plainest settings, which other demands have others of."""
    old, new = (small_problem(batch=4, constraints=constraints_of(said)) for said in (before, now))
    parts = {part.name: part for part in old.space.parts(old)}
    search = new.space.begin(new, Task(Limits(), "auto"))
    names = new.space.names_before(search, old.constraints)
    for state, name in zip(search.states, names, strict=True):
        found = None if name is None else parts.get(name)
        same = [
            part
            for part in parts.values()
            if part.settings == state.part.settings
            and part.degrees._replace(choice=0) == state.part.degrees._replace(choice=0)
        ]
        assert same == ([] if found is None else [found])


def test_a_result_its_file_and_what_is_loaded_are_starts_alike(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    problem = ilp.problem(small_model(), small_cluster(), global_batch=4, space="megatron")
    first = ilp.solve(problem)
    first.save(file)
    count = len(first.certificate["parts"])
    for start in (first, file, str(file), ilp.load(file)):
        again = ilp.solve(problem, start=start)
        assert again.objective == first.objective
        assert again.certificate == first.certificate
        assert f"bounds of {count} of {count} parts" in again.notes[-1]
    with pytest.raises(UsageError, match="solve: start: found 3, expected a Result or a Saved"):
        ilp.solve(problem, start=3)


def test_a_result_of_objects_without_a_text_gives_its_plan_alone() -> None:
    problem = small_problem(small_cluster(2, 1, between=2e11), batch=4)
    first = ilp.solve(problem)
    note = ilp.solve(problem, start=first).notes[-1]
    assert note.startswith("start: the plan of result, ")
    assert note.endswith("none of its bounds: an input is an object, of which it is not known "
                         "whether it is the same")  # fmt: skip


@pytest.mark.slow
@runtimes
def test_starts_change_no_answer(space: str) -> None:
    taken = []

    @examples(12)
    @given(asked=pairs(space), gap=st.sampled_from((0.0, 0.3)), seed=SEEDS)
    def check(asked: tuple[dict[str, Any], dict[str, Any]], gap: float, seed: int) -> None:
        taken.append(assert_the_same(*asked, gap, seed))

    check()
    assert any(taken)
    assert not all(taken)
