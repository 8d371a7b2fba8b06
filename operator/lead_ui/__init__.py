"""The page of runs and caches: what a cluster and its bucket, or folders of `lead train`, hold; it writes nothing."""
