"""A check of saved proofs that shares nothing with the planner, and imports nothing of it."""
