"""The last of the data path, done batch by batch on the device, so that fewer bytes travel to it.

Pictures, LiDAR counts and depth codes travel as the bytes that are stored; here they become planes, numbers in [0, 1]
and metres at picture size.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.dataset import DEPTH_CODES, METRES_8_BIT


def finished(batch: Batch, config: LeadConfig) -> Batch:
    """Returns what the network and its losses read, from what `collate` gives."""
    done = dict(batch)
    done["rgb"] = batch["rgb"].permute(0, 3, 1, 2).contiguous()
    if "rasterized_lidar" in batch:
        done["rasterized_lidar"] = divided(batch["rasterized_lidar"], config.hist_max_per_pixel)
    if DEPTH_CODES in done:
        depth = depth_from_codes(done.pop(DEPTH_CODES), config)
        done["depth"] = depth + done["depth"] if "depth" in done else depth  # a sample has one of them, the other is 0
    return done


def depth_from_codes(codes_BHW: Tensor, config: LeadConfig) -> Tensor:
    """Returns metres (B, image_height, final_image_width) from 8-bit codes of all cameras at a smaller size."""
    metres = divided(codes_BHW, 255) * METRES_8_BIT
    size = (config.image_height, config.image_width)
    full = F.interpolate(metres[:, None], size, mode="bilinear", align_corners=False)[:, 0]
    if config.num_used_cameras == config.num_available_cameras:
        return full
    cameras = full.chunk(config.num_available_cameras, dim=-1)
    return torch.cat([part for part, used in zip(cameras, config.used_cameras, strict=True) if used], dim=-1)


def divided(codes: Tensor, largest: int) -> Tensor:
    """Returns codes / largest as float32; by a tensor, because a number may be turned into its reciprocal first."""
    return codes.float() / torch.full((), float(largest), device=codes.device)
