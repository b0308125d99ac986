"""A configuration that is written in Python, read without running it.

A function that returns a configuration is followed as far as that takes no more than its own text:
calls that make configurations, with literals, arithmetic and names; changes of their attributes;
and other functions of the file. What else a value is made of is not known, and says where it is.
"""

from __future__ import annotations

import ast
import operator
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import RANKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ilp_planner.base.files import Document

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
BRANCHES = (ast.If, ast.While, ast.With, ast.Try, ast.Match)


class Unknown(NamedTuple):
    """A value that only running the file would tell: its text, and the line."""

    text: str
    line: int


@dataclass(slots=True)
class Made:
    """A configuration that a call makes. name: of the function, as it is imported. arguments:
    those by place. values: by name, in the order of the text."""

    name: str
    arguments: list[Any] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

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
            if isinstance(one, ast.ImportFrom):
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

    def result(self, name: str) -> Any:
        """Return the result of a function of the file, called without arguments."""
        function = self.functions[name]
        if self.depth >= DEEPEST or function.args.args or function.args.posonlyargs:
            return Unknown(f"{name}(...)", function.lineno)
        self.depth += 1
        try:
            found = self._run(function.body, {})
        except RecursionError:
            raise SpecError(f"{self.name}: line {function.lineno}: nested too deeply") from None
        finally:
            self.depth -= 1
        return found or Unknown(f"{name}()", function.lineno)

    def _run(self, body: Sequence[ast.stmt], known: dict[str, Any]) -> Any:
        """Follow statements; return the result of the first `return`, None if there is none."""
        for one in body:
            if isinstance(one, ast.Return):
                return self._value(one.value, known) if one.value else None
            if isinstance(one, ast.Assign):
                value = self._value(one.value, known)
                for target in one.targets:
                    self._assign(target, value, known)
            elif isinstance(one, ast.AnnAssign) and one.value is not None:
                self._assign(one.target, self._value(one.value, known), known)
            elif isinstance(one, ast.AugAssign):
                self._assign(one.target, _unknown(one), known)
            elif isinstance(one, ast.For):
                self._loop(one, known)
            elif isinstance(one, BRANCHES):
                if any(isinstance(inner, ast.Return) for inner in ast.walk(one)):
                    return _unknown(one)
                self._forget(one, known)
            elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
                self._forget(one, known)
        return None

    def _loop(self, one: ast.For, known: dict[str, Any]) -> None:
        """Follow a loop that sets attributes of all parts of a configuration: they count as its."""
        names = {inner.id for inner in ast.walk(one.target) if isinstance(inner, ast.Name)}
        whole = self._value(_root(one.iter), known)
        for inner in ast.walk(one):
            if isinstance(inner, ast.Assign | ast.AugAssign):
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                for target in targets:
                    root = _root(target)
                    own = isinstance(root, ast.Name) and root.id in names
                    if own and isinstance(whole, Made) and isinstance(target, ast.Attribute):
                        plain = isinstance(inner, ast.Assign)
                        value = self._value(inner.value, {}) if plain else _unknown(inner)
                        whole.values[".".join(_path(target)[1:])] = value
                    else:
                        self._assign(target, _unknown(inner), known)

    def _forget(self, one: ast.stmt, known: dict[str, Any]) -> None:
        """Let everything that a statement may change be unknown."""
        for inner in ast.walk(one):
            if isinstance(inner, ast.Assign | ast.AugAssign | ast.AnnAssign):
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                for target in targets:
                    self._assign(target, _unknown(inner), known)
            elif isinstance(inner, ast.Call):
                own = [inner.func.value] if isinstance(inner.func, ast.Attribute) else []
                for part in (*own, *inner.args):
                    if isinstance(self._value(_root(part), known), Made):
                        self._assign(part, _unknown(one), known)

    def _assign(self, target: ast.expr, value: Any, known: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            known[target.id] = value
        elif isinstance(target, ast.Attribute):
            holder = self._value(target.value, known)
            if isinstance(holder, Made):
                holder.values[target.attr] = value
            elif isinstance(target.value, ast.Attribute):
                whole, part = self._value(target.value.value, known), target.value.attr
                if isinstance(whole, Made) and part not in whole.values:  # its default
                    whole.values[part] = Made("", [], {target.attr: value})
        elif isinstance(target, ast.Tuple | ast.List):
            for inner in target.elts:
                self._assign(inner, _unknown(target), known)
        elif isinstance(target, ast.Subscript | ast.Starred):
            self._assign(target.value, _unknown(target), known)

    def _value(self, node: ast.expr | None, known: Mapping[str, Any]) -> Any:
        """Return the value of an expression."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return known.get(node.id, self.constants.get(node.id, _unknown(node)))
        if isinstance(node, ast.List | ast.Tuple):
            return [self._value(one, known) for one in node.elts]
        if isinstance(node, ast.Attribute):
            holder = self._value(node.value, known)
            found = holder.values.get(node.attr) if isinstance(holder, Made) else None
            return _unknown(node) if found is None else found
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand, known)
            return -value if _is_number(value) else _unknown(node)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            sides = self._value(node.left, known), self._value(node.right, known)
            if all(map(_is_number, sides)) and (sides[1] or not isinstance(node.op, ast.FloorDiv)):
                return OPERATORS[type(node.op)](*sides)
        if isinstance(node, ast.Call):
            return self._call(node, known)
        return _unknown(node)

    def _call(self, node: ast.Call, known: Mapping[str, Any]) -> Any:
        first, *rest = ast.unparse(node.func).split(".")
        if not rest and first in self.functions and not node.args and not node.keywords:
            return self.result(first)
        name = ".".join([self.imported.get(first, first), *rest])
        last = name.rpartition(".")[2]
        arguments = [self._value(one, known) for one in node.args]
        values = {one.arg or "**": self._value(one.value, known) for one in node.keywords}
        if last == "replace" and arguments and isinstance(arguments[0], Made):
            before = arguments[0]
            return Made(before.name, before.arguments, {**before.values, **values})
        if last.endswith(MAKERS) or last.startswith("_build_"):
            return Made(name, arguments, values)
        return _unknown(node)


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


def _path(node: ast.expr) -> list[str]:
    return ast.unparse(node).split(".")


def flat_keys(made: Made, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what configurations in one another say, dots between the names of sections; of a
    section that a class makes, also its class, as `SECTION.class`."""
    for name, value in made.values.items():
        key = f"{before}{name}"
        if isinstance(value, Made):
            yield f"{key}.class", value.kind
            yield from flat_keys(value, f"{key}.")
        else:
            yield key, value
