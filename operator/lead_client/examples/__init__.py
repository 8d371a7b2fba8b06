"""Programs that use `lead_client`; each is executed by a test."""
