"""Metis (ATC 2024): its profiles, clusters and costs, and its search space as a whole."""

from ilp_planner.base.peers import Peer

PEER = Peer(
    "Metis",
    2024,
    layers=True,
    vocabulary=True,
    spaces={
        "metis": {
            "build": "ilp_planner.peers.metis.build:build",
            "cost_models": ("metis",),
            "options": ("memory_rule",),
            "limits": ("max_tp", "memory_limit"),
        }
    },
)
