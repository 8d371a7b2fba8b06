"""What a run says: the log, the event files, the pictures."""
