"""How much slower or faster a change is, as people read it."""

from ilp_planner.faces.report.fit import signed_percent
from tests.examples import for_each


@for_each(
    ("share", "text"),
    [
        (0.0, "0.00 %"),
        (0.0213, "+2.13 %"),
        (-0.3, "-30.00 %"),
        (1e-7, "<0.01 %"),
        (-1e-7, "<0.01 %"),
        (12.5, "+1250.00 %"),
    ],
)
def test_a_share_has_a_sign_where_it_is_shown(share: float, text: str) -> None:
    assert signed_percent(share) == text
