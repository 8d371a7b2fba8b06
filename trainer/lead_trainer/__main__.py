"""`python -m lead_trainer …` is the command `lead`, so that `torchrun -m lead_trainer train …` works."""

import sys

from lead_trainer.cli import main

if __name__ == "__main__":
    sys.exit(main())
