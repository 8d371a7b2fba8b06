"""Detects moving objects from radar points, BEV features and the ego speed with a query transformer."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lead_trainer.blocks.sine_position import embed_points
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.network.bev_points import sample_bev, unit_points


@dataclass(frozen=True)
class RadarDetections:
    """One row a query."""

    features: Tensor  # (B, Q, radar_token_dim), read by the planner
    predictions: Tensor  # (B, Q, 4): x, y in metres, speed in m/s, validity logit


class RadarDetector(nn.Module):
    """Queries a memory of BEV tokens, the ego speed and one token a radar point."""

    def __init__(self, config: LeadConfig, bev_channels: int) -> None:
        super().__init__()
        self.config = config
        dim = config.radar_token_dim
        bev_tokens = config.lidar_vert_anchors * config.lidar_horz_anchors
        self.bev_pos_embed = nn.Parameter(torch.zeros(1, bev_tokens, dim))
        self.ego_vel_pos_embed = nn.Parameter(torch.zeros(1, 1, dim))
        self.q = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, config.num_radar_queries, dim)))
        self.bev_proj = nn.Conv2d(bev_channels, dim, 1)
        self.ego_vel_proj = nn.Linear(1, dim)
        self.radar_point_tokenizer = nn.Sequential(
            nn.Linear(dim + 1 + config.num_radar_sensors, config.radar_hidden_dim_tokenizer),
            nn.ReLU(inplace=True),
            nn.Linear(config.radar_hidden_dim_tokenizer, dim),
        )
        layer = nn.TransformerDecoderLayer(
            dim, config.radar_num_heads, config.radar_tf_dim_ff, config.radar_dropout, batch_first=True
        )
        self.tf = nn.TransformerDecoder(layer, config.radar_num_layers, norm=nn.LayerNorm(dim))
        self.state_decoder = nn.Sequential(
            nn.Linear(dim, config.radar_hidden_dim_decoder),
            nn.ReLU(inplace=True),
            nn.Linear(config.radar_hidden_dim_decoder, 3),
        )
        self.label_decoder = nn.Linear(dim, 1)

    def forward(self, bev: Tensor, radar: Tensor, speed: Tensor) -> RadarDetections:
        """Maps BEV features (B, C, H, W), radar points (B, N, 5) and ego speed (B,) in m/s to detections.

        A radar point is x, y, z in metres, velocity in m/s and the sensor's index.
        """
        bev = self.bev_proj(bev)
        radar = radar.to(bev.dtype)
        bev_tokens = bev.flatten(2).transpose(1, 2) + self.bev_pos_embed
        speed_token = self.ego_vel_proj(speed.to(bev.dtype)[:, None, None] / self.config.max_speed)
        memory = torch.cat((bev_tokens, speed_token + self.ego_vel_pos_embed, self._point_tokens(bev, radar)), dim=1)
        queries = self.q.expand(bev.shape[0], -1, -1)
        features = self.tf(queries, memory, memory_key_padding_mask=self._padding(memory, radar))
        return RadarDetections(features, self._decode(features))

    def _point_tokens(self, bev: Tensor, radar: Tensor) -> Tensor:
        sensor = F.one_hot(radar[..., 4].long(), self.config.num_radar_sensors).to(bev.dtype)
        velocity = radar[..., 3:4] / self.config.max_speed
        inputs = torch.cat((sample_bev(self.config, bev, radar[..., :2]), velocity, sensor), dim=-1)
        position = embed_points(unit_points(self.config, radar[..., :2]), 2 * self.config.radar_sine_features)
        tokens: Tensor = self.radar_point_tokenizer(inputs)
        return tokens + position.to(tokens.dtype)

    def _padding(self, memory: Tensor, radar: Tensor) -> Tensor | None:
        """Returns True where a memory token is a zero-padded radar point, which carries nothing."""
        if self.config.compat.unmasked_radar_padding:
            return None
        padded = (radar[..., :4] == 0).all(dim=-1)
        return torch.cat((padded.new_zeros(memory.shape[0], memory.shape[1] - radar.shape[1]), padded), dim=1)

    def _decode(self, features: Tensor) -> Tensor:
        """Bounds positions to the BEV window and speeds to [0, max_speed]."""
        config = self.config
        state = self.state_decoder(features).float().tanh()
        x = (state[..., 0] + 1) / 2 * config.lidar_width_meter + config.min_x_meter
        y = (state[..., 1] + 1) / 2 * config.lidar_height_meter + config.min_y_meter
        speed = (state[..., 2] + 1) / 2 * config.max_speed
        return torch.stack((x, y, speed, self.label_decoder(features)[..., 0].float()), dim=-1)
