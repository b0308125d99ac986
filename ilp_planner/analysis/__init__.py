"""Memory and messages of a training job before its launch."""

from ilp_planner.analysis.analyze import Analysis, analyze, analyze_stages

__all__ = ["Analysis", "analyze", "analyze_stages"]
