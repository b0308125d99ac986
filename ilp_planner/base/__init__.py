"""Errors, units, files, limits, the clock, compiled kernels, the console."""
