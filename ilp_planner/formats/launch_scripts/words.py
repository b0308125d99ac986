"""Words of a launch script: variables, arrays, defaults, whole-number arithmetic.

No file is looked at. What only running would tell becomes a mark in the text (`unknowns`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import as_whole
from ilp_planner.formats.launch_scripts.expressions import evaluate
from ilp_planner.formats.launch_scripts.grammar import DEEPEST, PIECE, WORD
from ilp_planner.formats.launch_scripts.state import Scope
from ilp_planner.formats.launch_scripts.unknowns import PLACE, PLACE_END, SPLIT, THERE, known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.formats.launch_scripts.grammar import Node

TOKEN = re.compile(
    rf"{PLACE}(?P<place>[^{PLACE_END}]*){PLACE_END}|'(?P<raw>[^']*)'|\\(?P<escaped>.?)|"
    rf"`(?P<output>(?:\\.|[^`\\])*)`|(?P<other>[$\"'`]|[^$\"'`\\{PLACE}]+)",
    re.DOTALL,
)
NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
BRACED = re.compile(
    r"(?P<sign>#?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$-])(?:\[(?P<index>[^\]]*)\])?"
    r"(?P<rest>(?P<how>:?[-=+?])(?P<other>.*)|.*)",
    re.DOTALL,
)
QUOTES = str.maketrans({c: f"[{c}]" for c in "*?[("})
QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\$\{[^}]*\}|\\.|\$\(.*\)")
BRACES = re.compile(r"\{[^{}\s]*,[^{}\s]*\}|\{-?\w+\.\.[-\w.]+\}|^[<>]\(")  # not followed
SETS = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\s*(?:[-+*/%&|^]?=(?!=)|\+\+|--)")
EXTENDED = re.compile(r"[@?*+!]\(|\[\[:")


@lru_cache(maxsize=256)
def glob(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern of file names; None: it is not read, as `@(a|b)`."""
    try:
        return None if EXTENDED.search(pattern) else re.compile(translate(pattern)[:-2])
    except re.error:
        return None


class Words(Scope, ABC):
    """Words to texts, with the variables of a scope."""

    depth = 0  # of texts in one another

    @abstractmethod
    def output(self, text: str, shown: str, line: int) -> str:
        """Return what the commands of `$(..)` print, or a mark. shown: as it is written."""

    def words(self, node: Node, *, test: bool = False) -> list[str]:
        """Return the words that a word becomes. test: without those that bash would leave out."""
        word, line = node.text, node.line
        if BRACES.search(QUOTED.sub("$", word)):
            return [self.mark(word, line, "")]
        found = [part for part in _Word(self, line, split=True).of(word).split(SPLIT) if part]
        self.budget.spend(sum(WORD + len(part) for part in found), line)
        kept = []
        for part in found:
            mark = self.unknowns.alone(part)
            if test and mark and mark.empty:
                self.empty_unset(part)
            else:
                kept.append(part.replace(THERE, ""))
        return kept

    def text(self, word: str, line: int, *, document: bool = False) -> str:
        """Return one text, as in an assignment or inside double quotes. document: a here-document,
        in which quotes mean nothing."""
        found = _Word(self, line, quoted=document, document=document).of(word)
        self.budget.spend(len(found), line)
        return found.replace(SPLIT, " ").replace(THERE, "")

    def pattern(self, word: str, line: int) -> str:
        """Return a pattern, in which what was quoted stands for itself."""
        return _Word(self, line, pattern=True).of(word).replace(THERE, "").replace(SPLIT, " ")

    def matches(self, word: str, pattern: str, line: int) -> bool | None:
        """Tell whether a whole text is as a pattern says; None: only running would tell."""
        pattern = self.pattern(pattern, line)
        self.budget.spend(len(word) * (1 + len(pattern)), line)
        found = glob(pattern) if known(word) and known(pattern) else None
        return True if pattern == "*" else None if found is None else bool(found.fullmatch(word))

    def number(self, expression: str, line: int, *, zero: bool = False) -> str:
        """Return the value of `$((expression))`, or a mark. zero: unset variables are 0."""
        filled = self.text(expression.replace('"', ""), line)
        try:
            found = str(evaluate(filled, self, line, zero=zero))
        except (ValueError, ArithmeticError, RecursionError) as error:
            for name in SETS.findall(filled):
                self.forget(name, line, "an expression that is not followed sets it")
            text = f"$(({expression.strip()}))"
            found = self.mark(text, line, f"it is not followed: {error}")
        alone = self.unknowns.alone(found)
        # 0 to bash, and too much of a number to take it for nothing.
        return self.unknowns.mark(replace(alone, empty=False, single=True)) if alone else found

    def place(self, index: str, line: int) -> int | None:
        """Return the place of an entry; None: unknown."""
        found = self.number(index, line)
        return as_whole(found) if re.fullmatch(r"-?\d+", found) else None


