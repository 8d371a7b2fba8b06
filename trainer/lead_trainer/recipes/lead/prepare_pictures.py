"""Pictures and label planes at the configured size, and the refusal of those that cameras of another rig recorded.

Called by the preparation of CARLA, whether it reads a tree's own files or LEAD's persistent cache.
"""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.ingest.frame_files import decode_picture
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys

RESIZED_JPEG_QUALITY = 90

Plane = npt.NDArray[Any]


def fitted_height(picture: Plane, keys: PreparationKeys) -> int:
    """Returns the height a picture has once it is as wide as configured."""
    height, width = map(int, picture.shape[:2])
    return round(height * keys.image_width / width)


def refuse_other_rig(picture: Plane, keys: PreparationKeys, path: str) -> None:
    """Raises BadConfig where a picture is too flat for the configured size: cameras of another rig recorded it.

    A plane of fewer pixels may lack one of its own rows, by which its height was rounded.
    """
    height, width = picture.shape[:2]
    rows = fitted_height(picture, keys)
    if rows <= keys.image_height - max(1, keys.image_width // width):
        raise BadConfig(
            f"image_height, image_width: found {keys.image_height} x {keys.image_width}, but {path} was recorded with "
            f"{height} x {width}, at that width {rows} rows; declare the rig that recorded it in cameras, or set "
            "used_cameras, image_height and image_width for it"
        )


def fitted(picture: Plane, keys: PreparationKeys, interpolation: int, path: str) -> Plane:
    """Returns a picture or plane scaled to the configured width, without the rows below the configured height.

    Cameras of the NavSim rig record 280 rows and train on the upper 270. Raises BadConfig for another rig's.
    """
    refuse_other_rig(picture, keys, path)
    height = max(fitted_height(picture, keys), keys.image_height)
    if picture.shape[:2] != (height, keys.image_width):
        picture = cv2.resize(picture, (keys.image_width, height), interpolation=interpolation)
    return np.ascontiguousarray(picture[: keys.image_height])


def image(data: bytes, keys: PreparationKeys, path: str) -> bytes:
    """Returns the JPEG as recorded where it has the configured width, else one made smaller.

    Rows below the configured height are left out when a sample is loaded: encoding again would change all others.
    """
    picture = decode_picture(data, path)
    height, width = picture.shape[:2]
    if width == keys.image_width and height >= keys.image_height:
        return data
    refuse_other_rig(picture, keys, path)
    if width < keys.image_width:
        raise BadConfig(
            f"image_height, image_width: found {keys.image_height} x {keys.image_width}, but {path} was recorded with "
            f"{height} x {width}; pictures are never made larger"
        )
    small = fitted(picture, keys, cv2.INTER_AREA, path)
    good, encoded = cv2.imencode(".jpg", small[:, :, ::-1], [int(cv2.IMWRITE_JPEG_QUALITY), RESIZED_JPEG_QUALITY])
    if not good:
        raise BadData(f"file {path} could not be encoded again at {keys.image_width} x {keys.image_height}")
    return bytes(encoded.tobytes())
