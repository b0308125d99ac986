"""Nothing that a file or a command line holds steers a terminal."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.printable import STEERING, printable, printable_json, printable_lines
from ilp_planner.faces.report.grid import RESET, STYLES, styled_text

BIDI = "\u202e\u2066\u061c"


@given(st.text() | st.text(alphabet="a\x1b\x9b\x07\r\u202e\u2028\x00\n\t"))
def test_what_is_left_is_as_it_was(text: str) -> None:
    shown = printable(text)
    assert not STEERING.search(shown)
    assert len(shown) == len(text)
    assert all(a == b or b == "?" for a, b in zip(text, shown, strict=True))


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    for encoding in ("utf-8", "ascii", "no such encoding"):
        shown = printable_json(json.dumps(text, ensure_ascii=False), encoding)
        assert json.loads(shown) == text
        assert not STEERING.search(shown)
        assert encoding != "ascii" or shown.isascii()


def test_which_characters_they_are() -> None:
    assert printable(f"a\x1b[31m{BIDI}\x85b\n\tc") == "a?[31m????b\n\tc"
    assert printable("µ 模型 \u0301") == "µ 模型 \u0301"


@given(st.lists(st.text(alphabet="a\x1b[31m\x9b\u202e")), st.sampled_from(sorted(STYLES)))
def test_styles_of_our_own_are_all_that_passes(texts: list[str], style: str) -> None:
    lines = [text if n % 2 else styled_text(text, style) for n, text in enumerate(texts)]
    shown = printable(printable_lines(lines))
    bare = shown.replace(STYLES[style], "", len(texts)).replace(RESET, "")
    assert not STEERING.search(bare)
    assert bare == "\n".join(map(printable, texts))
    assert shown.count(RESET) == shown.count(STYLES[style]) == (len(texts) + 1) // 2
