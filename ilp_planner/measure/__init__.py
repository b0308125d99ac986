"""Measuring profiles with PyTorch; nothing here imports it before it measures."""
