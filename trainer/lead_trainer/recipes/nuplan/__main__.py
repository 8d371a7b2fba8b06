"""`python -m lead_trainer.recipes.nuplan {verify|bundles} …`: what is done to a raw tree besides training on it."""

import sys

from lead_trainer.recipes.nuplan.tree_commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
