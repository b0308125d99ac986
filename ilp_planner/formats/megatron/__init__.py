"""Megatron-LM: its arguments, its rules, its launch scripts, and plans as its jobs."""
