"""The engine: everything that is the same for each recipe, from the process group to the commit of a checkpoint."""
