"""Ours beside the real store 4.9.3, each workload alternately in one run: ``make versus``."""
