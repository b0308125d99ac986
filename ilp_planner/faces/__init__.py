"""How people reach the planner: command line, Python, reports, pages and sweeps."""
