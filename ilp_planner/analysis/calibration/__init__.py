"""Constants of a machine, fitted to iterations that ran on it."""
