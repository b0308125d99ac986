"""Launch scripts as bash itself would read them; bash is asked where it is there."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.launch_scripts.evaluation import Reading, evaluate_script
from ilp_planner.formats.launch_scripts.unknowns import known
from tests.examples import examples

SCRIPTS = {
    "words": """
A=1; B="x $A y"; C='$A'
torchrun $B "$B" $C ${A}z "${A}" a\\ b ''
torchrun \\
  --x 1 \\
  # a comment ends the command
""",
    "arrays": """
ARGS=(
  --a 1   # a comment
  "--b 2"
  --c "two words"
  #--d 3
  ${NOTHING:-}
)
ARGS+=(--e)
torchrun ${ARGS[@]} "${ARGS[@]}" ${ARGS[*]} ${#ARGS[@]} ${ARGS[2]} "p${ARGS[@]}q"
""",
    "defaults and arithmetic": """
N=${N:-4}; M=${M:=8}; W=$(($N*M+2)); K=$((W/3)); J=$(( (W - 1) % 4 ))
T=
torchrun $N $M $W $K $J "${T:+set}" "${T:-unset}" "${T-unset}" $((2**5)) $((-7/2)) $((5==5))
""",
    "tests": """
N=4; X=yes
if [ $N -eq 4 ]; then A=1; elif [ $N = 5 ]; then A=2; else A=3; fi
if [[ "$X" == "y"* && $N -gt 3 ]]; then B=1; fi
[ -z "$Q" ] && C=empty
[[ -n $X ]] || D=bad
if (( 3 > 2 )) && ! [ a = b ]; then torchrun one; fi
torchrun $A $B $C
""",
    "functions, cases and loops": """
f() { R="--r $1"; }
f 12
case $R in
  *12) S=twelve ;;
  *) S=other ;;
esac
for i in a b c; do L="$L $i"; done
{ torchrun $R; }
( torchrun "$S" $L )
while false; do torchrun never; done
""",
    "exports and prefixes": """
export A=1 B="2 3"
declare -a L=(p q)
G=7 torchrun "$B" ${L[@]} ${L[1]} $A
X=1
X+=2
Y=(1); Y+=(2 3)
torchrun $X ${Y[@]}
""",
    "splitting": """
A="a  b"; B=" $A "
torchrun x$B y"$B"z $B"q" "$B"$B ${B}w
""",
    "documents and pipes": """
cat <<EOF > /dev/null
torchrun not this
EOF
V=v
torchrun "a"'b'"$V"c \\$V "\\$V" "\\n" '\\n' 2>&1 | cat
""",
    "texts": """
run="torchrun --n 3 'a b'"
eval $run
P="--moe-layer-freq ([0]*1+[1]*59)"
torchrun $P "([0]*1+[1]*59)"
""",
    "the end": """
