"""Measuring profiles with PyTorch; importing a command does not import it."""
