"""The terms of the world model's loss."""
