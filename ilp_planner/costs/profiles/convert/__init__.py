"""Between the native table and the profiles of other tools, in both directions."""
