"""Actions from the messages of nuScenes' CAN bus expansion, `can_bus/<scene>_vehicle_monitor.json`, 2 Hz.

An action is that of the middle of the time between two frames: pedals and wheel by linear interpolation, held at the
ends, and the gear of the nearest message. Units: nuscenes-devkit, `can_bus/README.md`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadData
from lead_trainer.recipes.nuscenes_splits import scene_number
from lead_trainer.recipes.world.ingest.scenes import Float32, Times, field_of, number_of

FULL_STEERING, FULL_THROTTLE, FULL_BRAKE = 780.0, 1000.0, 126.0  # degrees of the wheel; raw values of the pedals
DRIVE = 7  # of `gear_position`
LAST_GEAR = 15  # a number of four bits; 0 is parked, other ones than DRIVE are no documented ones
# What a message may hold, by the development kit's page.
RANGES = {
    "steering": (-FULL_STEERING, FULL_STEERING),
    "throttle": (0.0, FULL_THROTTLE),
    "brake": (0.0, FULL_BRAKE),
    "gear_position": (0.0, float(LAST_GEAR)),
}
REMEDY = "fetch the CAN bus expansion again, or delete the file to take actions from poses"
# Scenes whose messages are missing or wrong (nuscenes-devkit 1.2.0, can_bus_api.py).
WITHOUT_CAN = frozenset({*range(161, 169), *range(170, 177), *range(309, 315), 419})


def can_file(scene: str) -> str:
    """Returns the path of a scene's messages, empty where the development kit lists them as unusable."""
    return "" if scene_number(scene) in WITHOUT_CAN else f"can_bus/{scene}_vehicle_monitor.json"


def can_actions(data: bytes, path: str, timestamps: Times) -> Float32:
    """Returns the actions (T-1, 4) between frames at `timestamps`; raises BadData naming file, message and value."""
    times, values = _messages(data, path)
    if times[-1] < timestamps[0] or times[0] > timestamps[-1]:
        raise BadData(
            f"file {path}: its messages are of {times[0]} to {times[-1]} us, but the scene's pictures of "
            f"{timestamps[0]} to {timestamps[-1]} us, expected messages of the same time; {REMEDY}"
        )
    base = timestamps[0]
    middles = (timestamps[1:] + timestamps[:-1] - 2 * base) / 2.0
    at = (times - base).astype(np.float64)
    steering, throttle, brake = (np.interp(middles, at, values[:, column]) for column in range(3))
    nearest = np.abs(at[None] - middles[:, None]).argmin(axis=1)
    columns = (
        np.clip(steering / FULL_STEERING, -1.0, 1.0),
        np.clip(throttle / FULL_THROTTLE, 0.0, 1.0),
        np.clip(brake / FULL_BRAKE, 0.0, 1.0),
        values[nearest, 3] == DRIVE,
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _messages(data: bytes, path: str) -> tuple[Times, npt.NDArray[np.float64]]:
    """Returns times (M,) in us and the values of RANGES (M, 4)."""
    try:
        messages = raw_json(data)
    except ValueError as error:
        raise BadData(f"file {path} is not JSON: {error}; {REMEDY}") from error
    if not isinstance(messages, list) or len(messages) < 2:
        found = f"{len(messages)} messages" if isinstance(messages, list) else f"a {type(messages).__name__}"
        raise BadData(f"file {path}: found {found}, expected a list of two or more; {REMEDY}")
    times, values = np.zeros(len(messages), np.int64), np.zeros((len(messages), len(RANGES)))
    for number, message in enumerate(messages):
        where = f"file {path}, message {number}"
        time = field_of(message, "utime", int, where)
        if not 0 <= time < 1 << 62:
            raise BadData(f"{where}: utime: found {time!r:.40}, expected microseconds; {REMEDY}")
        times[number] = time
        values[number] = [_ranged(message, key, where) for key in RANGES]
        if number and times[number] <= times[number - 1]:
            raise BadData(
                f"{where}: utime: found {times[number]}, not later than {times[number - 1]} before it, expected "
                f"messages in the order of time; {REMEDY}"
            )
    return times, values


def _ranged(message: Any, key: str, where: str) -> float:
    value, (low, high) = number_of(message, key, where), RANGES[key]
    if not low <= value <= high:
        raise BadData(f"{where}: {key}: found {value:g}, expected {low:g} to {high:g}; {REMEDY}")
    return value
