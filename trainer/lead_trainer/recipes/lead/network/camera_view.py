"""What the cameras of a rig can see of the ground; for the BEV loss."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lead_trainer.recipes.lead.rig import Camera

VIEW_MARGIN = 2.5  # degrees a side, as LEAD adds to the view of its cameras


def sees(rig: Sequence[Camera], x: Tensor, y: Tensor) -> Tensor:
    """Returns which points (x, y), metres, at least one camera sees, by its place and horizontal view."""
    seen = torch.zeros_like(x + y, dtype=torch.bool)
    for camera in rig:
        yaw = math.radians(camera.rotation[2])
        ahead = torch.atan2(y - camera.position[1], x - camera.position[0]) - yaw
        turned = torch.remainder(ahead + math.pi, 2 * math.pi) - math.pi
        seen |= turned.abs() <= math.radians(camera.fov / 2 + VIEW_MARGIN)
    return seen
