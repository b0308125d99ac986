"""What a training job holds and sends, before it is launched."""

from ilp_planner.analysis.analyze import Analysis, analyze, analyze_stages

__all__ = ["Analysis", "analyze", "analyze_stages"]
