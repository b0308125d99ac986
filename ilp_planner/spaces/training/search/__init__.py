"""Search: subproblems, layouts, first plans, proofs of the last cuts."""
