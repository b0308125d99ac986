"""Where the points of a sweep are solved: on this machine, or by a scheduler."""
