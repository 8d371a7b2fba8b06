"""Metrics that recipes share: pure functions of predictions and truth, and the sums that make exact means of them."""