torchrun before; exit 0
torchrun after
""",
}
PRELUDE = (
    'set -f\ntorchrun() { printf "T"; for a in "$@"; do printf "\\037%s" "$a"; done; '
    'printf "\\036"; }\n'
)


def launches(script: str, **environment: str) -> list[list[str]]:
    return words_of(evaluate_script(script, "s", environment=environment))


def words_of(reading: Reading) -> list[list[str]]:
    """Return what each torchrun gets, as it is written where it is not known."""
    return [
        [reading.unknowns.shown(word) for word in command.words[1:]]
        for command in reading.commands
        if command.words[0] == "torchrun"
    ]


def unknown(script: str, **supplied: str) -> list[tuple[str, str, int] | None]:
    """Return text, key and line of what is not known in each word of the only torchrun."""
    reading = evaluate_script(script, "s", environment={}, supplied=supplied)
    (command,) = [c for c in reading.commands if c.words[0] == "torchrun"]
    found = [reading.unknowns.first(word) for word in command.words[1:]]
    return [u and (u.text, u.key, u.line) for u in found]


def in_bash(script: str) -> list[list[str]]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not here")
    done = subprocess.run(
        [bash, "-c", PRELUDE + script],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    return [row.split("\x1f")[1:] for row in done.stdout.split("\x1e") if row]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_as_bash_reads_it(name: str) -> None:
    found = launches(SCRIPTS[name])
    assert found
    assert found == in_bash(SCRIPTS[name])


PIECES = st.sampled_from(
    [
        "a", "--b", " ", "  ", "${A}", '"$A"', "'$A'", "${B}", '"${B} x"', "\\$", "''", '""',
        "${N:-d}",
    ]
)  # fmt: skip


@given(st.lists(st.lists(PIECES, min_size=1, max_size=6), min_size=12, max_size=12))
@examples(7)
def test_any_words_as_bash_reads_them(rows: list[list[str]]) -> None:
    script = "A='p q'\nB=' r  s '\n" + "\n".join(f"torchrun x {''.join(row)}" for row in rows)
    assert launches(script) == in_bash(script)


def test_what_only_running_would_tell_is_marked() -> None:
    """Of `A=$(command)` it is A that can be supplied."""
    assert unknown("A=$(nvidia-smi -L)\ntorchrun $A ${B} `hostname` $1 ok") == [
        ("$(nvidia-smi -L)", "A", 1),
        ("$B", "B", 2),
        ("`hostname`", "`hostname`", 2),
        ("$1", "1", 2),
        None,
    ]


def test_marks_stay_whole_when_a_text_is_read_again() -> None:
    script = 'C="torchrun --a $MISSING --b"\neval $C'
    assert unknown(script) == [None, ("$MISSING", "MISSING", 1), None]


def test_tests_on_files_are_not_decided() -> None:
    """What their branches set is not known afterwards; they do not end the script."""
    script = "A=1\nif [ -f x ]; then A=2; exit 1; fi\n[ -d y ] || mkdir y\ntorchrun $A"
    assert launches(script) == [["1"]]
    script = "A=1\nif [ -f x ]; then A=2; fi\n[ -d y ] || mkdir y\ntorchrun $A"
    assert unknown(script) == [("$A", "A", 2)]
    reading = evaluate_script(script, "s", environment={})
    (found,) = reading.unknowns.of(reading.commands[-1].words[1])
    assert set(found.options) == {"1", "2"}
    assert found.why == "`[ -f x ]` of line 2"


def test_nothing_is_run() -> None:
    script = "rm -rf /nowhere\n$(touch here)\ntorchrun x"
    commands = evaluate_script(script, "s", environment={}).commands
    assert [c.words[0] for c in commands][::2] == ["rm", "torchrun"]


def test_the_environment_before_and_inside() -> None:
    script = "export A=1\nB=2\nC=3 torchrun $D"
    (command,) = evaluate_script(script, "s", environment={"D": "4"}).commands
    assert command.environment == {"A": "1", "C": "3", "D": "4"}
    assert command.words == ("torchrun", "4")


def test_arguments_of_the_script() -> None:
    script = 'N=$1; shift\ntorchrun $N "$@" $#'
    (command,) = evaluate_script(script, "s", arguments=["7", "a b", "c"], environment={}).commands
    assert command.words == ("torchrun", "7", "a b", "c", "2")


def test_placeholders_of_a_template() -> None:
    script = "A=<a path>/file.txt\ntorchrun $A"
    assert launches(script) == [["<a path>/file.txt"]]
    assert unknown(script) == [("<a path>", "<a path>", 1)]
    assert unknown("A=<a path>\ntorchrun $A") == [("<a path>", "A", 1)]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('echo "x', 's: line 1: " is not closed'),
        ("A=(1\n2", r"s: line 1: \( is not closed"),
        ("if true; then\nA=1", "s: line 1: if is not closed"),
        ("\necho ${A", r"s: line 2: \$\{ is not closed"),
        ("fi", "s: line 1: expected a command, found 'fi'"),
        ("f() { f; }\nf", "f calls itself"),
        ("A=$(" + "(" * 300, r"\( is not closed"),
        ("{ " * 300, "{ is not closed"),
        ("A=1 > > b", "s: line 1: found"),
        ("case a in a) ;& b) ;; esac", "s: line 1: ;& is not followed"),
        ("for i in a b; do break 2; done", "s: line 1: `break 2` is not followed"),
    ],
)
def test_what_is_no_script(script: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        evaluate_script(script, "s", environment={})
    assert "\n" not in str(caught.value)


@given(st.text("abAB$(){}[]\"'`\\ \n;&|<>=#!*-1", max_size=60))
@examples(150)
def test_any_text_gives_commands_or_one_line(text: str) -> None:
    with contextlib.suppress(SpecError):
        evaluate_script(text, "s", environment={})


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is asked")
@pytest.mark.parametrize(
    "folder",
    [
        '$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)',
        '$( cd "$( dirname "$0" )" && pwd )',
        '$(cd "$(dirname "$0")" >/dev/null 2>&1 ; pwd -P)',
        '$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)',
        '$(dirname "$(cd "$(dirname "$0")" && pwd)")',
    ],
)
@pytest.mark.parametrize("named", ["inner/run.sh", "./inner/run.sh", "{}/inner/run.sh"])
def test_the_folder_of_the_script_is_known(tmp_path: Path, folder: str, named: str) -> None:
    """As bash finds it, however the script is called."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "args.sh").write_text("ARGS=1\n")
    text = f'D="{folder}"\necho "$D"\ntorchrun "$D"\n'
    (inner / "run.sh").write_text(text)
    name = named.format(tmp_path)
    done = subprocess.run(["bash", name], cwd=tmp_path, capture_output=True, text=True, check=False)
    reading = evaluate_script(text, name, environment={"PWD": str(tmp_path)})
    assert reading.commands[-1].words == ("torchrun", done.stdout.strip())


def test_other_folders_may_not_be_there() -> None:
    reading = evaluate_script(
        'D=$(cd elsewhere && pwd)\ntorchrun "$D"\n', "run.sh", environment={"PWD": "/a"}
    )
    assert not known(reading.commands[-1].words[1])


@pytest.mark.skipif(shutil.which("seq") is None, reason="seq is asked")
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=3))
def test_seq_prints_what_it_prints(numbers: list[int]) -> None:
    words = [str(number) for number in numbers]
    if len(words) == 3 and numbers[1] == 0:
        return
    done = subprocess.run(["seq", "--", *words], capture_output=True, text=True, check=False)
    reading = evaluate_script(f"torchrun x $(seq {' '.join(words)})\n", "run.sh")
    assert reading.commands[-1].words == ("torchrun", "x", *done.stdout.split())
