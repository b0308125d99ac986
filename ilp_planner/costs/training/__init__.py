"""Time and memory of a rank in a training job, as all training runtimes have them."""
