"""What the words of a launch script mean: variables, arrays, defaults, whole-number arithmetic.

Nothing is run and no file is looked at. What only running would tell becomes a mark in the text,
which says where it comes from; whoever needs that value can complain about it by name.
"""

import ast
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ilp_planner.errors import SpecError

# Marks: the text that is not known and the line where it is used, in private characters only, so
# that no blank, quote or dollar of it means anything when the text is read again.
OPEN, BETWEEN, CLOSE, PRIVATE = "\ue000", "\ue001", "\ue002", 0xE100
MARK = re.compile(f"{OPEN}([^{CLOSE}{BETWEEN}]*){BETWEEN}([^{CLOSE}]*){CLOSE}")
NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
BRACED = re.compile(
    r"(?P<length>\#?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*\#])(?:\[(?P<index>[^\]]*)\])?"
    r"(?:(?P<how>:?[-=+?])(?P<other>.*))?",
    re.DOTALL,
)
LONGEST = 1_000_000  # characters of a value
DEEPEST = 50
ARITHMETIC = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__}
COMPARISONS = {
    ast.Eq: int.__eq__, ast.NotEq: int.__ne__, ast.Lt: int.__lt__, ast.LtE: int.__le__,
    ast.Gt: int.__gt__, ast.GtE: int.__ge__,
}  # fmt: skip


