"""Wrong versions of a module: one operator, comparison, constant, guard or result changed in each.

Mutants are numbered by their place in the module, so the number of a mutant means the same as long
as the module's text does.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
COMPARISONS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
EXTREMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
EXTREMES |= {"minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin"}
EXTREMES |= {"ceil": "floor", "floor": "ceil"}


class Mutation(NamedTuple):
    """One change. function: where, dotted. lines: first and last of the statement."""

    kind: str
    function: str
    lines: tuple[int, int]
    before: str
    after: str

    @property
    def text(self) -> str:
        """What is changed into what."""
        return f"{self.before} -> {self.after}"


class _Site(NamedTuple):
    """A change that can be made: `make` makes it in the tree that was walked."""

    mutation: Mutation
    make: Callable[[], None]


class _Place(NamedTuple):
    """Where a walk is."""

    function: tuple[str, ...] = ()
    lines: tuple[int, int] = (0, 0)
    returns: str = ""


def mutations(source: str) -> list[Mutation]:
    """Return all mutants of a module, in the order of its text."""
    return [site.mutation for site in _sites(ast.parse(source))]


def mutated(source: str, number: int) -> ast.Module:
    """Return a module's syntax tree with one mutation, by its place among `mutations`."""
    tree = ast.parse(source)
    for place, site in enumerate(_sites(tree)):
        if place == number:
            site.make()
            return ast.fix_missing_locations(tree)
    raise IndexError(number)


def _sites(tree: ast.Module) -> list[_Site]:
    return list(_of_fields(tree, _Place()))


def _of_fields(node: ast.AST, place: _Place) -> Iterator[_Site]:
    """Yield the changes below a node."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "format_spec", "type_params"):
            continue
        if isinstance(value, list):
            for k, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield from _of_node(child, _at(node, name, k), place)
        elif isinstance(value, ast.AST):
            yield from _of_node(value, _at(node, name), place)


def _at(parent: ast.AST, name: str, k: int | None = None) -> Callable[[ast.AST], None]:
    """Return what puts another node into a place of its parent."""

    def put(other: ast.AST) -> None:
        if k is None:
            setattr(parent, name, other)
        else:
            getattr(parent, name)[k] = other

    return put


def _of_node(node: ast.AST, put: Callable[[ast.AST], None], place: _Place) -> Iterator[_Site]:
    if _is_left_out(node):
        return
    if isinstance(node, ast.stmt):
        place = place._replace(lines=_lines(node))
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        place = place._replace(function=(*place.function, node.name))
    if isinstance(node, ast.FunctionDef):
        place = place._replace(returns=ast.unparse(node.returns) if node.returns else "")
    for kind, other in _others(node, place):
        if ast.dump(other) != ast.dump(node):
            said = Mutation(kind, ".".join(place.function), place.lines, _said(node), _said(other))
            yield _Site(said, lambda other=other: put(ast.copy_location(other, node)))
    yield from _of_fields(node, place)


def _is_left_out(node: ast.AST) -> bool:
    """Tell whether a node says nothing that runs: imports, types, and `zip(strict=True)`, which
    guards only against mistakes of this package."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return not any(isinstance(n, ast.Call | ast.Compare) for n in ast.walk(node)) and all(
            _is_type(n) for n in (node.left, node.right)
        )
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_type(node: ast.AST) -> bool:
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    names += [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    return all(name[:1].isupper() or name in ("int", "float", "str", "bool") for name in names)


def _lines(node: ast.stmt) -> tuple[int, int]:
    """Return the lines of a statement, of a compound one those of its head."""
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno
    return node.lineno, max(node.lineno, last or 0)


def _said(node: ast.AST) -> str:
    """Return a node in one line, of a compound statement its head."""
    if isinstance(node, ast.If | ast.While):
        node = _with(node, body=[ast.Pass()], orelse=[])
    text = " ".join(ast.unparse(node).removesuffix("\n    pass").split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def _others(node: ast.AST, place: _Place) -> Iterator[tuple[str, ast.AST]]:
    """Yield what a node can be changed into, and the kind of that change."""
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OPERATORS:
            yield "operator", _with(node, op=OPERATORS[type(node.op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            kind = "guard" if isinstance(node.op, ast.Not) else "operator"
            yield kind, node.operand
        case ast.Compare():
            for k, op in enumerate(node.ops):
                ops = [*node.ops]
                ops[k] = COMPARISONS[type(op)]()
                yield "comparison", _with(node, ops=ops)
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield "constant", ast.Constant(node.value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in EXTREMES:
            yield "extreme", _with(node, func=ast.Name(EXTREMES[name], ast.Load()))
        case ast.Call(func=ast.Attribute(attr=name)) if name in EXTREMES:
            yield "extreme", _with(node, func=_with(node.func, attr=EXTREMES[name]))
        case ast.If() | ast.IfExp():
            for value in (True, False):
                yield "guard", _with(node, test=ast.Constant(value))
        case ast.While():
            yield "guard", _with(node, test=ast.Constant(False))
        case ast.comprehension(ifs=[_, *_]):
            for k in range(len(node.ifs)):
                yield "guard", _with(node, ifs=node.ifs[:k] + node.ifs[k + 1 :])
        case ast.Raise():
            yield "guard", ast.Pass()
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            yield "result", ast.Expr(ast.YieldFrom(ast.Tuple([], ast.Load())))
        case ast.Return(value=ast.expr() as value):
            yield from _results(value, place.returns)


def _results(value: ast.expr, annotation: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield what is returned instead of a value that has a type."""
    if annotation == "bool":
        if not isinstance(value, ast.Constant):
            yield "result", ast.Return(ast.UnaryOp(ast.Not(), value))
    elif annotation in ("int", "float"):
        if not isinstance(value, ast.Constant):
            yield "result", ast.Return(ast.BinOp(value, ast.Add(), ast.Constant(1)))
    elif annotation == "str":
        yield "result", ast.Return(ast.Constant(""))
    else:
        yield "result", ast.Return(ast.Constant(None))


def _with(node: ast.AST, **changed: object) -> ast.AST:
    """Return a copy of a node with other fields, whose children are the node's own."""
    other = copy.copy(node)
    for name, value in changed.items():
        setattr(other, name, value)
    return other
