"""Predicting rows that were not measured, each with its provenance and its error."""
