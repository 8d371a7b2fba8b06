"""`python -m lead_trainer.recipes.distill.train --model baseline …`: `lead train recipe=distill …` by its old name."""

import sys

from lead_trainer.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", "recipe=distill", *sys.argv[1:]]))
