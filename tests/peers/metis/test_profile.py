from ilp_planner.costs.profiles.layers import layer_names


def test_layer_names():
    assert layer_names(4) == ("embedding", "layer 1", "layer 2", "head")
    assert layer_names(2) == ("layer 1", "layer 2")
