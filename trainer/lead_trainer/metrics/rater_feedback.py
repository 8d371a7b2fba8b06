"""The rater feedback score of the Waymo Open Dataset for end-to-end driving (2025), one value an item.

Raters gave a few trajectories a score from 0 to 10. Around each of them lies, 3 s and 5 s ahead, a rectangle along its
heading there, which grows with the present speed: a prediction within it earns that score, one further off a tenth of
it for each further size of the rectangle. At either time the best rated trajectory counts, then the mean of both
times; a prediction that leaves every trajectory's rectangles earns at least 4. Definition: waymo_open_dataset,
`metrics/python/rater_feedback_utils.py`.

Shapes: B items, P rated trajectories, T = 20 steps of 0.25 s from 0.25 s on; metres, in the car's frame of now.
"""

import torch
from torch import Tensor

JUDGED_STEPS = (11, 19)  # 3 s and 5 s
HALF_WIDTH_M = (1.0, 1.8)  # across the heading, at full speed
LENGTH_PER_WIDTH = 4.0
SPEEDS_MPS = (1.4, 11.0)  # between them the rectangles grow from half to full size
DECAY = 0.1
LEAST_OUTSIDE = 4.0


def rater_feedback_score(predicted_BT2: Tensor, rated_BPT2: Tensor, ratings_BP: Tensor, speed_B: Tensor) -> Tensor:
    """Returns the score of each item, (B,); a negative rating marks no trajectory, an item without any gets NaN."""
    judged = list(JUDGED_STEPS)
    rated_BPT2, ratings_BP = rated_BPT2.double(), ratings_BP.double()
    gap_BPJ2 = (predicted_BT2.double()[:, None] - rated_BPT2)[:, :, judged]
    ahead_BPJ2 = _headings(rated_BPT2)[:, :, judged]
    along_BPJ = (gap_BPJ2 * ahead_BPJ2).sum(dim=-1).abs()
    across_BPJ = (gap_BPJ2[..., 0] * ahead_BPJ2[..., 1] - gap_BPJ2[..., 1] * ahead_BPJ2[..., 0]).abs()
    low, high = SPEEDS_MPS
    size_B = (0.5 + 0.5 * (speed_B.double() - low) / (high - low)).clamp(0.5, 1.0)
    width_B1J = size_B[:, None, None] * size_B.new_tensor(HALF_WIDTH_M)
    distance_BPJ = torch.maximum(along_BPJ / (LENGTH_PER_WIDTH * width_B1J), across_BPJ / width_B1J)
    is_rated_BP = ratings_BP >= 0
    earned_BPJ = ratings_BP.clamp(min=0)[..., None] * DECAY ** (distance_BPJ - 1).clamp(min=0)
    score_B = (earned_BPJ * is_rated_BP[..., None]).amax(dim=1).mean(dim=-1)
    is_inside_B = ((distance_BPJ <= 1).all(dim=-1) & is_rated_BP).any(dim=1)
    score_B = torch.where(is_inside_B, score_B, score_B.clamp(min=LEAST_OUTSIDE))
    return score_B.masked_fill(~is_rated_BP.any(dim=1), torch.nan)


def _headings(rated_BPT2: Tensor) -> Tensor:
    """Returns the unit vector of each step; standing still keeps the heading, and the first one is straight ahead."""
    steps = rated_BPT2.diff(dim=2, prepend=torch.zeros_like(rated_BPT2[:, :, :1]))
    length = steps.norm(dim=-1, keepdim=True)
    number = torch.arange(steps.shape[2], device=steps.device)
    last_moved = torch.where(length[..., 0] > 0, number, -1).cummax(dim=-1).values[..., None]
    held = (steps / length.clamp(min=torch.finfo(length.dtype).tiny)).gather(
        2, last_moved.clamp(min=0).expand_as(steps)
    )
    return torch.where(last_moved < 0, held.new_tensor((1.0, 0.0)), held)
