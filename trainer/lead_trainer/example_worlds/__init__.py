"""Small generated raw trees, one a recipe, for a first run and for tests; nothing that trains imports them."""
