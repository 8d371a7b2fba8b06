"""A small made-up nuScenes tree: drives through coloured plains, whose pictures follow from pedals and wheel."""
