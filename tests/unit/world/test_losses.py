"""Which terms a loss has, when, and what the perceptual network may be."""

from pathlib import Path

import pytest
import torch

from lead_testing.small_world import small_config
from lead_trainer.contract.step import Position, StepContext
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.loss_terms.perceptual import PerceptualDistance, vgg16_features
from lead_trainer.recipes.world.losses import compute_losses
from lead_trainer.recipes.world.model import build_model
from lead_trainer.recipes.world.recipe import RECIPE

TERMS = {"recon_loss", "pred_loss", "temporal_loss", "latent_reg"}


@pytest.fixture(scope="module")
def vgg_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vgg") / "vgg16.pth"
    torch.save({f"features.{name}": value for name, value in vgg16_features().state_dict().items()}, path)
    return path


def parts(config: WorldConfig, *, predict: bool = True) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    images = torch.rand(2, 4, 3, 32, 32) * 2 - 1
    outputs = build_model(config)(images, torch.rand(2, 3, 4), predict=predict)
    return dict(compute_losses(config, outputs, images, None).parts)


@pytest.mark.parametrize(
    ("weight", "term"),
    [("recon", "recon_loss"), ("pred", "pred_loss"), ("temporal", "temporal_loss"), ("latent_reg", "latent_reg")],
)
def test_w_10_a_weight_of_zero_removes_its_term(weight: str, term: str) -> None:
    assert parts(small_config()).keys() == TERMS
    assert parts(small_config(**{f"loss__{weight}_weight": 0.0})).keys() == TERMS - {term}


def test_w_23_the_first_epochs_reconstruct_alone_and_every_parameter_has_a_gradient() -> None:
    config = small_config(epochs=10)
    model = build_model(config)
    images, actions = torch.rand(2, 4, 3, 32, 32), torch.rand(2, 3, 4)
    for epoch, tags in ((2, {"recon_loss"}), (3, TERMS)):
        at = Position(epoch=epoch, epoch_steps=(1,) * 10)
        output = RECIPE.step(model, {"images": images, "actions": actions}, StepContext(config=config, at=at))
        assert output.parts.keys() == tags
        model.zero_grad()
        output.loss.backward()  # type: ignore[no-untyped-call]
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_norm_makes_the_regulariser_look_at_predicted_latents() -> None:
    with_norm, without = (
        small_config(model__encoder__latent_norm=kind, loss__temporal_weight=0.0) for kind in ("batch", "none")
    )
    assert "latent_reg" not in parts(with_norm, predict=False)
    assert "latent_reg" in parts(without, predict=False)


def test_w_18_the_perceptual_network_is_frozen_and_equal_pictures_are_no_distance_apart(vgg_file: Path) -> None:
    config = small_config(loss__perceptual_weight=0.1, perceptual_weights=str(vgg_file))
    assert RECIPE.helpers is not None
    distance = RECIPE.helpers(config).requires_grad_(False)
    pictures = (torch.rand(2, 3, 32, 32) * 2 - 1).requires_grad_()
    assert float(distance(pictures, pictures).detach()) == 0.0
    distance(pictures, torch.zeros_like(pictures)).backward()
    assert pictures.grad is not None and not any(one.grad is not None for one in distance.parameters())
    assert not isinstance(RECIPE.helpers(small_config()), PerceptualDistance)


def test_w_18_a_perceptual_weight_needs_a_file_of_vgg16(tmp_path: Path, vgg_file: Path) -> None:
    assert RECIPE.helpers is not None
    with pytest.raises(BadConfig, match=r"set perceptual_weights to a file .*, or loss\.perceptual_weight=0"):
        RECIPE.helpers(small_config(loss__perceptual_weight=0.1))
    other = torch.load(vgg_file, weights_only=True)
    other["features.5.weight"] = torch.zeros(3, 3)
    torch.save(other, tmp_path / "other.pth")
    wrong = small_config(loss__perceptual_weight=0.1, perceptual_weights=str(tmp_path / "other.pth"))
    with pytest.raises(BadConfig, match=r"is not of VGG16: at features\.5\.weight found \(3, 3\), expected \(128, 64"):
        RECIPE.helpers(wrong)
    with pytest.raises(BadConfig, match="perceptual_weights: no file at"):
        RECIPE.helpers(small_config(loss__perceptual_weight=0.1, perceptual_weights=str(tmp_path / "none.pth")))
