"""Simple commands: assignments, what the shell does itself, and programs, which are noted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ilp_planner.formats.launch_scripts.arithmetic import ArithmeticMistakeError, evaluate
from ilp_planner.formats.launch_scripts.builtins import BUILTINS
from ilp_planner.formats.launch_scripts.conditions import decide
from ilp_planner.formats.launch_scripts.flow import Command, Output
from ilp_planner.formats.launch_scripts.lexer import ASSIGNMENT, Token
from ilp_planner.formats.launch_scripts.shells import Shells
from ilp_planner.formats.launch_scripts.state import Array, Value
from ilp_planner.formats.launch_scripts.unknowns import known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.formats.launch_scripts.evaluation import Evaluation
    from ilp_planner.formats.launch_scripts.nodes import Simple

Status = int | None
DECLARING = ("export", "declare", "local", "readonly", "typeset")


class Commands:
    """Simple commands of one script."""

    def __init__(self, script: Evaluation) -> None:
        self.script = script
        self.shells = Shells(script)

    def simple(self, node: Simple) -> Status:
        """Follow a command with its redirections."""
        script = self.script
        before, script.input = script.input, self.new_input(node.redirects, script.input)
        given = script.input
        kept = self.kept_output(node.redirects)
        try:
            return self._command(node)
        finally:
            kept()
            own = any(t.text.lstrip("0123456789").startswith("<") for t in node.redirects)
            script.input = before if own else given

    def _command(self, node: Simple) -> Status:
        script, tokens = self.script, list(node.words)
        if not tokens:
            return 0
        if tokens[0].kind == "arithmetic":
            return self.arithmetic(tokens[0].text, node.line)
        if tokens[0].text == "[[":
            return decide(tuple(tokens), script.words, script.scope, node.line)
        count = 0
        while count < len(tokens) and ASSIGNMENT.match(tokens[count].text):
            count += 1
        script.scope.substituted = 0
        if count == len(tokens):
            for token in tokens:
                self.assign(token)
            return script.scope.substituted
        extra = {}
        for token in tokens[:count]:
            if token.kind == "word" and (match := ASSIGNMENT.match(token.text)):
                value = script.words.text(token.text[match.end() :], token.line)
                extra[match["name"]] = value
        tokens = tokens[count:]
        if tokens[0].text in DECLARING:
            return self.declare(tokens)
        words = [w for token in tokens for w in self.kept_words(token, tokens[0].text)]
        if not words:
            return script.scope.substituted
        return self.command(words, extra, node)

    def command(self, words: list[str], extra: dict[str, str], node: Simple) -> Status:
        """Follow a command whose words are expanded. extra: variables set before it."""
        script, name, plain = self.script, words[0], False
        while name in ("command", "builtin") and len(words) > 1 and words[1][:1] != "-":
            words, plain = words[1:], True
            name = words[0]
        if name in script.state.functions and not plain:
            return self.with_variables(
                extra, lambda: script.call(script.state.functions[name], words[1:], node.line)
            )
        if name == "eval":
            return self.with_variables(extra, lambda: script.text(" ".join(words[1:]), node.line))
        if name == "cat":
            self.shells.keep_document(node)
        if name in BUILTINS:
            return self.with_variables(extra, lambda: BUILTINS[name](script, words, node.line))
        return self.shells.program(words, extra, node)

    def with_variables(self, extra: dict[str, str], act: Callable[[], Status]) -> Status:
        """Follow what the shell does itself with variables set for that alone."""
        if not extra:
            return act()
        values = self.script.state.values
        before = {name: values.get(name) for name in extra}
        values |= extra
        try:
            return act()
        finally:
            values = self.script.state.values
            for name, value in before.items():
                if value is None:
                    values.pop(name, None)
                else:
                    values[name] = value

    def note(self, words: Sequence[str], extra: dict[str, str], line: int) -> None:
        """Note a program that would be started."""
        script = self.script
        if script.printed:
            script.printed[-1].known = False
        script.reading.commands.append(
            Command(
                words=tuple(words),
                line=line,
                environment={**script.state.exported(), **extra},
                doubt=script.doubts[-1] if script.doubts else None,
            )
        )

    def kept_words(self, token: Token, command: str = "") -> list[str]:
        """Return the words of a token; of `[` those that bash would leave out are."""
        script = self.script
        if token.kind != "word":
            return [token.text]
        words = script.words.words(token.text, token.line)
        if command not in ("[", "test", "") or re.search(r"[\"']", token.text):
            return words
        kept = []
        for word in words:
            alone = script.scope.unknowns.alone(word)
            if alone and alone.empty:
                script.scope.empty_unset(word)
            else:
                kept.append(word)
        return kept

    def arithmetic(self, expression: str, line: int) -> Status:
        """Follow `((..))`."""
        script = self.script
        filled = script.words.text(expression.replace('"', ""), line)
        script.budget.spend(len(filled), line)
        numbers = _EmptyIsZero(script)
        try:
            value = evaluate(script.scope.empty_unset(filled), numbers)
        except (ArithmeticMistakeError, RecursionError):
            return 1
        return None if isinstance(value, str) else int(value == 0)

    def assign(self, token: Token, *, flags: str = "") -> None:
        """Follow `name=value`."""
        match = ASSIGNMENT.match(token.text)
        assert match is not None
        script, scope, name = self.script, self.script.scope, match["name"]
        adds, index = match["how"] == "+=", match["index"]
        if token.kind == "array":
            scope.assign(name, self._array(token, name, adds=adds, flags=flags), token.line)
            return
        written = token.text[match.end() :]
        # `A="$A more"` starts from nothing where nobody has set A.
        starts = scope.state.values.get(scope.named(name)) is None and not scope.state.read
        own = starts and re.search(rf"\$\{{?{name}\b", written)
        if own:
            scope.state.values[scope.named(name)] = ""
        value = script.words.text(written, token.line)
        if index is not None:
            self._entry(name, index, value, token, adds=adds)
            return
        old = scope.state.values.get(scope.named(name))
        if isinstance(old, Array) and not scope.state.has(name, "i"):
            first = (old.items.get(0, "") if adds else "") + value
            scope.set_entry(name, 0, first, token.line)
        elif adds and isinstance(old, str):
            joined = f"{old}+({value})" if scope.state.has(name, "i") else old + value
            scope.assign(name, joined, token.line)
        else:
            scope.assign(name, value, token.line)

    def _entry(self, name: str, index: str, value: str, token: Token, *, adds: bool) -> None:
        scope = self.script.scope
        old = scope.state.values.get(scope.named(name))
        named = isinstance(old, Array) and old.named
        filled = self.script.words.text(index, token.line) if named else index
        place = (
            filled
            if named
            else scope.place(index, token.line, self.script.words.number, named=False)
        )
        if place is None or not known(str(place)):
            scope.forget(name, f"${name}", token.line, f"the entry {index} is not known")
            return
        before = old.items.get(place, "") if adds and isinstance(old, Array) else ""
        scope.set_entry(name, place, before + value, token.line)

    def _array(self, token: Token, name: str, *, adds: bool, flags: str) -> Value:
        scope, script = self.script.scope, self.script
        old = scope.state.values.get(scope.named(name))
        named = "A" in flags or (isinstance(old, Array) and old.named)
        items: dict[int | str, str] = {}
        if adds and isinstance(old, Array):
            items = dict(old.items)
        elif adds and isinstance(old, str) and old:
            items = {0: old}
        if old is None and not scope.state.read:
            scope.state.values[scope.named(name)] = Array()
        end = Array(items).end
        for part in token.parts:
            if match := re.match(r"\[(?P<key>[^\]]*)\]=", part.text):
                key: int | str | None = script.words.text(match["key"], part.line)
                if not named:
                    key = scope.place(match["key"], part.line, script.words.number, named=False)
                if key is not None:
                    items[key] = script.words.text(part.text[match.end() :], part.line)
                    end = key + 1 if isinstance(key, int) else end
                continue
            for word in script.words.words(part.text, part.line):
                items[end] = word
                end += 1
        script.budget.spend(16 * len(items), token.line)
        return Array(items, named)

    def declare(self, tokens: list[Token]) -> Status:
        """Follow `export`, `declare`, `local`, `readonly` and `typeset`."""
        script, name = self.script, tokens[0].text
        if name == "local" and not script.scope.locals:
            return 1  # there is no function that it would be local to
        flags = {"export": "x", "readonly": "r"}.get(name, "")
        off = ""
        for token in tokens[1:]:
            words = [token.text]
            if token.kind == "word" and not ASSIGNMENT.match(token.text):
                words = script.words.words(token.text, token.line)
            for word in words:
                if word[:1] == "-":
                    flags += word[1:]
                elif word[:1] == "+" and len(word) > 1:
                    off += word[1:]
                elif word:
                    one = token if ASSIGNMENT.match(token.text) else Token("word", word, token.line)
                    self._declare_one(one, name, flags, off)
        return 0

    def _declare_one(self, token: Token, command: str, flags: str, off: str) -> None:
        scope, line = self.script.scope, token.line
        if "f" in flags or "p" in flags:
            return
        match = ASSIGNMENT.match(token.text)
        name = match["name"] if match else token.text
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return
        value = None
        if match and token.kind == "word" and command == "local":
            # Its own value is that of outside while it is read: `local A=$A`.
            value = self.script.words.text(token.text[match.end() :], line)
        if command == "local" or (command in ("declare", "typeset") and "g" not in flags):
            scope.make_local(name)
        kept = "".join(c for c in flags if c in "xir")
        if "n" in flags and command != "export":
            pointed = self.script.words.text(token.text[match.end() :], line) if match else ""
            if value is not None:
                pointed = value
            if re.fullmatch(r"[A-Za-z_]\w*", pointed) and pointed != name:
                scope.state.names[name] = pointed
            return
        if "n" in flags:
            kept, off = kept.replace("x", ""), off + "x"
        before = "".join(c for c in scope.state.attributes.get(name, "") if c not in off)
        if "i" in kept:
            scope.state.attributes[name] = before + "i"
        if value is not None:
            scope.assign(name, value, line)
        elif match:
            self.assign(token, flags=flags)
        elif "A" in flags and name not in scope.state.values:
            scope.state.values[name] = Array(named=True)
        elif "a" in flags and name not in scope.state.values:
            scope.state.values[name] = Array()
        elif command == "local" and name not in scope.state.values:
            scope.state.values[name] = ""
        scope.state.attributes[name] = before + kept

    def new_input(self, redirects: Sequence[Token], before: list[str] | None) -> list[str] | None:
        """Return the lines that a command reads; None: not known."""
        for token in redirects:
            operator = token.text.lstrip("0123456789")
            if operator == "<<<":
                text = self.script.words.text(token.parts[0].text, token.line)
                before = text.split("\n") if known(text) else None
            elif operator in ("<<", "<<-"):
                text = self.document(token)
                before = text.split("\n")[:-1] if known(text) else None
            elif operator in ("<", "<>"):
                before = None
        return before

    def document(self, token: Token) -> str:
        """Return the text of a here-document."""
        text = token.body[-1] if token.body else ""
        quoted = re.search(r"['\"\\]", token.parts[0].text)
        return text if quoted else self.script.words.document(text, token.line)

    def kept_output(self, redirects: Sequence[Token]) -> Callable[[], None]:
        """Keep output that goes into a file away from `$(..)`; return what ends that."""
        goes = any(t.text in (">", ">>", ">|", "1>", "1>>", "&>", "&>>") or
                   (t.text == ">&" and t.parts[0].text == "2") for t in redirects)  # fmt: skip
        return self.swallowed() if goes else lambda: None

    def swallowed(self) -> Callable[[], None]:
        """Let nothing that is printed reach `$(..)`; return what ends that."""
        script = self.script
        script.printed.append(Output())

        def kept() -> None:
            script.printed.pop()

        return kept


class _EmptyIsZero:
    """Variables of `((..))`, where those that nobody set count as 0."""

    def __init__(self, script: Evaluation) -> None:
        self.scope = script.scope

    def number_text(self, name: str, index: str) -> str:
        return self.scope.empty_unset(self.scope.number_text(name, index))

    def set_number(self, name: str, index: str, value: str) -> None:
        self.scope.set_number(name, index, value)
