"""What must end in a message of one line, however a script is written: there is one budget."""

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.launch_scripts.evaluation import evaluate_script

TOO_MUCH = {
    "loops in loops": "for ((i=0;i<1000;i++)); do for ((j=0;j<1000;j++)); do A=$j; done; done",
    "functions that call twice": "\n".join(f"f{i}() {{ f{i + 1}; f{i + 1}; }}" for i in range(18))
    + "\nf18() { :; }\nf0",
    "arrays that double": "A=(1 2)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 26,
    "texts that double": "A=x\n" + "A=$A$A\n" * 40,
    "output that doubles": "A=1\n" + "A=$(echo $A$A)\n" * 60,
    "millions of comments": "# a\n" * 2_500_000 + "torchrun x",
    "undecided loops in loops": "for i in $(ls); do " * 30 + "A=1;" + " done;" * 30,
    "negations": "! " * 100_000 + "true",
    "a comment on a million lines": "# a \\\n" * 100_000,
    "for ever": "while true; do ((i++)); done",
    "replacing in a long text": f"X={'a' * 200_000}; Y=${{X//a/b}}",
}
NO_BASH = {
    "brackets": ("(" * 100_000, r"\( is not closed"),
    "output in output": ("A=" + "$(" * 100_000, r"\$\( is not closed"),
    "quotes in output": ('"$(' * 100_000, r"\$\( is not closed"),
    "commands in groups": ("{ " * 200 + "true" + "; }" * 200, "nested too deeply"),
    "output in output that is closed": ("A=" + "$(echo " * 60 + ")" * 60, "nested too deeply"),
    "a function that calls itself twice": ("f() { f; f; }\nf", "calls itself|nested too deeply"),
    "texts that read themselves": ("A='eval $A; eval $A'\neval $A", "nested too deeply"),
    "many pipes": ("a|" * 100_000, "found more than 2000 signs"),
    "operators without commands": ("<(>)$;&" * 10_000, "nested too deeply, or no bash"),
    "arrays in arrays": ("A=(" * 15_000, "nested too deeply, or no bash"),
}
FOLLOWED = {
    "an expression that others go back in": f"X={'a' * 40}b; [[ $X =~ ^(a+)+$ ]] && A=1",
    "a pattern that others go back in": f"case {'a' * 3000} in {'*a' * 300}b) A=1;; esac",
    "a long chain": "true && " * 20_000 + "true",
    "one undecided test after the other": "if [ -f x ]; then A=1; fi\n" * 2_000,
    "undecided tests in tests": "if [ -f x ]; then A=1\n" * 30 + "fi\n" * 30,
    "a loop that goes on as it is": "while true; do A=1; done\ntorchrun never",
    "numbers in brackets": "A=$((" + "(" * 10_000 + "1" + ")" * 10_000 + "))",
    "large numbers": f"A=$((3**3**3**3)); B=$(({'9' * 100_000}))",
    "wide numbers": "printf -v A '%999999999d' 3",
    "repetitions in repetitions": "[[ a =~ ((a{1,200}){1,200}){1,200} ]] && A=1",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=r"found more to follow than .* characters") as caught:
        evaluate_script(TOO_MUCH[name], "s", environment={})
    assert "\n" not in str(caught.value)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", NO_BASH)
def test_no_bash_is_refused(name: str) -> None:
    script, message = NO_BASH[name]
    with pytest.raises(SpecError, match=message) as caught:
        evaluate_script(script, "s", environment={})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_rest_is_followed(name: str) -> None:
    assert evaluate_script(f"{FOLLOWED[name]}\n:", "s", environment={}).commands == []
