"""Launches that a user's own script starts: recorded, and kept from starting."""
