"""The perceptual distance: how unlike two pictures are to a frozen VGG16 (Johnson et al. 2016).

Its weights are torchvision's `vgg16` state dict, from a file or the store; nothing is downloaded.
"""

import os

import torch
from torch import nn

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.backbone_file import backbone_state
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.pixels import unit

_WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512))  # of VGG16's convolutions, pooling between the rows
DEPTHS = (3, 8, 15, 22)  # of relu1_2, relu2_2, relu3_3 and relu4_3 in torchvision's `features`
_PREFIX = "features."
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, on [0, 1]


class PerceptualDistance(nn.Module):
    """The mean over four depths of the mean squared difference of VGG16's features."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.features = vgg16_features()
        for name, values in (("mean", _MEAN), ("std", _STD)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    def forward(self, found: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """Returns the distance of pictures (N, 3, H, W) in [-1, 1], a scalar."""
        return self.by_depth(unit(found), unit(truth)).mean()

    def by_depth(self, found: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """Returns the distances (4,) of pictures in [0, 1] at each depth."""
        one, other = (found - self.mean) / self.std, (truth - self.mean) / self.std
        distances = []
        for depth, layer in enumerate(self.features):
            one, other = layer(one), layer(other)
            if depth in DEPTHS:
                distances.append((one - other).float().square().mean())
        return torch.stack(distances)


def vgg16_features() -> nn.Sequential:
    """Returns the layers of VGG16 (Simonyan and Zisserman 2015) up to relu4_3, numbered as torchvision's."""
    layers: list[nn.Module] = []
    inner = 3
    for widths in _WIDTHS:
        layers += [nn.MaxPool2d(2)] if layers else []
        for outer in widths:
            layers += [nn.Conv2d(inner, outer, 3, 1, 1), nn.ReLU()]
            inner = outer
    return nn.Sequential(*layers)


def perceptual_distance(config: WorldConfig) -> nn.Module:
    """Returns the distance with the config's weights, nothing where its weight is 0.

    Raises BadConfig where the weight is not 0 and there is no file, or one of another network.
    """
    if not config.loss.perceptual_weight:
        return nn.Identity()
    if not config.perceptual_weights:
        raise BadConfig(
            f"loss.perceptual_weight is {config.loss.perceptual_weight:g}, but there are no weights for it; set "
            "perceptual_weights to a file of torchvision's vgg16 weights, or loss.perceptual_weight=0"
        )
    state = backbone_state(
        config.perceptual_weights, config.perceptual_weights_sha256, os.environ, key="perceptual_weights"
    )
    distance = PerceptualDistance()
    own = {key.removeprefix(_PREFIX): value for key, value in state.items() if not key.startswith("classifier.")}
    wanted = distance.features.state_dict()
    unlike = [key for key, value in wanted.items() if key not in own or own[key].shape != value.shape]
    if unlike:
        found = tuple(own[unlike[0]].shape) if unlike[0] in own else "nothing"
        raise BadConfig(
            f"perceptual_weights: {config.perceptual_weights} is not of VGG16: at {_PREFIX}{unlike[0]} found {found}, "
            f"expected {tuple(wanted[unlike[0]].shape)}; save torchvision.models.vgg16's state_dict() there"
        )
    distance.features.load_state_dict({key: own[key] for key in wanted})
    return distance
