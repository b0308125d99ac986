"""Choices of a plan: degrees, settings, layouts, and the rules between them."""
