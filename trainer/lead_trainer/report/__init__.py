"""What a run reports: the log, the event files, the pictures."""
