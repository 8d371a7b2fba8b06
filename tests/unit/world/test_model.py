"""Shapes, ranges and sizes of the world model, what an action changes, and what checkpointing does not."""

import pytest
import torch

from lead_testing.small_world import small_config
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.model import PARTS, WorldModel, build_world_model, parameter_counts
from lead_trainer.recipes.world.recipe import RECIPE

CLIPS, FRAMES = 3, 4


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    images = torch.rand(CLIPS, FRAMES, 3, 32, 32, generator=made) * 2 - 1
    return images, torch.rand(CLIPS, FRAMES - 1, 4, generator=made)


def small_model() -> WorldModel:
    torch.manual_seed(1)
    return build_world_model(small_config())


def test_w_13_to_w_17_and_w_53_outputs_have_the_guides_names_and_shapes() -> None:
    outputs = small_model()(*batch())
    assert {name: tuple(value.shape) for name, value in outputs.items()} == {
        "reconstructed": (CLIPS, FRAMES, 3, 32, 32), "predicted": (CLIPS, FRAMES - 1, 3, 32, 32),
        "latents": (CLIPS, FRAMES, 16), "predicted_latents": (CLIPS, FRAMES - 1, 16),
    }  # fmt: skip
    for name in ("reconstructed", "predicted"):
        assert outputs[name].detach().abs().max() <= 1


@pytest.mark.parametrize("preset", ["base", "quick", "best"])
def test_w_14_w_16_and_w_48_a_preset_makes_latents_and_pictures_of_its_size(preset: str) -> None:
    config = RECIPE.config({}, preset)
    with torch.device("meta"):
        model = build_world_model(config)
        pictures = model.decoder(torch.zeros(1, config.model.latent_dim))
    assert config.model.picture_side == 256 and pictures.shape == (1, 3, 256, 256)
    counts = parameter_counts(model)
    assert tuple(counts)[:3] == PARTS and counts["total"] == sum(counts[part] for part in PARTS)
    # Millions, as the guide's keys were counted independently; its page says 28, its report 93.9.
    parts = {"base": (12.47, 7.10, 41.65), "quick": (12.41, 1.78, 24.88), "best": (12.60, 28.35, 75.21)}[preset]
    assert [counts[part] / 1e6 for part in PARTS] == pytest.approx(parts, abs=0.006)
    total = {"base": 61.22, "quick": 39.06, "best": 116.16}[preset]
    assert counts["total"] / 1e6 == pytest.approx(total, abs=0.006)


def test_the_tiny_model_has_less_than_700_000_parameters() -> None:
    with torch.device("meta"):
        assert parameter_counts(build_world_model(RECIPE.config({}, "tiny")))["total"] < 700_000


def test_w_15_an_action_changes_only_later_latents() -> None:
    model = small_model().eval()
    images, actions = batch()
    other = actions.clone()
    other[:, 1] += 1.0
    one, two = model(images, actions)["predicted_latents"], model(images, other)["predicted_latents"]
    assert torch.equal(one[:, 0], two[:, 0]) and not torch.allclose(one[:, 1], two[:, 1])
    assert not torch.allclose(one[:, 2], two[:, 2])


def test_a_rollout_starts_from_true_frames_and_goes_on_from_its_own() -> None:
    model = small_model().eval()
    images, actions = batch()
    whole = model(images, actions)
    all_true, one_true = model.rollout(images[:, :-1], actions), model.rollout(images[:, :1], actions)
    assert torch.allclose(all_true.latents, whole["predicted_latents"], atol=1e-6)
    assert torch.allclose(one_true.latents[:, 0], whole["predicted_latents"][:, 0], atol=1e-6)
    assert not torch.allclose(one_true.latents[:, 1], whole["predicted_latents"][:, 1], atol=1e-3)
    assert one_true.pictures.shape == (CLIPS, FRAMES - 1, 3, 32, 32)


def test_w_42_and_w_53_gradients_are_the_same_with_checkpointing() -> None:
    grads = []
    for recompute in (False, True):
        model = small_model()
        if recompute:
            model.enable_gradient_checkpointing()
        model(*batch())["predicted"].square().mean().backward()
        grads.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert len(grads[0]) == len(grads[1]) > 30
    for one, other in zip(*grads, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_latents_are_spread_over_the_batch_by_the_norm_and_not_without_it() -> None:
    spread = small_model()(*batch())["latents"].flatten(0, 1).std(0, correction=0)
    assert torch.allclose(spread, torch.ones(16), atol=0.1)
    torch.manual_seed(1)
    without = build_world_model(small_config(model__encoder__latent_norm="none"))
    assert without(*batch())["latents"].flatten(0, 1).std(0).mean() < 0.3


def test_the_norm_of_latents_is_the_only_state_beside_parameters() -> None:
    model = build_world_model(WorldConfig.model_validate(small_config().model_dump()))
    buffers = {name for name, _ in model.named_buffers()}
    assert buffers == {f"encoder.norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}


def test_the_guides_builder_takes_keys_and_refuses_what_holds_none() -> None:
    assert build_world_model(small_config().model_dump()).state_dict().keys() == small_model().state_dict().keys()
    with pytest.raises(TypeError, match="found str, expected a WorldConfig or a mapping of its keys"):
        build_world_model("base")  # type: ignore[arg-type]


def test_actions_that_do_not_lie_between_the_frames_are_refused() -> None:
    images, actions = batch()
    with pytest.raises(ValueError, match=rf"actions: found shape .*, expected \({CLIPS}, {FRAMES - 1}, …\)"):
        small_model()(images, torch.cat([actions, actions[:, :1]], dim=1))
