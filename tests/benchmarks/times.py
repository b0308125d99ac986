"""Seconds of CPU."""

import resource


def children_cpu() -> float:
    """Return the seconds of CPU of all processes that this one has begun and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