@dataclass(slots=True)
class Variables:
    """What a script has set so far.

    values: text, or the words of an array. arguments: of the script. exported: names.
    """

    values: dict[str, str | list[str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    exported: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | list[str] | None:
        """Return a value; None: not set."""
        return ChainMap[str, str | list[str]](self.values, dict(self.environment)).get(name)


def mark(text: str, line: int) -> str:
    """Return a mark for what is not known."""
    return f"{OPEN}{_hidden(text)}{BETWEEN}{_hidden(str(line))}{CLOSE}"


def first_mark(text: str) -> tuple[str, int] | None:
    """Return what is not known in a text, and the line."""
    match = MARK.search(text)
    return (_shown(match[1]), int(_shown(match[2]))) if match else None


def without_marks(text: str) -> str:
    """Return a text for people: what is not known as it is written in the script."""
    return MARK.sub(lambda match: _shown(match[1]), text)


def _hidden(text: str) -> str:
    return "".join(chr(PRIVATE + ord(c)) if ord(c) < 256 else c for c in text)


def _shown(text: str) -> str:
    return "".join(chr(ord(c) - PRIVATE) if 0 <= ord(c) - PRIVATE < 256 else c for c in text)


def expand_words(word: str, line: int, variables: Variables) -> list[str]:
    """Return the words that a word of a script becomes."""
    words: list[str] = []
    current: str | None = None  # None: nothing of a word yet
    pieces = _pieces(word, line, variables, 0)
    if any(parts == [] for *_, parts in pieces) and not any(text for text, *_ in pieces):
        return []  # "$@" without arguments is no word, not even an empty one
    for text, quoted, parts in pieces:
        if parts is not None:  # "${array[@]}": words stay apart
            if parts:
                current = (current or "") + parts[0]
                for part in parts[1:]:
                    words.append(current)
                    current = part
            continue
        if quoted:
            current = (current or "") + text
            continue
        split = text.split()
        if not split:
            if text and current is not None:
                words.append(current)
                current = None
            continue
        if text[0].isspace() and current is not None:
            words.append(current)
            current = None
        for k, part in enumerate(split):
            if k:
                words.append(current or "")
                current = ""
            current = (current or "") + part
        if text[-1].isspace() and current is not None:
            words.append(current)
            current = None
    if current is not None:
        words.append(current)
    return words


def expand_text(word: str, line: int, variables: Variables) -> str:
    """Return one text, as in an assignment or inside double quotes."""
    return _text(word, line, variables, 0)


def whole_number(expression: str, line: int, variables: Variables) -> str:
    """Return what `$((expression))` gives, or a mark."""
    filled = _text(expression, line, variables, 0)
    if found := first_mark(filled):
        return mark(*found)
    names = set(re.findall(r"[A-Za-z_]\w*", filled))
    for name in sorted(names, key=len, reverse=True):
        value = variables.get(name)
        if value is None:
            return mark(f"${name}", line)
        text = value if isinstance(value, str) else " ".join(value)
        if found := first_mark(text):
            return mark(*found)
        filled = re.sub(rf"\b{name}\b", text.strip() or "0", filled)
    try:
        return str(_calculate(ast.parse(_python(filled), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, OverflowError):
        return mark(f"$(({expression.strip()}))", line)


def _text(word: str, line: int, variables: Variables, depth: int) -> str:
    parts = []
    for text, _, several in _pieces(word, line, variables, depth):
        parts.append(text if several is None else " ".join(several))
    joined = "".join(parts)
    if len(joined) > LONGEST:
        raise SpecError(f"line {line}: a value of more than {LONGEST} characters")
    return joined


Piece = tuple[str, bool, list[str] | None]


def _pieces(word: str, line: int, variables: Variables, depth: int) -> list[Piece]:
    """Return (text, quoted, words) of the parts of a word."""
    if depth > DEEPEST:
        raise SpecError(f"line {line}: nested too deeply")
    found: list[Piece] = []
    at, quoted = 0, False
    while at < len(word):
        here = word[at]
        if here == "'" and not quoted:
            end = word.find("'", at + 1)
            end = len(word) if end < 0 else end
            found.append((word[at + 1 : end], True, None))
            at = end + 1
        elif here == '"':
            quoted = not quoted
            found.append(("", True, None))
            at += 1
        elif here == "\\":
            next_ = word[at + 1 : at + 2]
            keep = quoted and next_ not in '"$`\\'
            found.append((f"\\{next_}" if keep else next_, True, None))
            at += 2
        elif here == "`":
            end = word.find("`", at + 1)
            end = len(word) if end < 0 else end
            found.append((mark(word[at : end + 1], line), quoted, None))
            at = end + 1
        elif here == "$":
            piece, at = _dollar(word, at, line, variables, quoted, depth)
            found.append(piece)
        else:
            end = at + 1
            while end < len(word) and word[end] not in "'\"\\`$":
                end += 1
            # Blanks that were typed inside a word were quoted.
            found.append((word[at:end], True, None))
            at = end
    return found


def _dollar(
    word: str, at: int, line: int, variables: Variables, quoted: bool, depth: int
) -> tuple[Piece, int]:
    """Return the part that begins with $, and where it ends."""
    if word.startswith("$((", at) and (end := _close(word, at + 1, "(", ")")) > 0:
        inside = word[at + 3 : end - 2]
        return (whole_number(inside, line, variables), quoted, None), end
    if word.startswith("$(", at) and (end := _close(word, at + 1, "(", ")")) > 0:
        return (mark(word[at:end], line), quoted, None), end
    if word.startswith("${", at) and (end := _close(word, at + 1, "{", "}")) > 0:
        return _braced(word[at + 2 : end - 1], line, variables, quoted, depth), end
    match = NAME.match(word, at + 1)
    if match is None:
        return ("$", True, None), at + 1
    return _variable(match[0], line, variables, quoted), match.end()


def _close(word: str, at: int, opening: str, closing: str) -> int:
    """Return the place behind the bracket that closes the one here; 0: there is none."""
    depth = 0
    for k in range(at, len(word)):
        if word[k] == opening:
            depth += 1
        elif word[k] == closing:
            depth -= 1
            if not depth:
                return k + 1
    return 0


def _variable(name: str, line: int, variables: Variables, quoted: bool) -> Piece:
    if name in "@*":
        return (
            ("", quoted, list(variables.arguments))
            if quoted
            else (" ".join(variables.arguments), False, None)
        )
    if name == "#":
        return str(len(variables.arguments)), quoted, None
    value = _value(name, variables)
    if value is None:
        return mark(f"${name}", line), quoted, None
    return value if isinstance(value, str) else (value[0] if value else ""), quoted, None


def _value(name: str, variables: Variables) -> str | list[str] | None:
    if name.isdecimal():
        number = int(name)
        return variables.arguments[number - 1] if 0 < number <= len(variables.arguments) else None
    return variables.get(name)


def _braced(inside: str, line: int, variables: Variables, quoted: bool, depth: int) -> Piece:
    """Return `${inside}`."""
    match = BRACED.fullmatch(inside)
    if match is None:
        return mark(f"${{{inside}}}", line), quoted, None
    name, how, index = match["name"], match["how"], match["index"]
    if name in "@*" and not match["length"]:
        return _variable(name, line, variables, quoted)
    value = _value(name, variables)
    if match["length"]:
        if value is None or first_mark(value if isinstance(value, str) else " ".join(value)):
            return mark(f"${{{inside}}}", line), quoted, None
        return str(len(value)), quoted, None
    missing = value is None or ((how or "").startswith(":") and value in ("", []))
    if how and how[-1] == "+":
        return ("" if missing else _text(match["other"], line, variables, depth + 1)), quoted, None
    if missing and how and how[-1] in "-=":
        other = _text(match["other"], line, variables, depth + 1)
        if how[-1] == "=":
            variables.values[name] = other
        return other, quoted, None
    if value is None:
        return mark(f"${name}", line), quoted, None
    if isinstance(value, list):
        return _element(value, index, inside, line, variables, quoted)
    return value, quoted, None


def _element(
    value: list[str], index: str | None, inside: str, line: int, variables: Variables, quoted: bool
) -> Piece:
    if index in ("@", "*"):
        joined = " ".join(value)
        return ("", True, value) if quoted and index == "@" else (joined, quoted, None)
    place = whole_number(index or "0", line, variables)
    if not place.isdecimal() or int(place) >= len(value):
        return mark(f"${{{inside}}}", line), quoted, None
    return value[int(place)], quoted, None


def _python(expression: str) -> str:
    """Return bash's operators in Python's words."""
    text = expression.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    return re.sub(r"(?<![/])/(?![/])", "//", text).strip()


def _calculate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp):
        value = _calculate(node.operand)
        if isinstance(node.op, ast.Not):
            return int(not value)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BoolOp):
        values = [bool(_calculate(value)) for value in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        compare = COMPARISONS[type(node.ops[0])]
        return int(compare(_calculate(node.left), _calculate(node.comparators[0])))
    if isinstance(node, ast.IfExp):
        return _calculate(node.body if _calculate(node.test) else node.orelse)
    if isinstance(node, ast.BinOp):
        return _operate(node.op, _calculate(node.left), _calculate(node.right))
    raise ValueError(ast.dump(node)[:100])


def _operate(operator: ast.operator, left: int, right: int) -> int:
    if type(operator) in ARITHMETIC:
        return ARITHMETIC[type(operator)](left, right)
    if isinstance(operator, ast.FloorDiv):  # bash cuts towards zero
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    if isinstance(operator, ast.Mod):
        return abs(left) % abs(right) * (-1 if left < 0 else 1)
    if isinstance(operator, ast.Pow) and 0 <= right <= 64 and abs(left) < 2**32:
        return int(left**right)
    raise ValueError(operator)
