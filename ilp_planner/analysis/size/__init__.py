"""How many GPUs a training run needs: the smallest and the cheapest clusters that end in time."""
