"""Instruction counts of the hot calls, beside the committed ones: ``make instructions``."""
