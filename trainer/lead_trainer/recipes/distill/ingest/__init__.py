"""Readers and writers of the raw tree: frames, teacher labels, ego history."""
