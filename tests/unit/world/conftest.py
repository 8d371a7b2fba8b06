"""A tree of two training scenes and one more, made once, and the words that train the smallest model on it."""

from pathlib import Path

import pytest

from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    write_example_tree(root, ExampleTree(train=2, val=1, keyframes=9, size=(36, 64)))
    return root
