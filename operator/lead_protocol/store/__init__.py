"""The only storage code: one interface, S3 and folder."""
