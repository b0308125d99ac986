"""Schedulers of clusters: what starts an export of a training system on every node of a job."""
