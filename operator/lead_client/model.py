"""A recipe's model with weights; the one module here that knows the trainer, and so torch."""

from pathlib import Path
from typing import Any

from lead_client.errors import ClientError, missing_extra

try:
    from lead_trainer.commands.evaluate import model_with, run_of_weights
    from lead_trainer.errors import TrainerError
except ModuleNotFoundError as error:
    raise missing_extra(str(error.name), "trainer") from error


def load_model(folder: Path, weights: str) -> Any:
    """Returns the model of the config.json in a folder, in eval mode, with the weights beside it."""
    path = folder / weights
    try:
        return model_with(run_of_weights(path, []), path)
    except TrainerError as error:
        raise ClientError(str(error)) from error
