"""Heads on the backbone's features: classes and depth of every pixel, BEV classes, CenterNet maps."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_checks import STRIDE


class PerspectiveDecoder(nn.Module):
    """Lifts the last image stage to full resolution: three pairs of convolutions with two upsamplings between."""

    def __init__(self, config: LeadConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        first, second, third = config.deconv_channel_num_0, config.deconv_channel_num_1, config.deconv_channel_num_2
        self.deconv1 = nn.Sequential(_conv3(in_channels, first), _relu(), _conv3(first, second), _relu())
        self.deconv2 = nn.Sequential(_conv3(second, third), _relu(), _conv3(third, third), _relu())
        self.deconv3 = nn.Sequential(_conv3(third, third), _relu(), _conv3(third, out_channels))
        self.factors = (STRIDE // config.deconv_scale_factor_0, STRIDE // config.deconv_scale_factor_1)
        self.size = (config.final_image_height, config.final_image_width)

    def forward(self, features: Tensor) -> Tensor:
        """Maps (B, C, h, w) to (B, out_channels, h * 32, w * 32), resized where the picture is no multiple of 32."""
        features = _upsample(self.deconv1(features), self.factors[0])
        out: Tensor = self.deconv3(_upsample(self.deconv2(features), self.factors[1]))
        if out.shape[2:] == self.size:
            return out
        return F.interpolate(out, size=self.size, mode="bilinear", align_corners=False)


class BevSemanticDecoder(nn.Module):
    """Classes of every BEV pixel."""

    def __init__(self, config: LeadConfig, classes: int) -> None:
        super().__init__()
        channels = config.bev_features_chanels
        logits = nn.Conv2d(channels, classes, 1, bias=False)
        self.net = nn.Sequential(_conv3(channels, channels), _relu(), logits)
        self.size = (config.lidar_height_pixel, config.lidar_width_pixel)

    def forward(self, bev_grid: Tensor) -> Tensor:
        """Maps the detection grid's features to (B, classes, H, W) logits."""
        return F.interpolate(self.net(bev_grid), size=self.size, mode="bilinear", align_corners=False)


@dataclass(frozen=True)
class CenterNetMaps:
    """Box predictions in every cell of the detection grid, each (B, channels, rows, columns)."""

    heatmap_logit: Tensor  # one channel a class
    wh: Tensor  # half extents in cells
    offset: Tensor  # of the centre from the cell's corner, in cells
    yaw_class: Tensor  # logits of the yaw bins
    yaw_res: Tensor  # radians from the bin's centre
    velocity: Tensor | None  # m/s; absent with a single LiDAR sweep

    @property
    def heatmap(self) -> Tensor:
        """Peak scores in [0, 1], in fp32."""
        return self.heatmap_logit.float().sigmoid() if self.heatmap_logit.itemsize < 4 else self.heatmap_logit.sigmoid()


class CenterNetDecoder(nn.Module):
    """One small head a box property (Zhou et al. 2019)."""

    def __init__(self, config: LeadConfig, classes: int) -> None:
        super().__init__()
        channels = config.bb_input_channel
        self.heatmap_head = _head(channels, classes)
        self.wh_head = _head(channels, 2)
        self.offset_head = _head(channels, 2)
        self.yaw_class_head = _head(channels, config.num_dir_bins)
        self.yaw_res_head = _head(channels, 1)
        self.velocity_head = _head(channels, 1) if config.predicts_box_velocity else None

    def forward(self, bev_grid: Tensor) -> CenterNetMaps:
        """Maps the detection grid's features to box maps."""
        return CenterNetMaps(
            heatmap_logit=self.heatmap_head(bev_grid),
            wh=self.wh_head(bev_grid),
            offset=self.offset_head(bev_grid),
            yaw_class=self.yaw_class_head(bev_grid),
            yaw_res=self.yaw_res_head(bev_grid),
            velocity=self.velocity_head(bev_grid) if self.velocity_head is not None else None,
        )


def _conv3(in_channels: int, out_channels: int) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, 3, padding=1)


def _relu() -> nn.ReLU:
    return nn.ReLU(inplace=True)


def _head(channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(_conv3(channels, channels), _relu(), nn.Conv2d(channels, out_channels, 1))


def _upsample(features: Tensor, factor: int) -> Tensor:
    return F.interpolate(features, scale_factor=factor, mode="bilinear", align_corners=False)
