"""Single terms of the loss."""
