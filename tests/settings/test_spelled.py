"""A setting is spelled in its row, in what prices it and in what says it; nowhere else anew."""

import ast

from tests.settings.spelled import WORDS, allowed, spelled, words


def test_no_other_module_spells_a_setting() -> None:
    """Who needs one gets a column of the table; `spelled.toml` lists what is left."""
    listed = allowed()
    assert listed.keys() == WORDS
    more = {word: sorted(names - {*listed[word]}) for word, names in spelled().items()}
    assert not {word: names for word, names in more.items() if names}


def test_attributes_keywords_parameters_and_texts_are_seen() -> None:
    source = "def f(a_a): return x.b_b, g(c_c=1), 'kernels.d_d', '--e-e', f'{y.f_f}', h_h"
    assert {f"{one}_{one}" for one in "abcdefh"} <= {*words(ast.parse(source))}
