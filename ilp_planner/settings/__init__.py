"""The settings of a training job: one table, and the domains of their values."""
