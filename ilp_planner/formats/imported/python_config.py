"""A configuration that is written in Python, read without running it.

A function that returns a configuration is followed as far as that takes no more than its own text:
calls that make configurations, with literals, arithmetic and names; changes of their attributes;
and other functions of the file. What else a value is made of is not known, and says where it is.
"""

from __future__ import annotations

import ast
import operator
import warnings
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import RANKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ilp_planner.base.files import Document

    Known = Mapping[str, Any]

LONGEST = 2**18  # characters of a file
DEEPEST = 20  # functions in one another
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
# Functions whose results are what their arguments say: classes of configurations and builders.
MAKERS = ("Config", "model_registry")
HARMLESS = ("print", "len", "str", "repr", "isinstance", "min", "max")  # change no argument
BRANCHES = (ast.If, ast.While, ast.With, ast.Try, ast.Match, ast.For)


class Unknown(NamedTuple):
    """A value that only running the file would tell: its text, and the line."""

    text: str
    line: int


@dataclass(slots=True)
class Made:
    """A configuration that a call makes. name: of the function, as it is imported. arguments:
    those by place. values: by name, in the order of the text. rest: what else it is given, as
    `**more`; None: nothing. line: of the call."""

    name: str
    arguments: list[Any] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    rest: Unknown | None = None
    line: int = field(default=0, compare=False)

    @property
    def kind(self) -> str:
        """The name of the class, without `Config`."""
        return self.name.removesuffix(".Config").rpartition(".")[2]


