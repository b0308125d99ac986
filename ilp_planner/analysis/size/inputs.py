"""Inputs of a problem that sizing has not: it is asked which nodes to take."""

# Of nodes, measured profiles and other planners.
NODES = (
    "cluster_name", "cluster", "gpus", "hostfile", "clusterfile", "profile", "price", "without",
    "keep", "max_devices", "cost_model", "memory_rule", "placement", "shares", "stage_tp", "seats",
    "experiment", "max_stage_nodes", "hidden_size", "vocab_size",
)  # fmt: skip
