"""Terms of the loss, each a pure function of predictions and labels."""
