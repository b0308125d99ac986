"""Aceso (EuroSys 2024): its profile database, cost model and plans."""

from ilp_planner.base.peers import Peer

PEER = Peer("Aceso", 2024)
