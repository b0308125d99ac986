"""The part of bash that launch scripts are written in: words to commands.

Words keep their quotes and variables; `shell/values` expands them. What is not understood is left
as a command of its own, for nobody runs anything here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ilp_planner.errors import SpecError
from ilp_planner.launch_scripts.lexer import DEEPEST, Lexer, Token

ENDS = ("then", "elif", "else", "fi", "do", "done", "esac", "}")
SEPARATORS = ("\n", ";", "&")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """A command with its arguments; assignments alone are one as well."""

    words: tuple[Token, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`if`: (test, what then) one after the other; an empty test always holds."""

    branches: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`case`: (patterns, what then)."""

    word: Token
    branches: tuple[tuple[tuple[Token, ...], tuple[Node, ...]], ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """`for`, `while` or `until`. name, words: of `for`; name empty otherwise."""

    name: str
    words: tuple[Token, ...]
    body: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function's definition."""

    name: str
    body: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Commands joined by && and ||; operators[i] stands before nodes[i + 1]."""

    nodes: tuple[Node, ...]
    operators: tuple[str, ...]
    line: int


Node = Simple | Choice | Case | Loop | Function | Chain


def parse_script(text: str, source: str) -> tuple[Node, ...]:
    """Return the commands of a script.

    Raises
    ------
    SpecError: quotes or brackets that are not closed, with the line where they begin.
    """
    tokens = Lexer(text, source).tokens()
    parser = _Parser(tokens, source)
    nodes = parser.commands(())
    if parser.here is not None:
        raise parser.error(parser.here.line, f"a command, found {parser.here.text!r}")
    return nodes


class _Parser:
    """Tokens to commands."""

    def __init__(self, tokens: list[Token], source: str) -> None:
        self.rest = tokens
        self.at = 0
        self.source = source
        self.depth = 0

    @property
    def here(self) -> Token | None:
        return self.rest[self.at] if self.at < len(self.rest) else None

    def error(self, line: int, expected: str) -> SpecError:
        return SpecError(f"{self.source}: line {line}: expected {expected}")

    def commands(self, ends: tuple[str, ...]) -> tuple[Node, ...]:
        """Return commands up to one of these words."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(self.here.line if self.here else 0, "fewer nested commands")
        found: list[Node] = []
        while (token := self.here) is not None:
            if token.kind == "operator" and token.text in SEPARATORS:
                self.at += 1
            elif token.text in ((")", ";;") if token.kind == "operator" else ends):
                break
            else:
                found.append(self._chain())
        self.depth -= 1
        return tuple(found)

    def _chain(self) -> Node:
        line = self.here.line if self.here else 0
        nodes, operators = [self._pipeline()], []
        while (token := self.here) and token.kind == "operator" and token.text in ("&&", "||"):
            operators.append(token.text)
            self.at += 1
            while self._skip("\n"):
                pass
            nodes.append(self._pipeline())
        if not operators:
            return nodes[0]
        return Chain(nodes=tuple(nodes), operators=tuple(operators), line=line)

    def _pipeline(self) -> Node:
        first = self._command()
        while (token := self.here) and token.kind == "operator" and token.text in ("|", "|&"):
            self.at += 1
            while self._skip("\n"):
                pass
            self._command()  # what reads the output changes nothing here
        return first

    def _command(self) -> Node:
        token = self.here
        if token is None:
            raise self.error(self.rest[-1].line if self.rest else 0, "a command, found the end")
        compound = {
            "if": self._if,
            "case": self._case,
            "for": self._for,
            "while": self._while,
            "until": self._while,
            "function": self._function,
        }
        if token.kind == "word" and token.text in ENDS:
            raise self.error(token.line, f"a command, found {token.text!r}")
        if token.kind == "word" and token.text in compound:
            self.at += 1
            return compound[token.text](token.line)
        if token.kind == "word" and token.text == "{":
            self.at += 1
            return self._group(("}",), token.line)
        if token.kind == "operator" and token.text == "(":
            self.at += 1
            body = self.commands(())
            self._take(")", token.line)
            return Choice(branches=(((), body),), line=token.line)
        if self._defines():
            self.at += 3
            return self._body(token.text, token.line)
        return self._simple(token.line)

    def _defines(self) -> bool:
        """Whether `name ( )` follows."""
        ahead = [t.text for t in self.rest[self.at : self.at + 3]]
        return len(ahead) == 3 and ahead[1:] == ["(", ")"] and self.rest[self.at].kind == "word"

    def _simple(self, line: int) -> Node:
        words: list[Token] = []
        inside = False  # of [[ .. ]], where operators are words
        while (token := self.here) is not None:
            if token.kind == "operator" and not (inside and token.text != "\n"):
                break
            self.at += 1
            words.append(token)
            if token.text == "[[":
                inside = True
            elif token.text == "]]":
                inside = False
        if not words:
            raise self.error(line, f"a command, found {self.here.text!r}" if self.here else "one")
        return Simple(words=tuple(words), line=line)

    def _if(self, line: int) -> Node:
        branches = []
        while True:
            test = self.commands(("then",))
            self._take("then", line)
            body = self.commands(("elif", "else", "fi"))
            branches.append((test, body))
            word = self._take(("elif", "else", "fi"), line)
            if word == "else":
                branches.append(((), self.commands(("fi",))))
                word = self._take("fi", line)
            if word == "fi":
                return Choice(branches=tuple(branches), line=line)

    def _case(self, line: int) -> Node:
        word = self._any(line)
        self._newlines()
        self._take("in", line)
        branches: list[tuple[tuple[Token, ...], tuple[Node, ...]]] = []
        while True:
            self._newlines()
            if self._skip("esac"):
                return Case(word=word, branches=tuple(branches), line=line)
            self._skip("(")
            patterns = [self._any(line)]
            while self._skip("|"):
                patterns.append(self._any(line))
            self._take(")", line)
            body = self.commands(("esac",))
            self._skip(";;")
            branches.append((tuple(patterns), body))

    def _for(self, line: int) -> Node:
        name = self._any(line)
        self._newlines()
        words: list[Token] = []
        if self._skip("in"):
            while self.here and self.here.kind == "word":
                words.append(self._any(line))
        return self._loop("" if name.kind == "arithmetic" else name.text, tuple(words), line)

    def _while(self, line: int) -> Node:
        self.commands(("do",))
        return self._loop("", (), line)

    def _loop(self, name: str, words: tuple[Token, ...], line: int) -> Node:
        self.commands(("do",))
        self._take("do", line)
        body = self.commands(("done",))
        self._take("done", line)
        return Loop(name=name, words=words, body=body, line=line)

    def _function(self, line: int) -> Node:
        name = self._any(line)
        if self.here and self.here.text == "(":
            self.at += 2
        return self._body(name.text, line)

    def _body(self, name: str, line: int) -> Node:
        self._newlines()
        self._take("{", line)
        body = self.commands(("}",))
        self._take("}", line)
        return Function(name=name, body=body, line=line)

    def _group(self, ends: tuple[str, ...], line: int) -> Node:
        body = self.commands(ends)
        self._take(ends, line)
        return Choice(branches=(((), body),), line=line)

    def _newlines(self) -> None:
        while self._skip(*SEPARATORS):
            pass

    def _skip(self, *texts: str) -> bool:
        """Pass over one of these texts; return whether it was there."""
        there = self.here is not None and self.here.text in texts
        self.at += there
        return there

    def _any(self, line: int) -> Token:
        token = self.here
        if token is None:
            raise self.error(line, "more, found the end")
        self.at += 1
        return token

    def _take(self, wanted: str | tuple[str, ...], line: int) -> str:
        names = (wanted,) if isinstance(wanted, str) else wanted
        if self.here is None or self.here.text not in names:
            found = repr(self.here.text) if self.here else "the end"
            raise self.error(line, f"{' or '.join(names)} to what begins here, found {found}")
        return self._any(line).text