class PythonFile:
    """A file of Python with functions that return configurations.

    Raises SpecError where it is no Python, or too large.
    """

    def __init__(self, document: Document) -> None:
        self.name = document.name
        if len(document.text) > LONGEST:
            raise SpecError(f"{self.name}: found more than 256 KiB, expected at most that")
        try:
            with warnings.catch_warnings(action="ignore"):  # of literals, for who runs the file
                tree = ast.parse(document.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            where = f"line {line}: " if line else ""
            what = getattr(error, "msg", "") or str(error)
            raise SpecError(f"{self.name}: {where}not valid Python: {what:.100}") from None
        self.functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
        self.imported: dict[str, str] = {}
        for one in ast.walk(tree):
            if isinstance(one, ast.Import):
                self.imported |= {name.asname: name.name for name in one.names if name.asname}
            elif isinstance(one, ast.ImportFrom):
                module = "." * one.level + (one.module or "")
                for name in one.names:
                    self.imported[name.asname or name.name] = f"{module}.{name.name}"
        self.constants: dict[str, Any] = {}
        self.depth = 0
        self._run(tree.body, self.constants)

    def configurations(self, of: str) -> list[str]:
        """Return the names of the functions that say they return a configuration. of: its name."""
        return [
            name
            for name, one in self.functions.items()
            if one.returns is not None and ast.unparse(one.returns).strip("'\"") == of
        ]

    def result(self, name: str, call: ast.Call | None = None, known: Known | None = None) -> Any:
        """Return the result of a function of the file.

        Parameters
        ----------
        call: with these arguments; None: without any. known: the names of who calls.
        """
        function = self.functions[name]
        own = self._bound(function.args, call, known or {})
        if self.depth >= DEEPEST or own is None:
            return Unknown(f"{name}(...)", function.lineno)
        self.depth += 1
        try:
            found = self._run(function.body, own)
        except RecursionError:
            raise SpecError(f"{self.name}: line {function.lineno}: nested too deeply") from None
        finally:
            self.depth -= 1
        return Unknown(f"{name}()", function.lineno) if found is None else found

    def _bound(
        self, parameters: ast.arguments, call: ast.Call | None, known: Known
    ) -> dict[str, Any] | None:
        """Return the values of a function's parameters; None if a call does not say them."""
        by_place = [one.arg for one in (*parameters.posonlyargs, *parameters.args)]
        every = [*by_place, *(one.arg for one in parameters.kwonlyargs)]
        given = [] if call is None else call.args
        named = [] if call is None else call.keywords
        taken = [*by_place[: len(given)], *(one.arg for one in named)]
        if (
            parameters.vararg is not None
            or parameters.kwarg is not None
            or len(given) > len(by_place)
            or len({*taken}) != len(taken)
            or not {*taken} <= {*every}
            or any(isinstance(one, ast.Starred) for one in given)
        ):
            return None
        usual = zip(by_place[::-1], parameters.defaults[::-1], strict=False)
        more = zip(every[len(by_place) :], parameters.kw_defaults, strict=True)
        said = zip(taken, (*given, *(one.value for one in named)), strict=True)
        own = {name: self._value(one, {}) for name, one in (*usual, *more) if one is not None}
        own |= {str(name): self._value(one, known) for name, one in said}
        return own if {*own} == {*every} else None

    def _run(self, body: Sequence[ast.stmt], known: dict[str, Any]) -> Any:
        """Follow statements; return the result of the first `return`, None if there is none."""
        for one in body:
            if isinstance(one, ast.Return):
                return self._value(one.value, known) if one.value else None
            inside = ast.walk(one) if isinstance(one, BRANCHES) else ()
            if any(isinstance(inner, ast.Return) for inner in inside):
                return _unknown(one)
            if isinstance(one, ast.Assign):
                value = self._value(one.value, known)
                if isinstance(value, Unknown):
                    self._forget(one.value, known)
                for target in one.targets:
                    self._assign(target, value, known)
            elif isinstance(one, ast.AnnAssign) and one.value is not None:
                value = self._value(one.value, known)
                if isinstance(value, Unknown):
                    self._forget(one.value, known)
                self._assign(one.target, value, known)
            elif isinstance(one, ast.AugAssign):
                self._assign(one.target, _unknown(one), known)
            elif isinstance(one, ast.For):
                self._loop(one, known)
            elif isinstance(one, (*BRANCHES, ast.Expr, ast.Delete, ast.Assert)):
                self._forget(one, known)
        return None

    def _loop(self, one: ast.For, known: dict[str, Any]) -> None:
        """Follow a loop that sets attributes of all parts of a configuration: they count as its.
        All else that it changes is unknown."""
        whole = self._value(_root(one.iter), known)
        target = one.target.id if isinstance(one.target, ast.Name) else ""
        changed = {name for inner in ast.walk(one) for name in _names_set(inner)}
        inside = {**known, **dict.fromkeys(changed | {target}, _unknown(one))}
        rest: list[ast.AST] = []
        for inner in one.body:
            own = isinstance(inner, ast.Assign) and [_root(place) for place in inner.targets]
            all_own = own and all(isinstance(n, ast.Name) and n.id == target for n in own)
            if not (all_own and isinstance(inner, ast.Assign) and isinstance(whole, Made)):
                rest.append(inner)
                continue
            value = self._value(inner.value, inside)
            for place in inner.targets:
                whole.values[".".join(_path(place)[1:])] = value
        for left in (*rest, *one.orelse):
            self._forget(left, known, {target: whole} if isinstance(whole, Made) else {})
        known[target] = _unknown(one)

    def _forget(
        self, one: ast.AST, known: dict[str, Any], parts: Mapping[str, Made] | None = None
    ) -> None:
        """Let everything that code may change be unknown.

        parts: names of parts of a configuration -> the whole, whose keys are unknown then.
        """
        parts = parts or {}
        changed: list[ast.expr] = []
        for inner in ast.walk(one):
            if isinstance(inner, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
                changed += inner.targets if isinstance(inner, ast.Assign) else [inner.target]
            elif isinstance(inner, ast.Delete):
                changed += inner.targets
            elif isinstance(inner, ast.For):
                changed.append(inner.target)
            elif isinstance(inner, ast.Call) and _name(inner.func) not in HARMLESS:
                own = [inner.func.value] if isinstance(inner.func, ast.Attribute) else []
                every = (*own, *inner.args, *(word.value for word in inner.keywords))
                held = [part for given in every for part in _held(given)]
                changed += [part for part in held if self._can_change(part, known, parts)]
        for target in changed:
            whole = parts.get(_name(_root(target)))
            if whole is None:
                self._assign(target, _unknown(one), known)
            else:
                names = [] if isinstance(target, ast.Name) else _path(target)[1:]
                whole.values[".".join(names) or "*"] = _unknown(one)

    def _can_change(self, part: ast.expr, known: Known, parts: Mapping[str, Made]) -> bool:
        """Tell whether a function that is given this may change a configuration."""
        value = self._value(part, known)
        if value is None or isinstance(value, str | int | float):
            return False
        root = self._value(_root(part), known)
        return isinstance(root, Made | list) or _name(_root(part)) in parts

    def _assign(self, target: ast.expr, value: Any, known: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            known[target.id] = value
        elif isinstance(target, ast.Attribute):
            holder = self._part(target.value, known)
            if holder is not None:
                holder.values[target.attr] = value
        elif isinstance(target, ast.Tuple | ast.List):
            each = value if isinstance(value, list) and len(value) == len(target.elts) else None
            starred = any(isinstance(inner, ast.Starred) for inner in target.elts)
            for k, inner in enumerate(target.elts):
                found = _unknown(target) if each is None or starred else each[k]
                self._assign(inner, found, known)
        elif isinstance(target, ast.Subscript | ast.Starred):
            self._assign(target.value, _unknown(target), known)

    def _part(self, node: ast.expr, known: dict[str, Any]) -> Made | None:
        """Return a part of a configuration, which is its default if nothing says it; None: it is
        not known."""
        if not isinstance(node, ast.Attribute):
            found = self._value(node, known)
            return found if isinstance(found, Made) else None
        whole = self._part(node.value, known)
        if whole is None:
            return None
        part = whole.values.setdefault(node.attr, Made(""))
        return part if isinstance(part, Made) else None

    def _value(self, node: ast.expr | None, known: Mapping[str, Any]) -> Any:
        """Return the value of an expression."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
            return node.value
        if isinstance(node, ast.Name):
            return known.get(node.id, self.constants.get(node.id, _unknown(node)))
        if isinstance(node, ast.List | ast.Tuple):
            return [self._value(one, known) for one in node.elts]
        if isinstance(node, ast.Attribute):
            holder = self._value(node.value, known)
            found = holder.values.get(node.attr) if isinstance(holder, Made) else None
            return _unknown(node) if found is None else found
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._value(node.operand, known)
            if _is_number(value):
                return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            sides = self._value(node.left, known), self._value(node.right, known)
            if all(map(_is_number, sides)) and (sides[1] or not isinstance(node.op, ast.FloorDiv)):
                return OPERATORS[type(node.op)](*sides)
        if isinstance(node, ast.Call):
            return self._call(node, known)
        return _unknown(node)

    def _call(self, node: ast.Call, known: Mapping[str, Any]) -> Any:
        first, *rest = ast.unparse(node.func).split(".")
        if not rest and first in self.functions and first not in known:
            return self.result(first, node, known)
        name = ".".join([self.imported.get(first, first), *rest])
        last = name.rpartition(".")[2]
        arguments = [self._value(one, known) for one in node.args]
        values: dict[str, Any] = {}
        unnamed: Unknown | None = None
        for one in node.keywords:
            if one.arg is not None:
                values[one.arg] = self._value(one.value, known)
            elif (more := self._mapping(one.value, known)) is not None:
                values |= more
            else:
                unnamed = _unknown(node)
        if any(isinstance(one, ast.Starred) for one in node.args):
            unnamed = _unknown(node)
        before = arguments[0] if arguments else None
        if last == "replace" and isinstance(before, Made):
            rest_of = unnamed or before.rest
            changed = {**before.values, **values}
            return Made(before.name, before.arguments, changed, rest_of, node.lineno)
        if last == "deepcopy" and isinstance(before, Made) and len(arguments) == 1:
            return deepcopy(before)
        if last.endswith(MAKERS) or last.startswith("_build_"):
            return Made(name, arguments, values, unnamed, node.lineno)
        return _unknown(node)

    def _mapping(self, node: ast.expr, known: Known) -> dict[str, Any] | None:
        """Return the pairs of a mapping that the text says; None: they are not known."""
        if isinstance(node, ast.Call) and _name(node.func) == "dict" and not node.args:
            named = [(one.arg, one.value) for one in node.keywords]
        elif isinstance(node, ast.Dict):
            named = [(getattr(key, "value", None), one)
                     for key, one in zip(node.keys, node.values, strict=True)]  # fmt: skip
        else:
            return None
        if not all(isinstance(name, str) for name, _ in named):
            return None
        return {str(name): self._value(one, known) for name, one in named}


def _is_number(value: Any) -> bool:
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    return whole and abs(value) <= RANKS**3


def _unknown(node: ast.AST | None) -> Unknown:
    if node is None:
        return Unknown("", 0)
    text = " ".join(ast.unparse(node).split())
    return Unknown(text if len(text) <= 60 else f"{text[:57]}...", getattr(node, "lineno", 0))


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _names_set(node: ast.AST) -> list[str]:
    """Return the names that a node sets."""
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


def _held(node: ast.AST) -> list[ast.expr]:
    """Return the names in an expression, each with its attributes behind it."""
    if isinstance(node, ast.Name):
        return [node]
    if isinstance(node, ast.Attribute) and isinstance(_root(node), ast.Name):
        return [node]
    return [part for inner in ast.iter_child_nodes(node) for part in _held(inner)]


def _path(node: ast.expr) -> list[str]:
    return ast.unparse(node).split(".")


def flat_keys(made: Made, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what configurations in one another say, dots between the names of sections; of a
    section that a class makes, also its class, as `SECTION.class`. A section that says more than
    values by name is unknown."""
    for name, value in made.values.items():
        key = f"{before}{name}"
        if isinstance(value, Made):
            yield f"{key}.class", value.kind
            if (more := unnamed(value)) is not None:
                yield key, more
            yield from flat_keys(value, f"{key}.")
        else:
            yield key, value


def unnamed(made: Made) -> Unknown | None:
    """Return what a configuration is given beside values by name; None: nothing."""
    if made.rest is None and made.arguments:
        return Unknown(f"{made.name}({_shown(made.arguments[0])}, ...)", made.line)
    return made.rest


def _shown(value: Any) -> str:
    return value.text if isinstance(value, Unknown) else repr(value)[:40]
