"""The transformer that mixes image and BEV tokens: pre-norm blocks over learned positions (Chitta et al. 2022)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class FusionShape:
    """Sizes and dropout rates of one fusion transformer."""

    dim: int
    tokens: int
    layers: int
    heads: int
    mlp_ratio: int
    embedding_dropout: float
    residual_dropout: float
    attention_dropout: float
    init_mean: float
    init_std: float
    norm_init: float


class SelfAttention(nn.Module):
    """Multi-head self-attention with separate key, query and value layers."""

    def __init__(self, shape: FusionShape) -> None:
        super().__init__()
        self.key = nn.Linear(shape.dim, shape.dim)
        self.query = nn.Linear(shape.dim, shape.dim)
        self.value = nn.Linear(shape.dim, shape.dim)
        self.resid_drop = nn.Dropout(shape.residual_dropout)
        self.proj = nn.Linear(shape.dim, shape.dim)
        self.heads = shape.heads
        self.attention_dropout = shape.attention_dropout

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens (B, T, C) to (B, T, C)."""
        batch, tokens, dim = x.shape
        query, key, value = (
            layer(x).view(batch, tokens, self.heads, dim // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        dropout = self.attention_dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        out: Tensor = self.resid_drop(self.proj(mixed.transpose(1, 2).reshape(batch, tokens, dim)))
        return out


class FusionBlock(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual path."""

    def __init__(self, shape: FusionShape) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(shape.dim)
        self.ln2 = nn.LayerNorm(shape.dim)
        self.attn = SelfAttention(shape)
        self.mlp = nn.Sequential(
            nn.Linear(shape.dim, shape.mlp_ratio * shape.dim),
            nn.ReLU(inplace=True),
            nn.Linear(shape.mlp_ratio * shape.dim, shape.dim),
            nn.Dropout(shape.residual_dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens (B, T, C) to (B, T, C)."""
        x = x + self.attn(self.ln1(x))
        out: Tensor = x + self.mlp(self.ln2(x))
        return out


class FusionTransformer(nn.Module):
    """Mixes two feature maps of equal channels; both come back in their own shape."""

    def __init__(self, shape: FusionShape) -> None:
        super().__init__()
        self.pos_emb = nn.Parameter(torch.zeros(1, shape.tokens, shape.dim))
        self.drop = nn.Dropout(shape.embedding_dropout)
        self.blocks = nn.Sequential(*(FusionBlock(shape) for _ in range(shape.layers)))
        self.ln_f = nn.LayerNorm(shape.dim)
        self._initialise(shape)

    def forward(self, image: Tensor, bev: Tensor) -> tuple[Tensor, Tensor]:
        """Mixes image (B, C, h, w) and BEV (B, C, H, W) features; h*w + H*W must be the number of tokens."""
        image_tokens = image.shape[2] * image.shape[3]
        tokens = torch.cat((image.flatten(2), bev.flatten(2)), dim=2).transpose(1, 2)
        tokens = self.ln_f(self.blocks(self.drop(self.pos_emb + tokens)))
        mixed_image, mixed_bev = tokens.transpose(1, 2).tensor_split([image_tokens], dim=2)
        return mixed_image.reshape(image.shape), mixed_bev.reshape(bev.shape)

    def _initialise(self, shape: FusionShape) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, shape.init_mean, shape.init_std)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                nn.init.constant_(module.weight, shape.norm_init)
                nn.init.zeros_(module.bias)
