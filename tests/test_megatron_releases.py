"""Arguments of a release are read by the syntax of its files, as its parser makes them."""

import subprocess
from pathlib import Path

import pytest

from tests.megatron_releases import Argument, Release, changed

BEFORE = """
from megatron.core import Config

def add(parser):
    out = ["hidden"]
    factory = ArgumentGroupFactory(Config, exclude=out)
    group = factory.build_group(parser, "one")
    group.add_argument("--old", "--older", type=int, default=3)
    group.add_argument("--mode", choices=["a", "b"], default="a")
    group.add_argument("--no-fuse", action="store_false", dest="fuse")
    raise SystemExit("nothing here is run")
"""
AFTER = (
    BEFORE.replace("default=3", "default=4")
    .replace('"b"]', '"b", "c"]')
    .replace('"--old", "--older"', '"--older", "--new"')
)
CONFIG = """
from dataclasses import dataclass, field

@dataclass
class Base:
    layers: int = 2
    hidden: int = 8

@dataclass
class Config(Base):
    on: bool = True
    off: bool = False
    kind: Literal["x", "y"] = "x"
    own: int = field(default=1, metadata={"argparse_meta": {"arg_names": ["--mine"], "dest": "m"}})
    made: int = field(init=False)
"""


@pytest.fixture
def repository(tmp_path: Path) -> str:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    training, core = tmp_path / "megatron/training", tmp_path / "megatron/core"
    training.mkdir(parents=True)
    core.mkdir()
    (core / "config.py").write_text(CONFIG)
    git("init")
    for tag, text in (("one", BEFORE), ("two", AFTER)):
        (training / "arguments.py").write_text(text)
        git("add", ".")
        git("commit", "-m", tag)
        git("tag", tag)
    return str(tmp_path)


def test_arguments_are_those_of_calls_and_of_dataclasses(repository: str) -> None:
    assert Release(repository, "one").arguments() == {
        "layers": Argument("layers", 2, ()),
        "no-on": Argument("on", True, ()),
        "disable-on": Argument("on", True, ()),
        "off": Argument("off", False, ()),
        "kind": Argument("kind", "x", ("x", "y")),
        "mine": Argument("m", 1, ()),
        "old": Argument("old", 3, ()),
        "older": Argument("old", 3, ()),
        "mode": Argument("mode", "a", ("a", "b")),
        "no-fuse": Argument("fuse", True, ()),
    }


def test_differences_of_releases(repository: str) -> None:
    one, two = (Release(repository, tag).arguments() for tag in ("one", "two"))
    assert {*two} - {*one} == {"new"}
    assert {*one} - {*two} == {"old"}
    assert list(changed(one, two)) == [
        "`--mode`: also c",
        "`--older` sets `older`, before `old`",
        "`--older`: default `4`, before `3`",
    ]
