"""What trainers write for TensorBoard, read without it: scalars as arrays, pictures by where they are in a file."""
