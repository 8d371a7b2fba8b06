"""A cluster and its buckets as a source of the pages, and the rights of whoever asks."""
