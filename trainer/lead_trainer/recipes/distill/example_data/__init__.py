"""A small made-up raw tree: clips of cars on bending roads, for tests and a first run."""
