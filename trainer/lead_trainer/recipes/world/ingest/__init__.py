"""Readers of raw trees: nuScenes, LEAD's CARLA routes, and the processed layout, each as scenes of one kind."""
