"""Metis's search space, whole."""
