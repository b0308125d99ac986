"""Configurations and launches of other training systems, each a table of its keys."""
