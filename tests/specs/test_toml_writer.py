"""What is written is what is read."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.specs.cluster_writer import toml_text

TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
SCALARS = st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), TEXTS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner)), max_leaves=8
)


@given(st.dictionaries(TEXTS, VALUES))
def test_values_come_back(values: dict[str, object]) -> None:
    assert tomllib.loads(toml_text(values)) == values
