"""Closed-loop evaluation: a simulator drives with a run's weights, and its result files become a few numbers."""
