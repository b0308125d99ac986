"""Planning in the space of AMP: one plan for all devices, placed on a mixed cluster."""
