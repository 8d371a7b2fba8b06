"""`python -m lead_trainer.recipes.distill STAGE …`: the data stages by hand."""

from lead_trainer.recipes.distill.stage_commands import main

if __name__ == "__main__":
    main()
