"""Runs and caches of a Kubernetes cluster, with the rights of this user."""
