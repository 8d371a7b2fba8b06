"""Runs on this machine, by `lead train` in a process of its own."""
