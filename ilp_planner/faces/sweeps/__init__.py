"""Many problems at once: the points of a sweep, solved one per core, in a table that is kept."""
