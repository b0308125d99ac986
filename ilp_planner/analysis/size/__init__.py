"""The smallest and the cheapest clusters on which a training run ends in time."""
