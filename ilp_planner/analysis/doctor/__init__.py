"""Causes of slow steps: the log of a run beside the prediction of its job."""
