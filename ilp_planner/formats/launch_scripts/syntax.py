"""The part of bash that launch scripts are written in: words to commands.

Words keep their quotes and variables; `expansion` expands them. What is not understood is left as
a command of its own, for nobody runs anything here.
"""

from __future__ import annotations

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.launch_scripts.budget import DEEPEST
from ilp_planner.formats.launch_scripts.lexer import Lexer, Token
from ilp_planner.formats.launch_scripts.nodes import (
    Case,
    Chain,
    Choice,
    Count,
    For,
    Function,
    Group,
    Node,
    Pipe,
    Simple,
    While,
)

ENDS = ("then", "elif", "else", "fi", "do", "done", "esac", "}")
SEPARATORS = ("\n", ";", "&")
CASE_ENDS = (";;", ";&", ";;&")


def parse_script(text: str, source: str, line: int = 0) -> tuple[Node, ...]:
    """Return the commands of a script.

    Parameters
    ----------
    line: of all of it; 0: a file, whose lines are counted.

    Raises
    ------
    SpecError: quotes or brackets that are not closed, with the line where they begin.
    """
    tokens = Lexer(text, source, line).tokens()
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
                if token.text == "&" and found:
                    found[-1] = Group(body=(found[-1],), line=token.line, apart=True, waits=False)
                self.at += 1
            elif (token.kind == "operator" and token.text in (")", *CASE_ENDS)) or (
                token.kind == "word" and token.text in ends
            ):
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
        line, negated = self.here.line if self.here else 0, False
        while (token := self.here) and token.kind == "word" and token.text in ("!", "time"):
            negated ^= token.text == "!"
            self.at += 1
        nodes = [self._command()]
        while (token := self.here) and token.kind == "operator" and token.text in ("|", "|&"):
            self.at += 1
            while self._skip("\n"):
                pass
            nodes.append(self._command())
        if len(nodes) == 1 and not negated:
            return nodes[0]
        return Pipe(nodes=tuple(nodes), negated=negated, line=line)

    def _command(self) -> Node:
        token = self.here
        if token is None:
            raise self.error(self.rest[-1].line if self.rest else 0, "a command, found the end")
        if token.kind == "word" and token.text in ENDS:
            raise self.error(token.line, f"a command, found {token.text!r}")
        if self._defines():
            self.at += 3
            return self._body(token.text, token.line)
        compound = self._compound(token)
        if compound is None:
            return self._simple(token.line)
        redirects = self._redirects()
        if not redirects:
            return compound
        return Group(body=(compound,), line=token.line, redirects=redirects)

    def _compound(self, token: Token) -> Node | None:
        """Return a command that others stand in; None: none begins here."""
        if token.kind == "operator" and token.text == "(":
            self.at += 1
            body = self.commands(())
            self._take(")", token.line)
            return Group(body=body, line=token.line, apart=True)
        if token.kind != "word":
            return None
        known = {
            "if": self._if,
            "case": self._case,
            "for": self._for,
            "select": self._for,
            "while": self._while,
            "until": self._while,
            "function": self._function,
            "{": self._braces,
        }
        if token.text not in known:
            return None
        self.at += 1
        return known[token.text](token)

    def _defines(self) -> bool:
        """Whether `name ( )` follows."""
        ahead = [t.text for t in self.rest[self.at : self.at + 3]]
        return len(ahead) == 3 and ahead[1:] == ["(", ")"] and self.rest[self.at].kind == "word"

    def _redirects(self) -> tuple[Token, ...]:
        found = []
        while (token := self.here) and token.kind == "redirect":
            self.at += 1
            found.append(token)
        return tuple(found)

    def _simple(self, line: int) -> Node:
        words: list[Token] = []
        redirects: list[Token] = []
        inside = False  # of [[ .. ]], where operators are words
        while (token := self.here) is not None:
            if token.kind == "operator" and not inside:
                break
            self.at += 1
            if token.kind == "redirect":
                redirects.append(token)
                continue
            inside = (inside or (token.text == "[[" and not words)) and token.text != "]]"
            words.append(token)
        if not words and not redirects:
            raise self.error(line, f"a command, found {self.here.text!r}" if self.here else "one")
        return Simple(words=tuple(words), line=line, redirects=tuple(redirects))

    def _braces(self, first: Token) -> Node:
        body = self.commands(("}",))
        self._take("}", first.line)
        return Group(body=body, line=first.line)

    def _if(self, first: Token) -> Node:
        branches = []
        while True:
            test = self.commands(("then",))
            self._take("then", first.line)
            body = self.commands(("elif", "else", "fi"))
            branches.append((test, body))
            word = self._take(("elif", "else", "fi"), first.line)
            if word == "else":
                branches.append(((), self.commands(("fi",))))
                word = self._take("fi", first.line)
            if word == "fi":
                return Choice(branches=tuple(branches), line=first.line)

    def _case(self, first: Token) -> Node:
        line = first.line
        word = self._any(line)
        self._newlines()
        self._take("in", line)
        branches: list[tuple[tuple[Token, ...], tuple[Node, ...], str]] = []
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
            end = self.here.text if self.here else ""
            self._skip(*CASE_ENDS)
            branches.append((tuple(patterns), body, end if end in CASE_ENDS else ";;"))

    def _for(self, first: Token) -> Node:
        line, name = first.line, self._any(first.line)
        self._newlines()
        if name.kind == "arithmetic":
            parts = [part.strip() for part in name.text.split(";")]
            if len(parts) != 3:
                raise self.error(line, "for ((first; test; step))")
            return Count(parts=(parts[0], parts[1], parts[2]), body=self._do(line), line=line)
        words: list[Token] | None = None
        if self._skip("in"):
            words = []
            while self.here and self.here.kind == "word":
                words.append(self._any(line))
        return For(
            name=name.text,
            words=None if words is None else tuple(words),
            body=self._do(line),
            line=line,
            asks=first.text == "select",
        )

    def _while(self, first: Token) -> Node:
        test = self.commands(("do",))
        body = self._do(first.line)
        return While(test=test, body=body, line=first.line, until=first.text == "until")

    def _do(self, line: int) -> tuple[Node, ...]:
        self._newlines()
        if self._skip("{"):
            body = self.commands(("}",))
            self._take("}", line)
            return body
        self._take("do", line)
        body = self.commands(("done",))
        self._take("done", line)
        return body

    def _function(self, first: Token) -> Node:
        name = self._any(first.line)
        if self.here and self.here.text == "(":
            self.at += 2
        return self._body(name.text, first.line)

    def _body(self, name: str, line: int) -> Node:
        self._newlines()
        token = self.here
        node = self._compound(token) if token else None
        if node is None:
            raise self.error(line, f"{{ to the function {name!r:.40}")
        redirects = self._redirects()
        body = (Group(body=(node,), line=line, redirects=redirects),) if redirects else (node,)
        return Function(name=name, body=body, line=line)

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
