"""Which logs are for training and which for validation: whole logs, of each city some of both."""

import hashlib
from collections.abc import Mapping

SPLITS = ("train", "val")


def split_of_logs(cities: Mapping[str, str], val_share: float, seed: int) -> dict[str, str]:
    """Returns train or val for each log of `cities` (log to city); a city with one log trains.

    The order of a city's logs follows from the seed and their names, whatever other logs there are.
    """
    found: dict[str, str] = {}
    for city in sorted(set(cities.values())):
        logs = sorted((log for log in cities if cities[log] == city), key=lambda log: _turn(seed, log))
        held_out = min(max(1, round(val_share * len(logs))), len(logs) - 1) if val_share > 0 else 0
        found |= {log: "val" if number < held_out else "train" for number, log in enumerate(logs)}
    return found


def _turn(seed: int, log: str) -> str:
    return hashlib.sha256(f"{seed}/{log}".encode()).hexdigest()
