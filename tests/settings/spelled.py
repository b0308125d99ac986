"""The modules that spell the name of a setting besides the table, what prices it and what says it.

`python -m tests.settings.spelled` drops from `spelled.toml` what is spelled no more. It adds
nothing: a module that has to name a setting gets a column of the table instead.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import ilp_planner
from ilp_planner.settings.table import SETTINGS
from tests.sources import tree_of

ROOT, FILE = Path(ilp_planner.__file__).parent, Path(__file__).with_name("spelled.toml")
HOME = ("settings", "job", "costs")
ALONE = ("checker/checker.py", "checker/costs.py")  # share nothing, no table either
# Has the field itself, and what is generated from the table.
MADE = ("specs/training.py", "inputs/keywords.py")
PLAIN = ("dispatcher", "quantised", "sharding", "moments", "deterministic", "imbalance", "compiled")
# Of the inputs of every job, of devices and of the pipeline: any module may speak of them.
OF_ALL = ("inputs", "micro_batch_size", "virtual_stages", "rank_order", "max_devices")
FOLDERS = ("faces/cli/", "peers/", "profiler/")  # one entry for all modules of each
WORDS = {
    word
    for row in SETTINGS
    if row.name not in OF_ALL
    for word in (row.name, *(field.rpartition(".")[2] for field in row.fields))
    if "_" in word or word in PLAIN
}


def words(tree: ast.AST) -> Iterator[str]:
    """Yield the names and texts of a module; of `kernels.fused_loss` the last part."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword | ast.arg):
            yield node.arg or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.strip("-").replace("-", "_").rpartition(".")[2]


def spelled() -> dict[str, set[str]]:
    """Return the modules outside of `HOME` that spell each word, or their folder."""
    found: dict[str, set[str]] = {word: set() for word in sorted(WORDS)}
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name.split("/")[0] in HOME or name in (*MADE, *ALONE):
            continue
        place = next((folder for folder in FOLDERS if name.startswith(folder)), name)
        for word in WORDS.intersection(words(tree_of(path))):
            found[word].add(place)
    return found


def allowed() -> dict[str, list[str]]:
    """Return the modules that may spell each word."""
    return tomllib.loads(FILE.read_text())


def text(listed: dict[str, list[str]]) -> str:
    """Return the file."""
    head = "# The modules that may spell a setting's name: this list only gets shorter.\n"
    lines = []
    for word, names in listed.items():
        rows = "".join(f'    "{name}",\n' for name in names)
        lines.append(f"{word} = [\n{rows}]\n" if names else f"{word} = []\n")
    return head + "".join(lines)


if __name__ == "__main__":
    found = spelled()
    FILE.write_text(
        text({word: [n for n in allowed()[word] if n in found[word]] for word in found})
    )
