"""The parts of the student."""
