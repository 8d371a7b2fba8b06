"""Which cameras recorded a CARLA tree: the rigs LEAD knows by the name of `carla_root`, and rigs declared in `cameras`.

Read by `config` for defaults and checks; their view: `network/camera_view.py`. Positions are metres in the ego
frame (x forward, y right, z up), rotations degrees (roll, pitch, yaw to the right).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

Pixels = Annotated[int, Field(ge=1)]
Triple = Annotated[tuple[float, float, float], Field(strict=False)]


class Camera(BaseModel):
    """One camera of a rig; training reads size, fov, x, y and yaw, evaluation places it by the rest too."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    width: Pixels = 384
    height: Pixels = 384
    fov: Annotated[float, Field(gt=0.0, lt=180.0)] = 60.0  # horizontal, degrees
    position: Triple
    rotation: Triple = (0.0, 0.0, 0.0)


def _camera(x: float, y: float, yaw: float) -> Camera:
    return Camera(position=(x, y, 2.25), rotation=(0.0, 0.0, yaw))


# Left to right in the picture (lead/common/config_base.py, camera_calibration).
THREE_CAMERAS = (_camera(0.1, -0.35, -54.5), _camera(0.35, 0.0, 0.0), _camera(0.1, 0.35, 54.5))
SIX_CAMERAS = (
    _camera(0.0, -0.3, -57.5),
    _camera(0.25, 0.0, 0.0),
    _camera(0.0, 0.3, 57.5),
    _camera(-0.3, 0.3, 122.5),
    _camera(-0.55, 0.0, 180.0),
    _camera(-0.3, -0.3, -122.5),
)
# By a part of carla_root, spelled as LEAD's folders are (lead/training/config_training.py, target_dataset).
RIGS: dict[str, tuple[Camera, ...]] = {
    "expert_debug": THREE_CAMERAS,
    "carla_leaderboard2": THREE_CAMERAS,
    "carla_leaderboad2_v3": THREE_CAMERAS,
    "carla_leaderboad2_v8": THREE_CAMERAS,
    "carla_leaderboad2_v10": SIX_CAMERAS,
}
# Recorded with the cameras of a real data set, to be trained on beside it.
RECORDED_FOR: dict[str, str] = {
    "carla_leaderboad2_v12": "use_navsim_data",
    "carla_leaderboad2_v14": "use_waymo_e2e_data",
}
KEYS = ("used_cameras", "image_height", "image_width")


def rig_of(carla_root: str) -> tuple[Camera, ...]:
    """Returns the cameras LEAD's registry has for a tree's path; none for a path it does not know."""
    found = [part for part in RIGS if part in carla_root]
    return RIGS[max(found, key=len)] if found else ()


def rig_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the camera keys that follow from `cameras`, or from `carla_root` where CARLA is trained on alone.

    `values` are the given keys, not yet validated. Raises ValueError where root and keys contradict each other.
    """
    if values.get("cameras"):
        try:
            return rig_keys(TypeAdapter(list[Camera]).validate_python(values["cameras"]))
        except ValidationError:
            return {}  # the key's own validation reports the error
    root, mixed = values.get("carla_root"), values.get("use_navsim_data") or values.get("use_waymo_e2e_data")
    if not isinstance(root, str) or mixed:
        return {}
    for part, key in RECORDED_FOR.items():
        if part in root and not all(name in values for name in KEYS):
            raise ValueError(
                f"carla_root: {root!r} was recorded with another data set's cameras; set {key}, or declare cameras"
            )
    rig, used = rig_of(root), values.get("used_cameras")
    if rig and isinstance(used, Sequence) and len(used) != len(rig):
        raise ValueError(
            f"used_cameras: found {len(used)} entries, but carla_root {root!r} names a rig of {len(rig)} cameras; "
            "give one entry a camera, or declare cameras"
        )
    return rig_keys(rig)


def rig_keys(rig: Sequence[Camera]) -> dict[str, Any]:
    """Returns the camera keys with which all that a rig records is used; none for no rig."""
    if not rig:
        return {}
    return {
        "used_cameras": (True,) * len(rig),
        "image_height": min(camera.height for camera in rig),
        "image_width": sum(camera.width for camera in rig),
    }


def check_rig(rig: Sequence[Camera], used: Sequence[bool], image_height: int, image_width: int) -> None:
    """Raises ValueError where a declared rig cannot have recorded pictures of this size."""
    if not rig:
        return
    sizes = {(camera.width, camera.height) for camera in rig}
    if len(sizes) > 1:
        raise ValueError(f"cameras: found the sizes {sorted(sizes)}, expected one size; pictures lie side by side")
    (width, height), scale = sizes.pop(), image_width / sum(camera.width for camera in rig)
    if len(used) != len(rig):
        raise ValueError(f"used_cameras: found {len(used)} entries, expected one for each of the {len(rig)} cameras")
    if scale > 1.0:
        raise ValueError(f"image_width: found {image_width}, but {len(rig)} cameras record {width * len(rig)} pixels")
    if image_height > height * scale and not math.isclose(image_height, height * scale):
        raise ValueError(f"image_height: found {image_height}, but {height} x {scale:g} pixels are recorded")
