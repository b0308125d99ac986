"""The harness itself: what is changed, that nothing else is, and that tests are run against it."""

import ast
import textwrap
from types import ModuleType
from typing import Any

import pytest

from tests.mutants import equivalent
from tests.mutants.equivalent import Listed, equivalents, reasons, strangers
from tests.mutants.modules import JUDGE, modules
from tests.mutants.mutations import mutated, mutations
from tests.mutants.patching import patched
from tests.mutants.reached import ROOT, Reached


def made(source: str) -> dict[str, str]:
    """Return all mutants of a text by what is changed into what."""
    source = textwrap.dedent(source)
    found = {}
    for number, mutation in enumerate(mutations(source)):
        found[mutation.text] = ast.unparse(mutated(source, number))
    return found


def test_every_kind_of_change() -> None:
    source = """
        def f(a: int, b: float = 0.5) -> float:
            if a < 3 and not b:
                raise ValueError("no")
            return max(a, b) + 1
    """
    kinds = [mutation.kind for mutation in mutations(textwrap.dedent(source))]
    changes = list(made(source))
    assert changes == [
        "0.5 -> 1.5",
        "if a < 3 and (not b): -> if True:",
        "if a < 3 and (not b): -> if False:",
        "a < 3 and (not b) -> a < 3 or not b",
        "a < 3 -> a <= 3",
        "3 -> 4",
        "not b -> b",
        "raise ValueError('no') -> pass",
        "return max(a, b) + 1 -> return max(a, b) + 1 + 1",
        "max(a, b) + 1 -> max(a, b) - 1",
        "max(a, b) -> min(a, b)",
        "1 -> 2",
    ]
    assert set(kinds) == {"constant", "guard", "operator", "comparison", "extreme", "result"}


def test_each_change_is_made_alone() -> None:
    source = "x = 1 + 2 if y else -3\n"
    assert made(source) == {
        "1 + 2 if y else -3 -> 1 + 2 if True else -3": "x = 1 + 2 if True else -3",
        "1 + 2 if y else -3 -> 1 + 2 if False else -3": "x = 1 + 2 if False else -3",
        "1 + 2 -> 1 - 2": "x = 1 - 2 if y else -3",
        "1 -> 2": "x = 2 + 2 if y else -3",
        "2 -> 3": "x = 1 + 3 if y else -3",
        "-3 -> 3": "x = 1 + 2 if y else 3",
        "3 -> 4": "x = 1 + 2 if y else -4",
    }


@pytest.mark.parametrize(
    ("head", "changed"),
    [
        ("-> bool", "return not x"),
        ("-> int", "return x + 1"),
        ("-> str", "return ''"),
        ("-> list[int]", "return None"),
        ("", "return None"),
    ],
)
def test_another_result_is_one_of_the_same_kind(head: str, changed: str) -> None:
    assert list(made(f"def f(x){head}:\n    return x\n")) == [f"return x -> {changed}"]


def test_what_says_nothing_that_runs_is_left_alone() -> None:
    assert not made('''
        """Words."""
        from a import b
        Both = A | B
        @cache(size=3)
        def f(a: Literal[1], *b: tuple[int, ...]) -> Literal[2]:
            """More words."""
            return
        if TYPE_CHECKING:
            c = 1
        for d in zip(e, f, strict=True):
            pass
    ''')


def test_a_generator_that_yields_nothing_is_still_one() -> None:
    source = "def f():\n    yield 1\n    yield 2\n"
    for number, mutation in enumerate(mutations(source)):
        if mutation.kind == "result":
            scope: dict[str, Any] = {}
            exec(compile(mutated(source, number), "f", "exec"), scope)
            assert len(list(scope["f"]())) == 1


SOURCE = """
from functools import cache, cached_property

def add(a, b=2):
    return a + b

@cache
def double(a):
    def twice(b):
        return b * 2
    return twice(a)

class Box:
    size = 3

    @property
    def area(self):
        return self.size * self.size

    @cached_property
    def side(self):
        return self.size - 1

    @staticmethod
    def none():
        return not True
"""


