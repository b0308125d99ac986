"""AMP (NeurIPS 2022): one plan for all devices, placed on a mixed cluster."""

from ilp_planner.base.peers import Peer

PEER = Peer(
    "AMP",
    2022,
    layers=True,
    spaces={
        "amp": {
            "build": "ilp_planner.peers.amp.build:build",
            "cost_models": ("amp",),
            "options": ("placement",),
            "limits": ("max_tp",),
            "memory": False,
        }
    },
)
