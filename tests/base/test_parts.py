from ilp_planner.base.parts import part
from ilp_planner.profiler.predict.answers import complete


def test_a_part_is_the_object_itself() -> None:
    assert part("profiler.predict.answers:complete") is complete
