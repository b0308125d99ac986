"""The planner's own space: any groups of devices in any order along the pipeline."""
