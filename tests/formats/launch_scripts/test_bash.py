"""Everyday bash, run in bash itself beside the reader: both start the same launches."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ilp_planner.formats.launch_scripts.evaluation import evaluate_script
from ilp_planner.formats.launch_scripts.unknowns import known
from tests.examples import examples

PRELUDE = (
    'set -f\ntorchrun() { printf "T"; for a in "$@"; do printf "\\037%s" "$a"; done; '
    'printf "\\036"; }\nexport -f torchrun\n'
)

TABLE = Path(__file__).with_name("everyday.txt").read_text(encoding="utf-8")
SCRIPTS = dict(part.split("\n", 1) for part in TABLE.split("==== ")[1:])


def in_bash(script: str, folder: Path, *, clean: bool = True) -> list[list[str]]:
    """Return what every torchrun of a script gets when bash runs it. clean: without complaints."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not here")
    path = folder / "script.sh"
    path.write_text(PRELUDE + script)
    done = subprocess.run(
        [bash, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
    )
    if clean:
        assume(not done.stderr)  # what bash complains of, nobody launches
    return [row.split("\x1f")[1:] for row in done.stdout.split("\x1e") if row.startswith("T")]


@pytest.mark.parametrize("name", SCRIPTS)
def test_as_bash_runs_it(name: str, tmp_path: Path) -> None:
    reading = evaluate_script(SCRIPTS[name], "s", environment={})
    found = [
        [reading.empty_unset(word) for word in c.words[1:]]
        for c in reading.commands
        if c.words[0] == "torchrun"
    ]
    assert all(known(word) for words in found for word in words)
    assert found
    assert found == in_bash(SCRIPTS[name], tmp_path, clean=False)


NAMES = st.sampled_from("ABCi")
WORDS = st.sampled_from(
    ["1", "2", "$A", '"$B"', "${C:-3}", "x$i", "'a b'", "$((A+1))", "${#B}", "$(echo p q)", "$1"]
)
TESTS = st.sampled_from(
    ["[ $A = 1 ]", '[[ "$B" == a* ]]', "((A < 3))", "true", "! false", '[ -n "$C" ]', "f", "false"]
)
PLAIN = st.one_of(
    st.builds("{}={}".format, NAMES, WORDS),
    st.builds("torchrun {} {}".format, WORDS, WORDS),
    st.sampled_from(
        ["((A++))", "((A+=2))", "A+=1", "L+=($A z)", "torchrun ${L[@]} ${#L[@]}", "shift", "f $B",
         "unset B", "local A=5", "B=${A%b}${C#x}", "break", "continue", "return 1",
         "printf -v C '%s-' $A", "export A", "bash -c 'torchrun x$A'", "(A=7; torchrun $A)",
         "echo $A | read B", "torchrun $?", "eval \"C='$A'\""]
    ),
)  # fmt: skip


def statements(depth: int) -> st.SearchStrategy[str]:
    """Return scripts of commands in one another."""
    if not depth:
        return PLAIN
    inner = st.lists(statements(depth - 1), min_size=1, max_size=3).map("; ".join)
    return st.one_of(
        PLAIN,
        st.builds("if {}; then {}; else {}; fi".format, TESTS, inner, inner),
        st.builds("for i in 1 {} 2; do {}; done".format, WORDS, inner),
        st.builds("{} && {{ {}; }}".format, TESTS, inner),
        st.builds("{} || {}".format, TESTS, PLAIN),
        st.builds(f"n{depth}=0; while ((n{depth}++ < 3)); do {{}}; done".format, inner),
        st.builds("case $A in 1) {};; [2-4]) {};; *) {};; esac".format, inner, inner, inner),
        st.builds("( {} )".format, inner),
        st.builds("g() {{ {}; }}; g $A".format, inner),
    )


def read_here(script: str, **supplied: str) -> list[list[str]]:
    """Return what every torchrun of a script gets as it is read."""
    reading = evaluate_script(script, "s", environment={}, supplied=supplied)
    return [
        list(command.words[1:]) for command in reading.commands if command.words[0] == "torchrun"
    ]


BEFORE = "A=1; B=ab; C=; L=(p); f() { return 0; }\nset -- q r s\n"


@given(st.lists(statements(2), min_size=1, max_size=6))
@example(['A="$B"', "for i in 1 $((A+1)) 2; do torchrun $i; done"])  # a number is one word
@examples(30, deadline=None)
def test_any_script_as_bash_runs_it(rows: list[str]) -> None:
    """Commands in one another, drawn at random: functions, loops, shells and what leaves them."""
    script = BEFORE + "\n".join(rows) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        expected = in_bash(script, Path(folder))
    found = read_here(script)
    if any(command.doubt for command in evaluate_script(script, "s", environment={}).commands):
        return  # how often is not known
    for mine, real in zip(found, expected, strict=True):
        if all(map(known, mine)):
            assert [w for w in mine if w] == [w for w in real if w]


@given(st.lists(statements(2), min_size=1, max_size=5), st.booleans())
@examples(30, deadline=None)
def test_what_is_known_of_an_open_test_is_so_either_way(rows: list[str], there: bool) -> None:
    """Where nobody knows whether there is a file, what is said of the launches behind it must hold
    with the file and without it."""
    script = (
        BEFORE
        + "if [ -e file ]; then {}; fi\n".format("; ".join(rows))
        + ('torchrun last "$A" "$B" "$C" "$1" "${L[*]}"\n')
    )
    found = [words for words in read_here(script) if words[:1] == ["last"]]
    with tempfile.TemporaryDirectory() as folder:
        if there:
            (Path(folder) / "file").touch()
        expected = [words for words in in_bash(script, Path(folder)) if words[0] == "last"]
    if expected:
        for mine, real in zip(found[-1], expected[-1], strict=True):
            assert not known(mine) or mine == real
