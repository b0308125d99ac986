"""What the words of a launch script mean: variables, arrays, defaults, whole-number arithmetic.

No file is looked at. What only running would tell becomes a mark in the text (`unknowns`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.launch_scripts.arithmetic import ArithmeticMistakeError, evaluate
from ilp_planner.formats.launch_scripts.braces import braced_words
from ilp_planner.formats.launch_scripts.budget import DEEPEST, PIECE, WORD, Budget
from ilp_planner.formats.launch_scripts.parameters import changed_value
from ilp_planner.formats.launch_scripts.state import Array
from ilp_planner.formats.launch_scripts.unknowns import PLACE, PLACE_END, Unknown, known

if TYPE_CHECKING:
    from ilp_planner.formats.launch_scripts.scope import Scope

NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]")
BRACED = re.compile(
    r"(?P<sign>[#!]?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)",
    re.DOTALL,
)
DEFAULTS = re.compile(r"(?P<how>:?[-=+?])(?P<other>.*)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "0": "\0"}
LITERAL = re.compile(r"[^'\"\\`$]+")
QUOTES = str.maketrans({c: f"\\{c}" for c in "\\*?[]^@!+(|){}.$"})


class Piece(NamedTuple):
    """A part of a word. parts: words that stay apart, of `"${array[@]}"`. literal: it was written
    in the script, so that it is not split again."""

    text: str
    quoted: bool = True
    parts: list[str] | None = None
    literal: bool = False


class Runner(Protocol):
    """Whoever follows the commands of `$(..)`."""

    def output(self, text: str, written: str, line: int) -> str:
        """Return what commands print, or a mark."""


class Expander:
    """Words to texts, with the variables of a scope."""

    def __init__(self, scope: Scope, budget: Budget, runner: Runner) -> None:
        self.scope, self.budget, self.runner = scope, budget, runner
        self.depth = 0

    def words(self, word: str, line: int) -> list[str]:
        """Return the words that a word of a script becomes."""
        found = [w for one in braced_words(word, self.budget, line) for w in self._split(one, line)]
        self.budget.spend(sum(WORD + len(w) for w in found), line)
        return found

    def text(self, word: str, line: int) -> str:
        """Return one text, as in an assignment or inside double quotes."""
        return self._joined(self._pieces(word, line), line)

    def document(self, text: str, line: int) -> str:
        """Return a here-document, in which quotes mean nothing."""
        return self._joined(self._pieces(text, line, quoted=True, document=True), line)

    def pattern(self, word: str, line: int) -> str:
        """Return a pattern, in which what was quoted stands for itself."""
        pieces = self._pieces(word, line)
        text = "".join(
            piece.text.translate(QUOTES) if piece.quoted else piece.text for piece in pieces
        )
        self.budget.spend(len(text), line)
        return text

    def number(self, expression: str, line: int) -> str:
        """Return what `$((expression))` gives, or a mark."""
        filled = self.text(expression.replace('"', ""), line)
        self.budget.spend(len(filled), line)
        try:
            found = str(evaluate(filled, self.scope.at(line)))
            alone = self.scope.unknowns.alone(found)
            # 0 to bash, and too much of a number to take it for nothing.
            whole = replace(alone, empty=False, single=True) if alone else None
            return found if whole is None else self.scope.unknowns.mark(whole)
        except (ArithmeticMistakeError, RecursionError) as error:
            text = f"$(({expression.strip()}))"
            return self.unknown(text, line, f"bash complains of it: {error}")

    def unknown(self, text: str, line: int, why: str = "", key: str = "") -> str:
        """Return the mark of what only running would tell, or what was supplied for it."""
        key = key or text
        if key in self.scope.supplied:
            return self.scope.take_supplied(key)
        return self.scope.unknowns.mark(Unknown(text=text, key=key, line=line, why=why))

    def _split(self, word: str, line: int) -> list[str]:
        pieces = self._pieces(word, line)
        if any(p.parts == [] for p in pieces) and not any(p.text or p.parts for p in pieces):
            return []  # "$@" without arguments is no word, not even an empty one
        words: list[str] = []
        current: str | None = None  # None: nothing of a word yet
        for text, quoted, parts, literal in pieces:
            if parts is not None:  # "${array[@]}": words stay apart
                for k, part in enumerate(parts):
                    if k:
                        words.append(current or "")
                        current = ""
                    current = (current or "") + part
            elif quoted or literal:
                current = (current or "") + text
            else:
                for k, part in enumerate(self.scope.fields(text)):
                    if k and current is not None:
                        words.append(current)
                        current = None
                    if part:
                        current = (current or "") + part
        if current is not None:
            words.append(current)
        return words

    def _joined(self, pieces: list[Piece], line: int) -> str:
        text = "".join(p.text if p.parts is None else " ".join(p.parts) for p in pieces)
        self.budget.spend(len(text), line)
        return text

    def _pieces(
        self, word: str, line: int, *, quoted: bool = False, document: bool = False
    ) -> list[Piece]:
        """Return the parts of a word. quoted: it stands in quotes. document: where none end."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise SpecError(f"line {line}: nested too deeply")
        found: list[Piece] = []
        at = 0
        if word.startswith("~") and not quoted:
            home, at = self._home(word, line)
            found.append(Piece(home))
        while at < len(word):
            here = word[at]
            if match := LITERAL.match(word, at):
                self._literal(match[0], line, found, quoted=quoted)
                at = match.end()
            elif here == "'" and not quoted:
                end = word.find("'", at + 1)
                end = len(word) if end < 0 else end
                found.append(Piece(word[at + 1 : end]))
                at = end + 1
            elif here == '"' and not document:
                quoted = not quoted
                found.append(Piece(""))
                at += 1
            elif here == "\\":
                next_ = word[at + 1 : at + 2]
                keep = quoted and next_ not in '"$`\\\n'
                found.append(Piece("" if next_ == "\n" else f"\\{next_}" if keep else next_))
                at += 2
            elif here == "`":
                text = _until(word, at + 1, "`")
                plain = re.sub(r"\\([`$\\])", r"\1", text)
                shown = f"`{text}`"
                found.append(Piece(self.runner.output(plain, shown, line), quoted))
                at += len(text) + 2
            elif here == "$":
                pieces, at = self._dollar(word, at, line, quoted=quoted)
                found += pieces
            else:
                found.append(Piece(here, quoted))
                at += 1
        self.budget.spend(PIECE * len(found), line)
        self.depth -= 1
        return found

    def _home(self, word: str, line: int) -> tuple[str, int]:
        end = next((k for k, c in enumerate(word) if c in "/:'\"\\$`"), len(word))
        if end != 1 or word[1:2] not in ("", "/"):
            return word[:end], end
        home = self.scope.get("HOME")
        return (home if isinstance(home, str) else self.unknown("~", line)), 1

    def _literal(self, text: str, line: int, found: list[Piece], *, quoted: bool) -> None:
        """Add a text as it is written; what a template leaves to its user is not known."""
        for k, part in enumerate(text.split(PLACE)):
            if k:
                place, _, part = part.partition(PLACE_END)
                found.append(Piece(self.unknown(place, line)))
            if text.startswith(("<(", ">(")) and not quoted:
                part = self.unknown(part, line)
            found.append(Piece(part, quoted, literal=True))

    def _dollar(self, word: str, at: int, line: int, *, quoted: bool) -> tuple[list[Piece], int]:
        """Return the parts of what begins with $, and where it ends."""
        if word.startswith("$((", at) and (end := _end(word, at + 1)) and word[end - 2] == ")":
            return [Piece(self.number(word[at + 3 : end - 2], line), quoted)], end
        if word.startswith("$(", at) and (end := _end(word, at + 1)):
            shown = " ".join(word[at:end].split())
            return [Piece(self.runner.output(word[at + 2 : end - 1], shown, line), quoted)], end
        if word.startswith("${", at) and (end := _end(word, at + 1)):
            return self._braced(word[at + 2 : end - 1], line, quoted=quoted), end
        if word.startswith("$'", at) and not quoted:
            text = _until(word, at + 2, "'")
            return [Piece(_unescaped(text))], at + 3 + len(text)
        if word.startswith('$"', at) and not quoted:
            return [], at + 1
        match = NAME.match(word, at + 1)
        if match is None:
            return [Piece("$", quoted, literal=True)], at + 1
        return [self._variable(match[0], line, quoted=quoted)], match.end()

    def _variable(self, name: str, line: int, *, quoted: bool) -> Piece:
        if name in "@*":
            return self._several(list(self.scope.arguments), name, quoted=quoted)
        value = self.scope.value(name, line)
        if isinstance(value, Array):
            value = value.items.get(0, "")
        return Piece(value, quoted)

    def _several(self, words: list[str], how: str, *, quoted: bool) -> Piece:
        if quoted and how == "@":
            return Piece("", True, words)
        blank = self.scope.separators[:1] if quoted else " "
        return Piece(blank.join(words), quoted)

    def _braced(self, inside: str, line: int, *, quoted: bool) -> list[Piece]:
        """Return `${inside}`."""
        match = BRACED.fullmatch(inside)
        name = match["name"] if match else ""
        index = self._index(match["index"], line) if match else None
        sign, rest = (match["sign"], match["rest"]) if match else ("", "")
        if sign == "!" and index in ("@", "*"):
            value = self.scope.value(name, line)
            keys = [str(k) for k in value.keys] if isinstance(value, Array) else ["0"]
            return [self._several(keys, index, quoted=quoted)]
        if sign == "!":
            pointed = self.scope.text_of(name, line)
            match = BRACED.fullmatch(pointed) if known(pointed) else None
            if match and not match["sign"] and not match["rest"]:
                name, index = match["name"], match["index"]
            else:
                match = None
        if match is None:
            return [Piece(self.unknown(f"${{{inside}}}", line), quoted)]
        words = self._words_of(name, index)
        if sign == "#":
            return [Piece(self._length(words, name, index, inside, line), quoted)]
        if how := DEFAULTS.fullmatch(rest):
            return self._default(how, name, index, line, words, quoted=quoted)
        if words is None:
            one = self.scope.element(name, index, line, self.number)
            return [Piece(self._changed(one, rest, inside, line), quoted)]
        if rest.startswith(":"):
            part = self._slice(words, rest, name, line)
            if part is None:
                return [Piece(self.unknown(f"${{{inside}}}", line), quoted)]
            words, rest = part, ""
        words = [self._changed(word, rest, inside, line) for word in words]
        return [self._several(words, index if index in ("@", "*") else name, quoted=quoted)]

    def _index(self, written: str | None, line: int) -> str | None:
        """Return the text between the brackets of an entry."""
        if written is None or written in ("@", "*") or not re.search(r"[$'\"]", written):
            return written
        return self.text(written, line)

    def _words_of(self, name: str, index: str | None) -> list[str] | None:
        """Return all that `$@` or `${name[@]}` stands for; None: it is another one."""
        if name in ("@", "*"):
            return list(self.scope.arguments)
        if index not in ("@", "*"):
            return None
        value = self.scope.get(name)
        if isinstance(value, Array):
            return value.words
        return (
            []
            if value is None and not self.scope.unset_mark(name, 0)
            else ([value] if value is not None else [self.scope.unset_mark(name, 0)])
        )

    def _length(
        self, words: list[str] | None, name: str, index: str | None, inside: str, line: int
    ) -> str:
        if words is not None:
            exact = all(self.scope.unknowns.alone(word) is None for word in words)
            return str(len(words)) if exact else self.unknown(f"${{{inside}}}", line)
        value = self.scope.empty_unset(self.scope.element(name, index, line, self.number))
        return str(len(value)) if known(value) else self.unknown(f"${{{inside}}}", line)

    def _default(
        self,
        how: re.Match[str],
        name: str,
        index: str | None,
        line: int,
        words: list[str] | None,
        *,
        quoted: bool,
    ) -> list[Piece]:
        """Return `${name:-other}` and its kind."""
        sign = how["how"]
        value = " ".join(words or ())
        if words is None:
            value = self.scope.element(name, index, line, self.number)
        alone = self.scope.unknowns.alone(value)
        missing = bool(alone and alone.empty) or words == [] or (sign[0] == ":" and not value)
        if sign[-1] == "+":
            return [] if missing else self._other(how["other"], line, quoted=quoted)
        if not missing or sign[-1] == "?":
            if words is not None:
                return [self._several(words, index or name, quoted=quoted)]
            return [Piece(value, quoted)]
        pieces = self._other(how["other"], line, quoted=quoted)
        if sign[-1] == "=":
            self.scope.assign(name, self._joined(pieces, line), line)
            return [Piece(self.scope.text_of(name, line), quoted)]
        return pieces or [Piece("", quoted)]

    def _other(self, word: str, line: int, *, quoted: bool) -> list[Piece]:
        """Return the parts of a default; what stands in it without quotes is divided."""
        pieces = self._pieces(word, line, quoted=quoted)
        return [p._replace(quoted=quoted or p.quoted, literal=False) for p in pieces]

    def _changed(self, value: str, rest: str, inside: str, line: int) -> str:
        """Return a value after `#`, `%`, `/`, `^`, `,` or `:`."""
        if not rest:
            return value
        self.budget.spend(len(value), line)
        changed = changed_value(value, rest, self, line) if known(value) else None
        return self.unknown(f"${{{inside}}}", line) if changed is None else changed

    def _slice(self, words: list[str], rest: str, name: str, line: int) -> list[str] | None:
        start, _, length = rest[1:].partition(":")
        numbers = [self.number(text, line) for text in (start, length or "0")]
        if not all(re.fullmatch(r"-?\d+", number) for number in numbers):
            return None
        first, count = map(int, numbers)
        if name in ("@", "*"):
            first -= first > 0
        first = max(0, len(words) + first) if first < 0 else first
        return words[first:] if not length else words[first : first + count]


def _until(word: str, at: int, closing: str) -> str:
    """Return the text up to a closing character that no backslash stands before."""
    start = at
    while at < len(word) and word[at] != closing:
        at += 2 if word[at] == "\\" else 1
    return word[start:at]


def _unescaped(text: str) -> str:
    """Return the text of `$'..'`."""
    return re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)


def _end(word: str, at: int) -> int:
    """Return the place behind the bracket that closes the one here; 0: there is none."""
    return _close(word, at, "'\"") or _close(word, at, '"')


def _close(word: str, at: int, quotes: str) -> int:
    opening = word[at]
    closing = {"(": ")", "{": "}"}[opening]
    depth, quote = 0, ""
    while at < len(word):
        here = word[at]
        if here == "\\" and quote != "'":
            at += 2
            continue
        if quote:
            quote = "" if here == quote else quote
        elif here in quotes:
            quote = here
        elif here == opening:
            depth += 1
        elif here == closing:
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return 0
