"""The analysis tool of Megatron-LM: its report on memory, beside ours."""

from ilp_planner.base.peers import Peer

PEER = Peer("Megatron-LM's analysis tool", 2021)
