"""Our numbers as JSON, laid out like those that public packages give: `python -m lead_testing.golden KIND SOURCE`."""
