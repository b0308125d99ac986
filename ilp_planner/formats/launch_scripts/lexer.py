"""Bash text to words, as far as launch scripts need it: quotes and variables stay in the words."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.launch_scripts.budget import DEEPEST
from ilp_planner.formats.launch_scripts.unknowns import PLACE, PLACE_END

NAMED = r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<index>[^\]]*)\])?(?P<how>\+?=)"
ASSIGNMENT = re.compile(NAMED)
OPERATORS = (";;&", "&&", "||", ";;", ";&", "|&", ";", "|", "&", "(", ")")
TEST_OPERATORS = ("&&", "||", "(", ")", "<", ">")
REDIRECTION = re.compile(r"\d*(?:<<<|<<-?|>>|>\||>&|<&|<>|>|<)|&>>|&>")
# What a template leaves to its user; bash itself would take it for a redirection.
PLACEHOLDER = re.compile(r"<([^<>\n&|;()$]*)>")
PLAIN = re.compile(r"[\w./:=,%+@^~*?{}\[\]!#-]+")
BLANKS = re.compile(r"(?:[ \t\r]|\\\n)+")
BEFORE_COMMANDS = ("if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", ")")


@dataclass(frozen=True, slots=True)
class Token:
    """A word, an operator (`\\n` included), an array, `(( .. ))`, or a redirection.

    parts: words of an array, or the target of a redirection. body: the text of a here-document, of
    which only the last is read, where the document is over.
    """

    kind: str
    text: str
    line: int
    parts: tuple["Token", ...] = ()
    body: list[str] = field(default_factory=list, compare=False)


class Lexer:
    """Text to tokens. source: for messages. line: of all of it, where it is not a file's own."""

    def __init__(self, text: str, source: str, line: int = 0) -> None:
        self.text = text.replace("\r\n", "\n")
        self.source = source
        self.at = 0
        self.fixed = line
        self.newlines = [m.start() for m in re.finditer("\n", self.text)] if not line else []
        self.documents: list[tuple[str, bool, Token]] = []
        self.found: list[Token] = []

    @property
    def line(self) -> int:
        """Where the reading stands."""
        return self.fixed or bisect_left(self.newlines, self.at) + 1

    def error(self, line: int, what: str) -> SpecError:
        """Return what is wrong with a line."""
        return SpecError(f"{self.source}: line {line}: {what}")

    def tokens(self) -> list[Token]:
        """Return all of them.

        Raises
        ------
        SpecError: quotes or brackets that are not closed, with the line where they begin.
        """
        while self._next():
            pass
        return self.found

    def _next(self) -> bool:
        self._skip_blanks()
        if self.at >= len(self.text):
            return False
        line, first = self.line, self._begins_command()
        if self.text[self.at] == "\n":
            self.at += 1
            self.found.append(Token("operator", "\n", line))
            self._read_documents()
        elif self.text.startswith("((", self.at) and (first or self._after_for()):
            self.found.append(self._arithmetic(line))
        elif self._substitutes():
            self.found.append(Token("word", self._word(line), line))
        elif match := REDIRECTION.match(self.text, self.at):
            self.at = match.end()
            self._redirection(match[0], line)
        elif operator := next((o for o in OPERATORS if self.text.startswith(o, self.at)), ""):
            self.at += len(operator)
            self.found.append(Token("operator", operator, line))
        else:
            self._plain_word(line, first=first)
        return True

    def _plain_word(self, line: int, *, first: bool) -> None:
        word = self._word(line)
        match = ASSIGNMENT.fullmatch(word)
        if match and self.text.startswith("(", self.at):
            self.at += 1
            self.found.append(Token("array", word, line, self._array(line)))
            return
        self.found.append(Token("word", word, line))
        if word == "[[" and first:
            self._test(line)

    def _begins_command(self) -> bool:
        if not self.found:
            return True
        last = self.found[-1]
        return last.kind == "operator" or (last.kind == "word" and last.text in BEFORE_COMMANDS)

    def _after_for(self) -> bool:
        return bool(self.found) and self.found[-1].text == "for"

    def _substitutes(self) -> bool:
        return self.text.startswith(("<(", ">("), self.at)

    def _skip_blanks(self) -> None:
        while self.at < len(self.text):
            if match := BLANKS.match(self.text, self.at):
                self.at = match.end()
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = end if end >= 0 else len(self.text)
            else:
                return

    def _redirection(self, operator: str, line: int) -> None:
        self._skip_blanks()
        ends = self.at >= len(self.text) or self.text[self.at] == "\n"
        target = Token("word", "" if ends else self._word(line), line)
        token = Token("redirect", operator, line, (target,))
        self.found.append(token)
        if operator.lstrip("0123456789") in ("<<", "<<-"):
            self.documents.append((target.text, operator.endswith("-"), token))

    def _read_documents(self) -> None:
        for written, tabs, token in self.documents:
            delimiter = re.sub(r"['\"\\]", "", written)
            rows = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                row = self.text[self.at : end]
                self.at = min(len(self.text), end + 1)
                row = row.lstrip("\t") if tabs else row
                if row.rstrip() == delimiter:
                    break
                rows.append(row)
            token.body.append("".join(f"{row}\n" for row in rows))
        self.documents = []

    def _arithmetic(self, line: int) -> Token:
        start = self.at + 2
        self.at += 1
        self._bracketed(line, "(", ")")
        if not self.text.startswith(")", self.at):
            raise self.error(line, "(( is not closed")
        inside = self.text[start : self.at - 1]
        self.at += 1
        return Token("arithmetic", inside, line)

    def _array(self, line: int) -> tuple[Token, ...]:
        parts: list[Token] = []
        while True:
            self._skip_blanks()
            if self.at >= len(self.text):
                raise self.error(line, "an array's ( is not closed")
            here = self.text[self.at]
            if here == "\n":
                self.at += 1
            elif here == ")":
                self.at += 1
                return tuple(parts)
            else:
                where = self.line
                parts.append(Token("word", self._word(where, stops=" \t\r\n)"), where))

    def _test(self, line: int) -> None:
        """Read `[[ .. ]]`, where operators are those of tests."""
        while True:
            self._skip_blanks()
            if self.at >= len(self.text):
                raise self.error(line, "[[ is not closed")
            where = self.line
            if self.text[self.at] == "\n":
                self.at += 1
                continue
            found = next((o for o in TEST_OPERATORS if self.text.startswith(o, self.at)), "")
            if self.found[-1].text == "=~":
                self.found.append(Token("word", self._word(where, stops=" \t\r\n"), where))
            elif found and not self._substitutes():
                self.at += len(found)
                self.found.append(Token("operator", found, where))
            else:
                word = self._word(where)
                self.found.append(Token("word", word, where))
                if word == "]]":
                    return

    def _word(self, line: int, stops: str = " \t\r\n;|&()<>") -> str:
        """Return a word as it is written."""
        start = self.at
        assigns = ASSIGNMENT.match(self.text, self.at) is not None
        places: list[tuple[int, int]] = []
        while self.at < len(self.text):
            if match := PLAIN.match(self.text, self.at):
                self.at = match.end()
                continue
            here = self.text[self.at]
            if here == "<" and assigns and (match := PLACEHOLDER.match(self.text, self.at)):
                places.append(match.span())
                self.at = match.end()
            elif self._substitutes() and self.at == start:
                self.at += 1
                self._bracketed(line, "(", ")")
            elif here in stops and not (self._extended(start) and here == "("):
                break
            elif here == "\\":
                self.at += 2
            elif here in "'\"`":
                self._quoted(here)
            elif here == "$":
                self._dollar(line)
            elif here == "(" and self._extended(start):
                self._bracketed(line, "(", ")")
            else:
                self.at += 1
        if self.at == start:  # a character that no word begins with
            self.at += 1
        return self._with_places(start, places)

    def _with_places(self, start: int, places: Sequence[tuple[int, int]]) -> str:
        parts, last = [], start
        for begin, end in places:
            parts += [self.text[last:begin], PLACE, self.text[begin:end], PLACE_END]
            last = end
        return "".join([*parts, self.text[last : self.at]])

    def _extended(self, start: int) -> bool:
        """Whether a pattern such as `@(a|b)` begins here."""
        return self.at > start and self.text[self.at - 1] in "@?*+!"

    def _dollar(self, line: int) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        self.at += 1
        if after == "'":
            self._quoted("$'")
        elif after in ("{", "("):
            self._bracketed(line, after, "}" if after == "{" else ")")

    def _quoted(self, quote: str, depth: int = 0) -> None:
        """Pass over a quoted text."""
        line, self.at = self.line, self.at + 1
        closing = quote[-1]
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == closing:
                self.at += 1
                return
            if here == "\\" and quote != "'":
                self.at += 2
            elif quote == '"' and self.text.startswith(("${", "$("), self.at):
                self.at += 1
                opening = self.text[self.at]
                self._bracketed(line, opening, "}" if opening == "{" else ")", depth + 1)
            elif quote == '"' and here == "`":
                self._quoted("`", depth + 1)
            else:
                self.at += 1
        raise self.error(line, f"{closing} is not closed")

    def _bracketed(self, line: int, opening: str, closing: str, depth: int = 0) -> None:
        """Pass over `{..}` or `(..)`, the opening bracket first."""
        if depth > DEEPEST:
            raise self.error(line, "nested too deeply")
        written = f"${opening}" if opening == "{" else opening
        level = 0
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == "\\":
                self.at += 1
            elif here in "'\"`" and not (here == "'" and opening == "{" and depth):
                self._quoted(here, depth + 1)
                continue
            elif here == "#" and opening == "(" and self.text[self.at - 1] in " \t\n;":
                end = self.text.find("\n", self.at)
                self.at = end if end >= 0 else len(self.text)
                continue
            elif opening == "{" and self.text.startswith(("${", "$("), self.at):
                self.at += 1
                inner = self.text[self.at]
                self._bracketed(line, inner, "}" if inner == "{" else ")", depth + 1)
                continue
            elif here == opening:
                level += 1
                if level > DEEPEST:
                    raise self.error(line, "nested too deeply")
            elif here == closing:
                level -= 1
                if not level:
                    self.at += 1
                    return
            self.at += 1
        raise self.error(line, f"{written} is not closed")
