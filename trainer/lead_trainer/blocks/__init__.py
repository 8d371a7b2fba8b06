"""Network parts that more than one recipe can be built from."""
