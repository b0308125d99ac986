"""Parameters in messages of the planner become options, and it names no option itself."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ilp_planner
from ilp_planner.faces.cli.main import command_line
from ilp_planner.faces.cli.wording import OPTIONS, as_typed
from tests.examples import for_each
from tests.sources import tree_of

ROOT = Path(ilp_planner.__file__).parent
WORD = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# Whose words are the command line's own, or become Python's (`api/words`), and Megatron's
# arguments, many of the same name; and the helps of options.
OWN = (
    *(
        "faces/api", "faces/cli", "faces/report", "faces/tools", "formats/captured",
        "formats/imported", "formats/imports", "formats/peft.py", "formats/megatron",
        "formats/schedulers", "formats/swift.py", "inputs/table", "settings/table",
        "peers/analysis_tool",
    ),
    "profiler/commands",
)  # fmt: skip


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts in a module, of an f-string as one; no docstrings."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        yield from () if isinstance(node, ast.JoinedStr) else texts(node)


def options_in(text: str) -> set[str]:
    """Return the options that a text names, outside of whole commands in backquotes."""
    return set(WORD.findall(re.sub(r"`ilp-plan [^`]*`", "", text)))


def known_options() -> set[str]:
    """Return the options of all commands."""
    commands = [command_line(asked) for asked in ([], ["profile"])]
    options: set[str] = set()
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        options |= {name for param in command.params for name in param.opts}
    return {option for option in options if WORD.fullmatch(option)}


def test_the_planner_names_no_options() -> None:
    known = known_options()
    assert len(known) > 50
    named = {}
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(OWN):
            found = {o for text in texts(tree_of(path)) for o in options_in(text)}
            named[place] = sorted(found & known)
    assert {place: options for place, options in named.items() if options} == {}


def test_the_check_sees_what_it_should() -> None:
    code = 'def f(x):\n    """Takes --top."""\n    raise E(f"{x}: use --{x} or --top 3", `--gap`)'
    found = list(texts(ast.parse(code.replace("`", '"'))))
    assert {o for text in found for o in options_in(text)} == {"--top", "--gap"}
    assert options_in("`ilp-plan solve --top 3` saves it") == set()


def test_every_parameter_has_an_option() -> None:
    assert set(OPTIONS.values()) <= known_options()


@for_each(
    ("message", "line"),
    [
        ("max_tp: must be at least 1, found 0", "--max-tp: must be at least 1, found 0"),
        ("`cost_model=amp`: expected `space=amp`, or no `model`",
         "--cost-model amp: expected --space amp, or no --model"),
        ("model 'x': `ilp-plan solve` reads `nothing=at all`",) * 2,
        ("a.toml: hidden: found 3", "a.toml: hidden: found 3"),
        ("`hostfile`: expected a `clusterfile`", "--hostfile: expected a --clusterfile"),
        ("hostfile: line 1: found nothing", "hostfile: line 1: found nothing"),
        ("`max_cp=2`: expected `space=megatron`, found planner",
         "--max-cp 2: expected --runtime megatron, found planner"),
    ],
)  # fmt: skip
def test_messages_in_the_words_of_the_command_line(message: str, line: str) -> None:
    assert as_typed(message) == line
