"""How far predicted trajectories lie from the truth; what every trajectory metric is made of.

Shapes: B items, K modes, T steps; positions in metres in one frame. A step whose truth is NaN is not counted: the
average is over the other steps, the last one is the last that counts. An item without any such step gives NaN, which
`totals.Totals` leaves out.
"""

import math

import torch
from torch import Tensor


def distances(predicted_BKT2: Tensor, truth_BT2: Tensor) -> Tensor:
    """Returns the distance of each step, (B, K, T) metres; NaN where the truth is."""
    result: Tensor = torch.linalg.vector_norm(predicted_BKT2 - truth_BT2[:, None], dim=-1)
    return result


def average_displacement(predicted_BKT2: Tensor, truth_BT2: Tensor) -> Tensor:
    """Returns the ADE of each mode, (B, K) metres."""
    return distances(predicted_BKT2, truth_BT2).nanmean(dim=-1)


def final_displacement(predicted_BKT2: Tensor, truth_BT2: Tensor) -> Tensor:
    """Returns the FDE of each mode, (B, K) metres: the distance at the last step that has a truth."""
    return at_last_step(distances(predicted_BKT2, truth_BT2), truth_BT2)


def largest_displacement(predicted_BKT2: Tensor, truth_BT2: Tensor) -> Tensor:
    """Returns the largest distance of each mode over the steps that have a truth, (B, K) metres."""
    every = distances(predicted_BKT2, truth_BT2)
    largest = every.nan_to_num(nan=-1.0, posinf=math.inf).amax(dim=-1)
    return torch.where(largest < 0, largest.new_tensor(math.nan), largest)


def at_last_step(values_BKT: Tensor, truth_BT2: Tensor) -> Tensor:
    """Returns the values at each item's last step with a truth, (B, K)."""
    known = ~truth_BT2.isnan().any(dim=-1)
    steps = torch.arange(known.shape[-1], device=known.device)
    last_B = torch.where(known, steps, steps.new_zeros(())).amax(dim=-1)
    return values_BKT.gather(-1, last_B[:, None, None].expand(-1, values_BKT.shape[1], 1)).squeeze(-1)


def angle_error(predicted: Tensor, truth: Tensor) -> Tensor:
    """Returns the absolute difference of two angles in radians, within 0…π: 179° and −179° differ by 2°."""
    difference: Tensor = torch.remainder(predicted - truth + math.pi, 2 * math.pi) - math.pi
    return difference.abs()
