"""Commands as tools for other programs: their arguments as JSON, and calls of them."""
