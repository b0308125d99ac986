"""Measuring profiles with PyTorch, which importing a command does not import."""
