"""Objectives besides time: the price of plans, on any of the nodes."""
