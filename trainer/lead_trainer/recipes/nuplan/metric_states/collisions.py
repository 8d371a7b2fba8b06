"""How many agents' likeliest predicted ways run into another agent's true box."""

import math

import numpy as np
import numpy.typing as npt
import shapely
import torch
from torchmetrics import Metric

Float64 = npt.NDArray[np.float64]


def rectangles(places: Float64, headings: Float64, sizes: Float64) -> npt.NDArray[np.object_]:
    """Returns shapely's rectangles (...) around places (..., 2) along headings (...); sizes are length and width."""
    ahead = np.stack([np.cos(headings), np.sin(headings)], -1) * sizes[..., :1] / 2
    left = np.stack([-np.sin(headings), np.cos(headings)], -1) * sizes[..., 1:] / 2
    corners = [places + ahead + left, places - ahead + left, places - ahead - left, places + ahead - left]
    found: npt.NDArray[np.object_] = shapely.polygons(np.stack(corners, -2))
    return found


def along_ways(places: Float64, first: Float64) -> Float64:
    """Returns the heading (N, T) of each step of ways (N, T, 2) that begin at `first` (N, 2)."""
    steps = np.diff(places, axis=1, prepend=first[:, None])
    return np.arctan2(steps[..., 1], steps[..., 0])


def collides(guess: npt.NDArray[np.object_], truth: npt.NDArray[np.object_], valid: npt.NDArray[np.bool_]) -> Float64:
    """Returns 1 or 0 (N,): whether a rectangle of guess (N, T) shares area with another's true one at that step."""
    hits = np.zeros(len(guess))
    for step in range(guess.shape[1]):
        others = np.flatnonzero(valid[:, step])
        tree = shapely.STRtree(truth[others, step])
        own, near = tree.query(guess[:, step], predicate="intersects")
        pairs = own != others[near]
        own, near = own[pairs], others[near[pairs]]
        shared = shapely.area(shapely.intersection(guess[own, step], truth[near, step])) > 0
        hits[own[shared]] = 1
    return hits


class CollisionRate(Metric):
    """The share of agents whose likeliest way shares area with another agent's true box at any step."""

    full_state_update = False
    counts: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("counts", default=torch.zeros(2, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, hits: Float64) -> None:
        """Adds agents (N,): 1 for a collision, 0 for none."""
        self.counts += torch.tensor([int(hits.sum()), len(hits)], device=self.counts.device)

    def compute(self) -> dict[str, float]:
        """Returns `collision_rate`, NaN without an agent."""
        hits, agents = self.counts.tolist()
        return {"collision_rate": hits / agents if agents else math.nan}