@pytest.mark.parametrize(
    ("change", "asked", "before", "after"),
    [
        ("a + b -> a - b", "add(5)", 7, 3),
        ("b * 2 -> b / 2", "double(8)", 16, 4.0),
        ("self.size * self.size -> self.size / self.size", "Box().area", 9, 1.0),
        ("self.size - 1 -> self.size + 1", "Box().side", 2, 4),
        ("not True -> True", "Box.none()", False, True),
    ],
)
def test_the_code_of_a_function_is_exchanged_where_it_is(
    change: str, asked: str, before: object, after: object
) -> None:
    """Also for who imported the function before; what it has kept is forgotten."""
    module = ModuleType("boxes")
    module.__file__ = "boxes.py"
    exec(compile(SOURCE, "boxes.py", "exec"), vars(module))
    scope = dict(vars(module))
    assert eval(asked, scope) == before
    found = {mutation.text: number for number, mutation in enumerate(mutations(SOURCE))}
    number = found[change]
    assert patched(module, mutated(SOURCE, number), mutations(SOURCE)[number].function)
    assert eval(asked, scope) == after


@pytest.mark.parametrize("change", ["2 -> 3", "3 -> 4"])
def test_what_runs_at_import_is_not_exchanged(change: str) -> None:
    """A default, and what a class has."""
    module = ModuleType("boxes")
    module.__file__ = "boxes.py"
    exec(compile(SOURCE, "boxes.py", "exec"), vars(module))
    number = next(n for n, m in enumerate(mutations(SOURCE)) if m.text == change)
    assert not patched(module, mutated(SOURCE, number), mutations(SOURCE)[number].function)


def test_the_modules_that_are_tried_are_there() -> None:
    found = modules()
    assert all(module.file.is_file() for module in found)
    assert len({module.path for module in found}) == len(found)
    assert [module.path for module in found if module.whole] == list(JUDGE)


@pytest.mark.few(11)
@pytest.mark.parametrize("path", sorted({one.module for one in reasons()}))
def test_what_is_listed_as_equivalent_is_a_mutant(path: str) -> None:
    (module,) = (module for module in modules() if module.path == path)
    assert strangers(path, module.file.read_text()) == []
    listed = [one for one in reasons() if one.module == path]
    assert len(equivalents(path, module.file.read_text())) == len(listed)


def test_one_of_several_like_changes_is_listed_by_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = "def f(x):\n    g(x[0], x[0], 1)\n"
    listed = {
        Listed("a.py", "f", "0 -> 1", 2): "the second one",
        Listed("a.py", "f", "1 -> 2", 0): "the only one",
        Listed("b.py", "f", "0 -> 1", 1): "of another module",
        Listed("a.py", "f", "0 -> 1", 0): "which one?",
        Listed("a.py", "f", "0 -> 1", 3): "there are two",
    }
    monkeypatch.setattr(equivalent, "reasons", lambda: listed)
    assert equivalents("a.py", source) == {1: "the second one", 2: "the only one"}
    assert [listed[one] for one in strangers("a.py", source)] == ["which one?", "there are two"]


class Measured:
    """What coverage kept of one file: by its first line's number, contexts as it spells them."""

    def __init__(self, file: str) -> None:
        self.file = file

    def measured_files(self) -> set[str]:
        return {self.file, "/elsewhere/ilp_planner/job/other_shard.py"}

    def contexts_by_lineno(self, file: str) -> dict[int, list[str]]:
        return {3: ["", "tests/test_a.py::test_a|run", "tests/test_gone.py::test_b|run"], 4: [""]}


def reached_by(file: str) -> Reached:
    reached = Reached.__new__(Reached)
    reached.data, reached.times = Measured(file), {"tests/test_a.py::test_a": 0.1}
    return reached


def test_tests_measured_in_another_checkout_reach_the_same_lines() -> None:
    module = next(module for module in modules() if module.path == "job/shard.py")
    for folder in (f"{ROOT}/", "/elsewhere/", ""):
        found = reached_by(f"{folder}ilp_planner/job/shard.py").by_line(module.file)
        assert found == {3: {"tests/test_a.py::test_a"}, 4: set()}


def test_a_module_that_no_test_reaches_has_no_survivors_but_an_error() -> None:
    module = next(module for module in modules() if module.path == "job/mlp.py")
    with pytest.raises(LookupError, match=r"ilp_planner/job/mlp\.py: no test of .* reaches it"):
        reached_by("/elsewhere/ilp_planner/job/shard.py").by_line(module.file)
