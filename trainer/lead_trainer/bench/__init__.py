"""The stages of loading, each measured alone; the command is `cli_bench`."""
