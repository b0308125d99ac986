"""The plan to run next, and the proof that no plan that was not run can be better."""
