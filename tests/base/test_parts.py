from ilp_planner.base.parts import part
from ilp_planner.costs.profiles.predict.completion import complete


def test_a_part_is_the_object_itself() -> None:
    assert part("costs.profiles.predict.completion:complete") is complete
