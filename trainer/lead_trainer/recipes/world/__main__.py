"""`python -m lead_trainer.recipes.world COMMAND …`: the training guide's scripts by their names and flags."""

import sys

from lead_trainer.recipes.world.guide_commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
