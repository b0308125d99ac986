"""Without PyTorch, which only an extra installs, what runs it is not tested."""

from importlib.util import find_spec
from pathlib import Path

WITHOUT_TORCH = ("added_messages", "journal", "links_plan")

collect_ignore: list[str] = []
if find_spec("torch") is None:
    kept = {f"test_{name}.py" for name in WITHOUT_TORCH}
    every = [path.name for path in Path(__file__).parent.glob("test_*.py")]
    collect_ignore += [name for name in every if name not in kept]
