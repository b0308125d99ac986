"""Alpa (OSDI 2022): its profile database."""

from ilp_planner.base.peers import Peer

PEER = Peer("Alpa", 2022)
