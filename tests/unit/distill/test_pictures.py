"""The picture of a validation: the truth and the modes lie where they lead, ahead up and left on the left."""

import numpy as np
import torch

from lead_trainer.recipes.distill.pictures import EGO, MARGIN, MODE, PANEL, TRUTH, ways_from_above


def test_ways_lead_to_their_pixels_and_the_likeliest_is_the_brightest() -> None:
    ahead, left = torch.tensor([10.0, 0.0]), torch.tensor([0.0, 10.0])
    steps = torch.linspace(0.1, 1.0, 10)[:, None]
    truth = torch.stack([steps * ahead, steps * ahead])
    modes = torch.stack([torch.stack([steps * left, -steps * left])] * 2)
    batch = {"target_xy": truth, "target_valid": torch.ones(2, 10, dtype=torch.bool)}
    picture = ways_from_above({"xy": modes, "logits": torch.tensor([[2.0, 0.0]] * 2)}, batch)
    assert picture.shape == (PANEL, 2 * PANEL, 3) and picture.dtype == np.uint8
    middle = PANEL // 2
    assert tuple(picture[MARGIN + 5, middle]) == TRUTH and tuple(picture[middle, middle]) == EGO
    likely, other = picture[middle, MARGIN + 5], picture[middle, PANEL - MARGIN - 5]
    assert tuple(likely) == MODE and 0 < other.max() < likely.max()
    assert not picture[PANEL - MARGIN - 5, middle].any()  # nothing lies behind


def test_a_truth_without_valid_steps_is_no_line() -> None:
    batch = {"target_xy": torch.full((1, 4, 2), float("nan")), "target_valid": torch.zeros(1, 4, dtype=torch.bool)}
    picture = ways_from_above({"xy": torch.ones(1, 1, 4, 2), "logits": torch.zeros(1, 1)}, batch)
    assert not (picture == TRUTH).all(-1).any()
