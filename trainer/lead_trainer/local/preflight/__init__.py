"""What `lead preflight` checks before a run: device, disks, data and loggers, each in findings of one sentence."""
