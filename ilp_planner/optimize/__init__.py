"""Exact search: stage graphs, bounds, solvers, and the proof that comes with a plan."""
