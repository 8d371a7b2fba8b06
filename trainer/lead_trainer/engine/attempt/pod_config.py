"""What the config of a pod's job may name: no file of the pod, no address, and of the store only weights.

The one place where this is decided, for runs and builds of every recipe. A config is written by whoever may create a
resource, and a pod holds what they may not read: the store's credentials, and what the store shows to these.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lead_protocol.job import BuildJob, TrainJob
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.training_keys import value_at
from lead_trainer.errors import BadConfig

LOCAL_KEYS = {"load_file": "the stage's initFrom", "logdir": "the storage profile"}  # of every recipe
WEIGHTS = "store:weights/"
SHOWN = 5  # places of one config
_PLACE = re.compile(r"/|~|file:|store:|[A-Za-z][A-Za-z0-9+.-]*://|(?:.*/)?\.\.(?:/|$)", re.DOTALL)


def refuse_places(job: TrainJob | BuildJob, recipe: Recipe[Any]) -> None:
    """Raises BadConfig naming the keys whose values lead out of what the job was given.

    Of a run these are also the keys of `lead train` for which the resource has another place.
    """
    faults = list(_places(job, recipe))
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise BadConfig("; ".join(faults[:SHOWN]) + more)


def _places(job: TrainJob | BuildJob, recipe: Recipe[Any]) -> Iterator[str]:
    known: set[str] = set()
    if isinstance(job, TrainJob):
        for key, place in {**LOCAL_KEYS, **recipe.keys.local}.items():
            if value := value_at(job.config, key):
                known.add(key)
                yield f"{key}: found {value!r}, but in a cluster {place} sets this; remove the key"
    weights = recipe.keys.weights
    for key in sorted(weights):
        value = value_at(job.config, key)
        if not _is_allowed(value):
            yield (
                f"{key}: found {value!r}, expected {WEIGHTS}<namespace>/<file>: in a cluster weights come "
                "from the store's folder weights/; put them there"
            )
    for key, text in _texts(job.config):
        if key not in weights | known and _PLACE.match(text):
            yield (
                f"{key}: found {text[:100]!r}, which names a place on a machine or in a network; in a cluster a config "
                "names none, remove the key"
            )


def _is_allowed(weights: Any) -> bool:
    if not weights:
        return True
    return isinstance(weights, str) and weights.startswith(WEIGHTS) and ".." not in weights.split("/")


def _texts(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields every text in a config with the key that leads to it."""
    waiting: list[tuple[str, Any]] = list(config.items())
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, Mapping):
            waiting += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(key, inner) for inner in value]
