"""Which plan to run next, and whether any plan that was not run can still be the best."""
