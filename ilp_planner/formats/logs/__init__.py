"""Logs, traces and memory snapshots of training runs, read into numbers of one kind."""
