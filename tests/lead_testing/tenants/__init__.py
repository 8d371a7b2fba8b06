"""Two people with a namespace each on one release, and what the one tries against the other."""