@dataclass(slots=True)
class _Word:
    """A word while it is made, with SPLIT and THERE in it.

    split: values are divided where they are not quoted. pattern: quoted signs stand for themselves.
    quoted: here. document: quotes mean nothing. inside: of a default, whose blanks divide as well.
    """

    scope: Words
    line: int
    split: bool = False
    pattern: bool = False
    quoted: bool = False
    document: bool = False
    inside: bool = False
    made: list[str] = field(default_factory=list)

    def put(self, text: str, *, quoted: bool = False) -> None:
        """Add a value; where it is quoted as it is."""
        if quoted or self.quoted:
            self.made.append(THERE + (text.translate(QUOTES) if self.pattern else text))
        elif self.split and self.scope.separators:
            text = re.sub(f"[{re.escape(self.scope.separators)}]+", SPLIT, text)
            self.made.append(text)
        else:
            self.made.append(text)

    def of(self, word: str) -> str:
        self.scope.depth += 1
        if self.scope.depth > DEEPEST:
            raise SpecError(f"line {self.line}: nested too deeply")
        at = 0
        while match := TOKEN.match(word, at):
            kind, text, start, at = match.lastgroup, match[match.lastgroup or 0], at, match.end()
            if kind == "place":
                self.put(self.scope.mark(text, self.line, ""))
            elif kind == "escaped" and self.quoted and text not in '"$`\\\n':
                self.put(f"\\{text}")
            elif (kind == "escaped" and text != "\n") or (kind == "raw" and not self.quoted):
                self.put(text, quoted=True)
            elif kind == "raw":  # a sign like others in double quotes
                self.put("'")
                at = start + 1
            elif kind == "output":
                text = re.sub(r"\\([`$\\])", r"\1", text)
                self.put(self.scope.output(text, match[0], self.line))
            elif text == '"' and not self.document:
                self.quoted = not self.quoted
                self.made += [THERE] if word[start : at + 1] == '""' else []
            elif text == "$":
                at = self.dollar(word, start)
            elif kind == "other" and (self.quoted or self.inside):
                self.put(text)
            elif kind == "other":
                self.made.append(text)
        self.scope.budget.spend(PIECE * len(self.made), self.line)
        self.scope.depth -= 1
        return "".join(self.made)

    def dollar(self, word: str, at: int) -> int:
        """Add what begins with $; return where it ends."""
        end, scope = _end(word, at + 1), self.scope
        if word.startswith("$((", at) and end and word[end - 2] == ")":
            self.put(scope.number(word[at + 3 : end - 2], self.line))
        elif word.startswith("$(", at) and end:
            shown = " ".join(word[at:end].split())
            self.put(scope.output(word[at + 2 : end - 1], shown, self.line))
        elif word.startswith("${", at) and end:
            self.braced(word[at + 2 : end - 1], word[at:end])
        elif word.startswith("$'", at) and not self.quoted:
            end = word.find("'", at + 2) + 1
            self.put(scope.mark(word[at:end], self.line, ""), quoted=True)
        elif match := NAME.match(word, at + 1):
            self.braced(match[0], match[0])
            return match.end()
        else:
            self.made.append("$")
        return end or at + 1

    def braced(self, inside: str, shown: str) -> None:
        """Add `${inside}`."""
        scope, line, match = self.scope, self.line, BRACED.fullmatch(inside)
        pointed = scope.text(f"${{{inside[1:]}}}", line) if re.fullmatch(r"!\w+", inside) else ""
        if re.fullmatch(r"[A-Za-z_]\w*(\[\w*\])?", pointed):
            return self.braced(pointed, shown)
        if match is None:
            return self.put(scope.mark(shown, line, ""))
        name, index, rest = match["name"], match["index"], match["rest"]
        how = name if name in "@*" else index or ""
        if how in ("@", "*"):
            value = scope.state.arguments if name in "@*" else scope.value(name, line)
            words = (value,) if isinstance(value, str) else value
        else:
            how, place = "", None if index is None else scope.place(index, line)
            words = (scope.element(name, index, place, line),)
        if match["sign"]:
            marks = [scope.unknowns.alone(word) for word in words]
            value = "" if how else scope.empty_unset(words[0])
            sure = known(value) and all(mark is None or mark.empty for mark in marks)
            length = str(marks.count(None) if how else len(value))
            return self.put(length if sure else scope.mark(shown, line, ""))
        if match["how"]:
            return self.default(match["how"], match["other"], name, words, how)
        return self.several([self.changed(word, rest, shown, how) for word in words], how)

    def several(self, words: Sequence[str], how: str) -> None:
        """Add values that stay apart, of `"$@"`, or are joined, of `"$*"`."""
        if how == "*" and self.quoted:
            words = [self.scope.separators[:1].join(words)]
        for k, word in enumerate(words):
            self.made += [SPLIT] if k else []
            self.put(word)

    def default(self, sign: str, other: str, name: str, words: Sequence[str], how: str) -> None:
        """Add `${name:-other}` and its kind."""
        alone = self.scope.unknowns.alone(words[0]) if words else None
        missing = not words or bool(alone and alone.empty) or (sign[0] == ":" and words == ("",))
        if sign[-1] == "?" or missing == (sign[-1] == "+"):
            self.several(words if sign[-1] != "+" else ("",), how)
        elif sign[-1] == "=":
            self.scope.assign(name, self.scope.text(other, self.line), self.line)
            self.put(self.scope.element(name, None, None, self.line))
        else:
            inner = replace(self, inside=True, made=[], split=self.split and not self.quoted)
            self.made.append(THERE * self.quoted + inner.of(other))

    def changed(self, value: str, rest: str, shown: str, how: str) -> str:
        """Return a value after `#`, `%`, `/` or `:`; a mark where it is unknown."""
        found = value if not rest else None
        if known(value) and rest[:1] == ":" and not how:
            numbers = [self.scope.place(part, self.line) for part in rest[1:].split(":")]
            first, count, *more = (*numbers, len(value))
            if first is not None and count is not None and len(more) < 2:
                first += len(value) if first < 0 else 0
                end = count if count < 0 else first + count
                found = value[first:end] if first >= 0 else ""
        elif known(value) and rest[:1] in ("#", "%", "/"):
            found = self.cut(value, rest[0], rest[1:])
        return self.scope.mark(shown, self.line, "") if found is None else found

    def cut(self, value: str, sign: str, rest: str) -> str | None:
        """Return a value without a beginning or an end, or with a part replaced."""
        twice, (written, _, other) = rest[:1] == sign, (rest, "", "")
        written = written[twice:]
        if sign == "/":
            written, _, other = written.partition("/")
        pattern, places = self.scope.pattern(written, self.line), range(len(value) + 1)
        found = glob(pattern) if known(pattern) else None
        self.scope.budget.spend(len(value) * (len(value) // 8 + len(pattern)), self.line)
        if found is None or (sign == "/" and written[:1] in ("#", "%")):
            return None
        if sign == "/":
            by = self.scope.text(other, self.line)
            return found.sub(lambda _: by, value, count=0 if twice else 1)
        if sign == "#":
            cuts = [end for end in places if found.fullmatch(value, 0, end)]
            return value[cuts[-twice] :] if cuts else value
        cuts = [start for start in places if found.fullmatch(value, start)]
        return value[: cuts[twice - 1]] if cuts else value


def _end(word: str, at: int, quotes: str = "'\"") -> int:
    """Return the place behind the bracket that closes the one here; 0: there is none."""
    opening, depth, quote = word[at : at + 1], 0, ""
    closing = {"(": ")", "{": "}"}.get(opening)
    for match in re.compile(r"\\.|['\"(){}]", re.DOTALL).finditer(word, at) if closing else ():
        here = match[0][-1] if quote == "'" else match[0]
        if quote or here in quotes:
            quote = here if not quote else "" if here == quote else quote
        elif here in (opening, closing):
            depth += 1 if here == opening else -1
            if not depth:
                return match.end()
    return _end(word, at, '"') if closing and "'" in quotes else 0
