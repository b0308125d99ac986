"""The faces of the planner: command line, Python, reports, pages and sweeps."""
