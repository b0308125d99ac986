"""Bash text to words, as far as launch scripts need it: quotes and variables stay in the words."""

import re
from dataclasses import dataclass

from ilp_planner.errors import SpecError
from ilp_planner.launch_scripts.values import mark

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?=)")
OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "(", ")")
REDIRECTION = re.compile(r"\d*(?:<<<|<<-?|>>|>\||>&|<&|&>>|&>|<>|>|<)")
# What a template leaves to its user; bash itself would take it for a redirection.
PLACEHOLDER = re.compile(r"[A-Za-z_]\w*=(<[^<>\n]*>)")
DEEPEST = 50  # nested commands and expansions


@dataclass(frozen=True, slots=True)
class Token:
    """A word, an operator (`\\n` included), an array assignment or `(( .. ))`.

    parts: words of an array.
    """

    kind: str
    text: str
    line: int
    parts: tuple["Token", ...] = ()


class Lexer:
    """Text to tokens. source: for messages."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\\\n", " \x00")
        self.source = source
        self.at = 0
        self.line = 1
        self.heredocs: list[str] = []

    def error(self, line: int, what: str) -> SpecError:
        """Return what is wrong with a line."""
        return SpecError(f"{self.source}: line {line}: {what}")

    def tokens(self) -> list[Token]:
        """Return all of them.

        Raises
        ------
        SpecError: quotes or brackets that are not closed, with the line where they begin.
        """
        found: list[Token] = []
        while (token := self._next()) is not None:
            found.append(token)
        return found

    def _next(self) -> Token | None:
        self._skip_blanks()
        if self.at >= len(self.text):
            return None
        line = self.line
        if self.text[self.at] == "\n":
            self.at += 1
            self.line += 1
            self._skip_heredocs()
            return Token("operator", "\n", line)
        if match := REDIRECTION.match(self.text, self.at):
            self.at = match.end()
            return self._redirection(match[0], line)
        if self.text.startswith("((", self.at):
            return self._arithmetic(line)
        for operator in OPERATORS:
            if self.text.startswith(operator, self.at):
                self.at += len(operator)
                return Token("operator", operator, line)
        word = self._word(line)
        match = ASSIGNMENT.fullmatch(word)
        if match and self.text.startswith("(", self.at):
            self.at += 1
            return Token("array", word, line, self._array(line))
        return Token("word", word, line)

    def _skip_blanks(self) -> None:
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == "\x00":
                self.line += 1
            elif here == "#":
                end = self.text.find("\n", self.at)
                # A backslash at the end of a comment does not carry it on.
                carried = self.text.find("\x00", self.at)
                if 0 <= carried < (end if end >= 0 else len(self.text)):
                    end = carried
                self.at = end if end >= 0 else len(self.text)
                continue
            elif here not in " \t\r":
                return
            self.at += 1

    def _redirection(self, operator: str, line: int) -> Token | None:
        self._skip_blanks()
        ends = self.at >= len(self.text) or self.text[self.at] == "\n"
        target = "" if ends else self._word(line)
        if operator.lstrip("0123456789").startswith("<<") and "<<<" not in operator:
            self.heredocs.append(target.strip("'\"\\"))
        return self._next()

    def _skip_heredocs(self) -> None:
        for delimiter in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                row = self.text[self.at : end]
                self.at = min(len(self.text), end + 1)
                self.line += 1 + row.count("\x00")
                if row.strip() == delimiter:
                    break
        self.heredocs = []

    def _arithmetic(self, line: int) -> Token:
        end = self.text.find("))", self.at)
        if end < 0:
            raise self.error(line, "(( is not closed")
        inside = self.text[self.at + 2 : end]
        self.line += inside.count("\n") + inside.count("\x00")
        self.at = end + 2
        return Token("arithmetic", inside.replace("\x00", ""), line)

    def _array(self, line: int) -> tuple[Token, ...]:
        parts: list[Token] = []
        while True:
            self._skip_blanks()
            if self.at >= len(self.text):
                raise self.error(line, "an array's ( is not closed")
            here = self.text[self.at]
            if here == "\n":
                self.at += 1
                self.line += 1
            elif here == ")":
                self.at += 1
                return tuple(parts)
            else:
                parts.append(Token("word", self._word(self.line, inside_array=True), self.line))

    def _word(self, line: int, *, inside_array: bool = False) -> str:
        """Return a word as it is written."""
        start, depth = self.at, 0
        placeholder = PLACEHOLDER.match(self.text, self.at)
        if placeholder:
            self.at = placeholder.end()
        stops = " \t\n\x00)" if inside_array else " \t\n\x00;|&()<>"
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in stops and not depth:
                break
            if here == "\\":
                self.at += 2
            elif here in "'\"`":
                self._quoted(here)
            elif self.text.startswith(("${", "$("), self.at):
                self._bracketed(line)
            else:
                self.at += 1
        if self.at == start:  # a character that no word begins with
            self.at += 1
        word = self.text[start : self.at].replace(" \x00", "")
        if placeholder:
            return word.replace(placeholder[1], mark(placeholder[1], line), 1)
        return word

    def _quoted(self, quote: str) -> None:
        line, self.at = self.line, self.at + 1
        while self.at < len(self.text):
            here = self.text[self.at]
            if here == quote:
                self.at += 1
                return
            if here in "\n\x00":
                self.line += 1
            if here == "\\" and quote != "'":
                self.at += 1
            elif quote == '"' and self.text.startswith(("${", "$("), self.at):
                self._bracketed(line)
                continue
            self.at += 1
        raise self.error(line, f"{quote} is not closed")

    def _bracketed(self, line: int) -> None:
        """Pass over `${..}`, `$(..)` or `$((..))`."""
        opening = self.text[self.at + 1]
        closing = "}" if opening == "{" else ")"
        depth, self.at = 0, self.at + 1
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in "\n\x00":
                self.line += 1
            if here == "\\":
                self.at += 1
            elif here in "'\"`":
                self._quoted(here)
                continue
            elif here == opening:
                depth += 1
                if depth > DEEPEST:
                    raise self.error(line, "nested too deeply")
            elif here == closing:
                depth -= 1
                if not depth:
                    self.at += 1
                    return
            self.at += 1
        raise self.error(line, f"${opening} is not closed")
