"""The rules that tell what in a native table is implausible."""
