"""Counts of prose: sentences of the manual, docstrings of the package. `python -m tests.prose`."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.manual import DOCS, ROOT
from tests.sources import statements, tree_of

RELATIVE = ("what", "which", "where", "those", "such", "whose", "whichever", "whatever")
QUESTIONS = ("What", "Which", "Where", "How", "Whether")
ITEM = re.compile(r"([-*]|\d+\.) ")
END = re.compile(r"""(?<=[.!?])["')*_`\]]*\s+(?=["'(*_`\[]*[A-Z0-9`])""")


def sentences(text: str) -> list[str]:
    """Return the sentences of a page in Markdown, without code, tables, headings and targets of
    links. Paragraphs and list items end a sentence."""
    text = re.sub(r"<!--.*?-->", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    blocks: list[list[str]] = [[]]
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith(("#", "|")):
            blocks.append([])
        elif ITEM.match(line):
            blocks.append([ITEM.sub("", line, count=1)])
        else:
            blocks[-1].append(line)
    prose = (re.sub(r"\]\([^)]*\)", "]", " ".join(block)) for block in blocks)
    return [one for block in prose for one in END.split(block) if words(one)]


def words(sentence: str) -> int:
    """Return the number of words with a letter or digit."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def lengths(text: str) -> tuple[float, int]:
    """Return the median and the 90th percentile of the words in a sentence."""
    counts = sorted(words(one) for one in sentences(text))
    return statistics.median(counts), counts[int(0.9 * len(counts))]


def manual() -> str:
    """Return all pages of the manual."""
    return "\n\n".join(page.read_text() for page in sorted(DOCS.rglob("*.md")))


def own_words() -> list[str]:
    """Return the glossary's words of our own."""
    text = (DOCS / "start" / "concepts.md").read_text().partition("## Words of our own")[2]
    return re.findall(r"^\| (?!term|-)([^|]+) \|", text, re.MULTILINE)


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and functions; the module's is first."""
    tree = tree_of(path)
    for node in (tree, *statements(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def modules() -> list[Path]:
    """Return the modules of the package."""
    return sorted((ROOT / "ilp_planner").rglob("*.py"))


def relative(paths: list[Path]) -> float:
    """Return the relative words per 100 words of docstrings."""
    text = " ".join(one for path in paths for one in docstrings(path)).lower()
    found = re.findall(r"[a-z]+", text)
    return 100 * sum(word in RELATIVE for word in found) / len(found)


def asking(paths: list[Path]) -> list[Path]:
    """Return the modules whose docstring opens with a question word."""
    return [path for path in paths if (next(docstrings(path)).split() or [""])[0] in QUESTIONS]


if __name__ == "__main__":
    everything = modules()
    for name, page in (("docs/", manual()), ("CHANGELOG", (ROOT / "CHANGELOG.md").read_text())):
        print(f"{name}: words of a sentence, median and p90: {lengths(page)}")
    print(f"words of our own: {len(own_words())}")
    print(f"modules that open with a question word: {len(asking(everything))} of {len(everything)}")
    print(f"relative words per 100 of docstrings: {relative(everything):.2f}")
    rooms = {path.relative_to(ROOT / "ilp_planner").parts[0] for path in everything}
    for room in sorted(rooms):
        inside = [p for p in everything if p.relative_to(ROOT / "ilp_planner").parts[0] == room]
        if any("".join(docstrings(path)) for path in inside):
            print(f"  {room}: {len(asking(inside))} of {len(inside)}, {relative(inside):.2f}")
