"""Pictures' features on the grid (Philion and Fidler 2020): each place of a map is spread along its line of sight.

Where the points along all lines of sight lie in the vehicle's frame depends on the calibration alone. They are computed
once for each and kept by its hash; how far the vehicle moved between picture and sweep is applied to them each time.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from lead_trainer.recipes.nuplan.model_keys import ModelKeys
from lead_trainer.recipes.nuplan.network.grid import flat_cell

KEPT_FRUSTA = 64  # calibrations; a log has one, a mirrored one another


class LiftSplat(nn.Module):
    """Sums features over the cells that their lines of sight cross; it has no parameters."""

    def __init__(self, keys: ModelKeys, range_m: float, cells: int) -> None:
        super().__init__()
        self.keys, self.range_m, self.cells = keys, range_m, cells
        self.frusta: OrderedDict[tuple[str, torch.device], torch.Tensor] = OrderedDict()

    def forward(self, depth: torch.Tensor, features: torch.Tensor, places: torch.Tensor, cameras: int) -> torch.Tensor:
        """Returns the grid (B, C, G, G) of distances (B K, D, h, w) and features (B K, C, h, w) of K cameras.

        Places (B, K, D, h, w, 3) are in the vehicle's frame at the sweep, metres.
        """
        samples = len(depth) // cameras
        number, inside = flat_cell(places[..., :2], self.range_m, self.cells)
        offset = torch.arange(samples, device=number.device).view(-1, 1, 1, 1, 1) * self.cells**2
        spread = (depth[:, :, None] * features.float()[:, None]).movedim(2, -1)  # (B K, D, h, w, C)
        kept = inside.flatten()
        rows, channels = (number + offset).flatten()[kept], features.shape[1]
        grid = spread.new_zeros(samples * self.cells**2, channels)
        grid = grid.index_add(0, rows, spread.reshape(-1, channels)[kept])
        return grid.view(samples, self.cells, self.cells, channels).permute(0, 3, 1, 2)

    @torch.no_grad()
    def places(
        self,
        calibration: Sequence[str],
        intrinsics: torch.Tensor,
        camera_to_vehicle: torch.Tensor,
        picture_to_sweep: torch.Tensor,
        size: tuple[int, int],
    ) -> torch.Tensor:
        """Returns the points (B, K, D, h, w, 3) of all lines of sight in the vehicle's frame at the sweep.

        Intrinsics (B, K, 3, 3) of pictures of `size` (h, w) x image_stride; transforms (B, K, 4, 4).
        """
        frusta = [
            self.frustum(name, intrinsics[row], camera_to_vehicle[row], size) for row, name in enumerate(calibration)
        ]
        return _moved(torch.stack(frusta), picture_to_sweep.float())

    def frustum(
        self, name: str, intrinsics: torch.Tensor, camera_to_vehicle: torch.Tensor, size: tuple[int, int]
    ) -> torch.Tensor:
        """Returns the points (K, D, h, w, 3) of a calibration, in the vehicle's frame when its pictures were taken."""
        key = (f"{name} {size[0]}x{size[1]}", intrinsics.device)
        if key not in self.frusta:
            self.frusta[key] = self._computed(intrinsics.float(), camera_to_vehicle.float(), size)
            if len(self.frusta) > KEPT_FRUSTA:
                self.frusta.popitem(last=False)
        self.frusta.move_to_end(key)
        return self.frusta[key]

    def _computed(
        self, intrinsics: torch.Tensor, camera_to_vehicle: torch.Tensor, size: tuple[int, int]
    ) -> torch.Tensor:
        device, stride = intrinsics.device, self.keys.image_stride
        v, u = (torch.arange(side, device=device, dtype=torch.float32) * stride for side in size)
        v, u = torch.meshgrid(v, u, indexing="ij")
        pixels = torch.stack([u, v, torch.ones_like(u)], -1)  # (h, w, 3)
        sights = torch.einsum("kij,hwj->khwi", torch.linalg.inv(intrinsics), pixels)  # at a depth of 1 m
        depths = torch.linspace(*self.keys.depth_range_m, self.keys.depth_bins, device=device)
        return _moved(depths.view(1, -1, 1, 1, 1) * sights[:, None], camera_to_vehicle)


def _moved(points: torch.Tensor, transform: torch.Tensor) -> torch.Tensor:
    """Returns points (..., D, h, w, 3) moved by transforms (..., 4, 4)."""
    turned = torch.einsum("...ij,...dhwj->...dhwi", transform[..., :3, :3], points)
    return turned + transform[..., None, None, None, :3, 3]
