"""What operator and pods agree on; imported by both, imports neither."""
