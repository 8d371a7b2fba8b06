"""Parts of the model: pictures and points to one grid, and what is read off it."""
