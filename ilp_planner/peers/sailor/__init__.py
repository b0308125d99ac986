"""Sailor (SOSP 2025): its profiles and clusters."""

from ilp_planner.base.peers import Peer

PEER = Peer("Sailor", 2025)
