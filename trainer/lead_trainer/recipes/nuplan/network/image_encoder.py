"""Pictures to features and distances: a ResNet of timm, and the two maps that are lifted.

The two levels of the ResNet at the wanted stride and at twice it are merged; later stages are left out. It is the one
part with batch norms. Pictures are normalised here.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from lead_trainer.blocks.conv_blocks import group_norm
from lead_trainer.blocks.stages import make_backbone, run_stage, stage_channels, stage_modules
from lead_trainer.recipes.nuplan.model_keys import ModelKeys

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of values in 0 … 1
STRIDES = (4, 8, 16, 32)  # of the stages


class ImageEncoder(nn.Module):
    """Maps pictures (N, 3, H, W) uint8 to distances (N, D, h, w), which sum to 1, and features (N, C, h, w).

    h and w are H and W divided by `image_stride`, rounded up; place [i, j] is at pixel (j, i) x image_stride.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, keys: ModelKeys, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD):
        super().__init__()
        self.network = make_backbone(keys.backbone, 3, "model.backbone")
        self.level = STRIDES.index(keys.image_stride)
        stages = stage_modules(self.network)
        unused = {id(module) for stage in stages[self.level + 2 :] for module in stage}
        for name in [name for name, module in self.network.items() if id(module) in unused]:
            del self.network[name]
        fine, coarse = stage_channels(self.network)[self.level : self.level + 2]
        width = 2 * keys.image_channels
        self.fine, self.coarse = nn.Conv2d(fine, width, 1), nn.Conv2d(coarse, width, 1)
        self.merge = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), group_norm(width), nn.ReLU(inplace=True))
        self.lifted = nn.Conv2d(width, keys.depth_bins + keys.image_channels, 1)
        self.depth_bins, self.recompute = keys.depth_bins, False
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns distances and features."""
        features = (pictures.float() / 255.0 - self.mean) / self.std
        levels = []
        for stage in stage_modules(self.network)[: self.level + 2]:
            features = self._run(stage, features)
            levels.append(features)
        fine, coarse = self.fine(levels[-2]), self.coarse(levels[-1])
        merged = fine + F.interpolate(coarse, size=fine.shape[2:], mode="bilinear", align_corners=False)
        lifted = self.lifted(self.merge(merged))
        return lifted[:, : self.depth_bins].float().softmax(1), lifted[:, self.depth_bins :]

    def _run(self, stage: list[nn.Module], features: torch.Tensor) -> torch.Tensor:
        if not (self.recompute and torch.is_grad_enabled()):
            return run_stage(stage, features)
        found: torch.Tensor = checkpoint(
            run_stage, stage, features, use_reentrant=False, context_fn=lambda: (nullcontext(), _norms_kept(stage))
        )
        return found


def _norms_kept(stage: list[nn.Module]) -> AbstractContextManager[None]:
    """Lets a second forward pass move no running statistics: the first one has."""

    @contextmanager
    def kept() -> Iterator[None]:
        norms = [norm for part in stage for norm in part.modules() if isinstance(norm, _BatchNorm)]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.momentum = 0.0
        try:
            yield
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum

    return kept()
