"""Lenses of nuPlan's cameras (Caltech: k1, k2, p1, p2, k3), by OpenCV: pictures without distortion, resized."""

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.nuplan.geometry import Doubles

Picture = npt.NDArray[np.uint8]


def projected(points: Doubles, intrinsic: Doubles, distortion: Doubles) -> Doubles:
    """Returns the pixels (n, 2) of points (n, 3) in the camera's frame, through a distorted lens."""
    none = np.zeros(3)
    found, _ = cv2.projectPoints(np.ascontiguousarray(points).reshape(-1, 1, 3), none, none, intrinsic, distortion)
    return np.asarray(found, np.float64).reshape(-1, 2)


def undistorted_points(pixels: Doubles, intrinsic: Doubles, distortion: Doubles) -> Doubles:
    """Returns the pixels (n, 2) that a lens without distortion and with the same intrinsics has for those of a lens."""
    criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 100, 1e-12)
    points = np.ascontiguousarray(pixels).reshape(-1, 1, 2)
    found = cv2.undistortImagePoints(points, intrinsic, distortion, None, criteria)
    return np.asarray(found, np.float64).reshape(-1, 2)


def resized_intrinsic(intrinsic: Doubles, before: tuple[int, int], after: tuple[int, int]) -> Doubles:
    """Returns the intrinsics of a picture of `before` (height, width) that is resized to `after`.

    The middle of the first pixel is 0, so the corner of the picture, at -0.5, stays where it is.
    """
    down, right = after[0] / before[0], after[1] / before[1]
    found = intrinsic.copy()
    found[0] *= right
    found[1] *= down
    found[0, 2] += 0.5 * right - 0.5
    found[1, 2] += 0.5 * down - 0.5
    return found


def straightened(picture: Picture, intrinsic: Doubles, distortion: Doubles, size: tuple[int, int]) -> Picture:
    """Returns the picture without distortion at `size` (height, width), with the intrinsics of `resized_intrinsic`.

    One remapping does both; where the picture shrinks it is smoothed before.
    """
    height, width = picture.shape[:2]
    target = resized_intrinsic(intrinsic, (height, width), size)
    shrink = max(height / size[0], width / size[1])
    if shrink > 1.0:
        picture = cv2.GaussianBlur(picture, (0, 0), 0.4 * shrink)
    right, down = cv2.initUndistortRectifyMap(
        intrinsic, distortion, np.eye(3), target, (size[1], size[0]), cv2.CV_32FC1
    )
    return np.asarray(cv2.remap(picture, right, down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT), np.uint8)
