"""The planning decoder: queries over BEV, status and radar tokens become a route, waypoints and a target speed."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lead_trainer.blocks.sine_position import embed_grid, embed_points
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.network.bev_points import unit_points
from lead_trainer.recipes.lead.network.radar_detector import RadarDetections


@dataclass(frozen=True)
class Plan:
    """What the car is to do; ego frame, metres."""

    context: Tensor  # (B, tokens, transfuser_token_dim)
    route: Tensor | None  # (B, num_route_points_prediction, 2)
    future_waypoints: Tensor | None  # (B, num_way_points_prediction, 2)
    target_speed_logits: Tensor | None  # (B, classes)
    target_speed: Tensor | None  # (B,) m/s
    headings: Tensor | None = None  # (B, num_way_points_prediction) radians, with NavSim


class PlanningContextEncoder(nn.Module):
    """Builds the memory: BEV tokens, then status tokens, then radar tokens."""

    def __init__(self, config: LeadConfig, bev_channels: int) -> None:
        super().__init__()
        self.config = config
        dim = config.transfuser_token_dim
        radar_tokens = config.num_radar_queries if config.plans_with_radar else 0
        points = len(target_point_keys(config))
        numbers = config.use_velocity + config.use_acceleration + config.use_discrete_command
        past = config.num_past_samples_used * (config.use_past_positions + config.use_past_speeds)
        status_tokens = numbers + points + past + radar_tokens
        # Without a row it never has a gradient, for which DDP would wait.
        self.status_pos_embedding = nn.Parameter(torch.rand(1, status_tokens, dim), requires_grad=status_tokens > 0)
        commands = config.discrete_command_dim
        self.velocity_encoder = nn.Sequential(nn.Linear(1, dim)) if config.use_velocity else None
        self.acceleration_encoder = nn.Sequential(nn.Linear(1, dim)) if config.use_acceleration else None
        self.command_encoder = nn.Sequential(nn.Linear(commands, dim)) if config.use_discrete_command else None
        self.tp_encoder = nn.Linear(2, dim) if points else None
        self.past_positions_encoder = _past_encoder(config, 2) if config.use_past_positions else None
        self.past_speeds_encoder = _past_encoder(config, 1) if config.use_past_speeds else None
        self.radar_encoder = nn.Linear(config.radar_token_dim, dim) if radar_tokens else None
        self.dimension_adapter = nn.Conv2d(bev_channels, dim, 1)

    def forward(self, bev: Tensor, radar: RadarDetections | None, batch: Mapping[str, Tensor]) -> Tensor:
        """Maps BEV features (B, C, H, W), radar detections and the status in `batch` to (B, tokens, dim)."""
        bev = self.dimension_adapter(bev)
        grid = embed_grid(bev.shape[2], bev.shape[3], bev.shape[1] // 2, bev.device).to(bev.dtype)
        tokens = (bev + grid).flatten(2).transpose(1, 2)
        status = self._status_tokens(bev.dtype, radar, batch)
        if not status:  # a planner without inputs
            return tokens
        # With an unread past there is one status token, which fills the places of all.
        return torch.cat((tokens, torch.cat(status, dim=1) + self.status_pos_embedding), dim=1)

    def _status_tokens(
        self, dtype: torch.dtype, radar: RadarDetections | None, batch: Mapping[str, Tensor]
    ) -> list[Tensor]:
        tokens = []
        if self.velocity_encoder is not None:
            tokens.append(self.velocity_encoder(batch["speed"].to(dtype)[:, None, None] / self.config.max_speed))
        if self.acceleration_encoder is not None:
            acceleration = batch["acceleration"].to(dtype)[:, None, None]
            tokens.append(self.acceleration_encoder(acceleration / self.config.max_acceleration))
        if self.command_encoder is not None:
            tokens.append(self.command_encoder(batch["command"].to(dtype)[:, None]))
        if self.tp_encoder is not None:
            points = torch.stack([batch[key] for key in target_point_keys(self.config)], dim=1)
            if self.config.compat.bf16_labels:
                points = points.to(dtype)
            tokens.append(self.tp_encoder((points / points.new_tensor(self.config.target_point_scale)).to(dtype)))
        if not self.config.compat.unread_past:
            tokens += self._past_tokens(dtype, batch)
        if self.radar_encoder is not None and radar is not None:
            position = embed_points(
                unit_points(self.config, radar.predictions[..., :2]), self.radar_encoder.out_features
            )
            tokens.append(self.radar_encoder(radar.features.to(dtype)) + position.to(dtype))
        return tokens

    def _past_tokens(self, dtype: torch.dtype, batch: Mapping[str, Tensor]) -> list[Tensor]:
        tokens = []
        if self.past_positions_encoder is not None:
            past = batch["past_positions"]
            tokens.append(
                self.past_positions_encoder((past / past.new_tensor(self.config.target_point_scale)).to(dtype))
            )
        if self.past_speeds_encoder is not None:
            tokens.append(self.past_speeds_encoder(batch["past_speeds"].to(dtype) / self.config.max_speed))
        return tokens


class PlanningDecoder(nn.Module):
    """Route, waypoint and speed queries, in this order, against the planning context."""

    def __init__(self, config: LeadConfig, bev_channels: int) -> None:
        super().__init__()
        self.config = config
        dim = config.transfuser_token_dim
        waypoints = config.num_way_points_prediction if config.predict_temporal_spatial_waypoints else 0
        route = config.num_route_points_prediction if config.predict_spatial_path else 0
        self.counts = [route, waypoints, int(config.predict_target_speed)]
        self.query = nn.Parameter(torch.rand(1, sum(self.counts), dim))
        self.planning_context_encoder = PlanningContextEncoder(config, bev_channels)
        layer = nn.TransformerDecoderLayer(dim, config.transfuser_num_bev_cross_attention_heads, batch_first=True)
        layers = config.transfuser_num_bev_cross_attention_layers
        self.transformer_decoder = nn.TransformerDecoder(layer, layers, norm=nn.LayerNorm(dim))
        self.route_decoder = nn.Linear(dim, 2) if route else None
        self.wp_decoder = nn.Linear(dim, 2) if waypoints else None
        self.heading_decoder = nn.Linear(dim, 1) if waypoints and config.use_navsim_data else None
        self.target_speed_decoder = _speed_head(config, dim) if config.predict_target_speed else None

    def forward(self, bev: Tensor, radar: RadarDetections | None, batch: Mapping[str, Tensor]) -> Plan:
        """Plans from BEV features (B, C, H, W), radar detections and the status in `batch`."""
        context = self.planning_context_encoder(bev, radar, batch)
        answers = self.transformer_decoder(self.query.expand(bev.shape[0], -1, -1), context)
        route, waypoints, speed = answers.split(self.counts, dim=1)
        logits = self.target_speed_decoder(speed[:, 0]) if self.target_speed_decoder is not None else None
        return Plan(
            context=context,
            route=self.route_decoder(route).cumsum(dim=1) if self.route_decoder is not None else None,
            future_waypoints=self.wp_decoder(waypoints).cumsum(dim=1) if self.wp_decoder is not None else None,
            target_speed_logits=logits,
            target_speed=expected_speed(self.config, logits) if logits is not None else None,
            headings=self.heading_decoder(waypoints).cumsum(dim=1)[..., 0]
            if self.heading_decoder is not None
            else None,
        )


def _past_encoder(config: LeadConfig, numbers: int) -> nn.Linear:
    """Returns an encoder of the past, frozen where it is LEAD's, which nothing reads: DDP waits for its gradients."""
    return nn.Linear(numbers, config.transfuser_token_dim).requires_grad_(not config.compat.unread_past)


def _speed_head(config: LeadConfig, dim: int) -> nn.Sequential:
    classes = len(config.target_speed_classes)
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(inplace=True), nn.Linear(dim, classes))


def target_point_keys(config: LeadConfig) -> list[str]:
    """Returns the batch keys of the target points the planner sees, in token order."""
    wanted = {
        "target_point": config.use_tp,
        "target_point_previous": config.use_previous_tp,
        "target_point_next": config.use_next_tp,
    }
    return [key for key, use in wanted.items() if use]


def expected_speed(config: LeadConfig, logits: Tensor) -> Tensor:
    """Returns the mean (...,) in m/s of the speed classes under softmax of `logits` (..., classes)."""
    probabilities = logits.float().softmax(dim=-1) if logits.itemsize < 4 else logits.softmax(dim=-1)
    return (probabilities * probabilities.new_tensor(config.target_speed_classes)).sum(dim=-1)
