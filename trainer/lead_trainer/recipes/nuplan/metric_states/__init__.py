"""Metrics of a validation as states that merge to the same bits over any number of ranks."""
