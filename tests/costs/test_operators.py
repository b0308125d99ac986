"""What surrounds a stage where nothing is said."""

from ilp_planner.costs.operators import Surroundings


def test_a_stage_of_which_nothing_is_said_is_alone_on_its_node() -> None:
    alone = Surroundings(micro_batch=4, micro_batches=2)
    assert (alone.behind, alone.enters_node, alone.leaves_node) == (0, False, False)
