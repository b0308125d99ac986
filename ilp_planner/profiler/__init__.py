"""Measured profiles: measuring, converting, predicting and checking them, with their commands."""
