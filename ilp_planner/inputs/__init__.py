"""The request, and its files."""
