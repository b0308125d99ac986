"""The rules for implausible rows of a native table."""
