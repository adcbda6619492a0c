"""Experiments: from a configuration to a run folder with weights, metrics and results."""
