"""Executors of a sweep's points: this machine, or a scheduler."""
