"""Metrics, losses and learning rates equal those of public packages, on input that a seed makes."""

import json
import sys

import pytest

from lead_testing.golden import __main__ as golden
from lead_testing.golden import images

# Of torchmetrics 1.9.0, scipy and torch, for seed 11.
PSNR_A = [23.100006044640573, 23.081942113309193, 23.043331125943865]
SSIM_A = [0.7806863599937358, 0.7781037497719104, 0.7763672962361264]
SSIM_OF_SKIMAGE_A = [0.7744967703837626, 0.7749874830809795, 0.7759203171923797]
PERCEPTUAL_A = [0.140807643532753, 0.1094161868095398, 0.08858463913202286, 0.06435538083314896]
FRECHET = {"near": 0.6983320829012944, "far": 18.05280585018577, "few": 10.626703339377524}
LOSSES = {
    "recon_l1": 0.333268964150123, "pred_weighted_temporal_0.1": 0.3427656682624798,
    "pred_unweighted": 0.33159454774389646, "latent_reg": 1.072658634533748,
    "latent_consistency_mse": 2.42983830220957,
}  # fmt: skip
RATES = {
    "encoder": {"0": 1e-08, "999": 1e-05, "25000": 8.756803171472817e-06, "100000": 1e-06},
    "dynamics": {"499": 5e-05, "1000": 0.0001, "50000": 5.128536520982301e-05, "99999": 1.0000000249232454e-06},
    "decoder": {"1": 2e-07, "1001": 9.999999997507676e-05, "25000": 8.632483488620097e-05, "100000": 1e-06},
}


def test_w_21_psnr_and_ssim_are_those_of_torchmetrics() -> None:
    found = images.of_pair(*images.inputs("11", "a"))
    assert found["sum_truth"] == pytest.approx(18443.911573134363, abs=1e-6)  # the input is the one that was measured
    assert found["psnr_per_frame_torchmetrics"] == pytest.approx(PSNR_A, abs=2e-6)
    assert found["ssim_per_frame_torchmetrics"] == pytest.approx(SSIM_A, rel=1e-6)
    assert found["ssim_per_frame_skimage_gaussian"] == pytest.approx(SSIM_OF_SKIMAGE_A, rel=1e-6)


def test_w_18_the_perceptual_distance_is_that_of_torchvisions_vgg16() -> None:
    assert images.of_perceptual("11")["a"]["by_depth"] == pytest.approx(PERCEPTUAL_A, rel=1e-4)


@pytest.mark.parametrize("name", FRECHET)
def test_the_distance_of_features_is_that_of_scipy(name: str) -> None:
    assert images.of_features("11", name)["torchmetrics"] == pytest.approx(FRECHET[name], rel=1e-6)


def test_w_18_w_19_and_w_20_the_terms_of_the_loss() -> None:
    found = images.of_losses("11")
    assert {name: found[name] for name in LOSSES} == pytest.approx(LOSSES, rel=1e-6)


@pytest.mark.parametrize("part", RATES)
def test_w_08_each_part_has_a_warm_up_and_a_cosine_of_its_own(part: str) -> None:
    found = images.of_schedule()[part]
    assert {step: found[step] for step in RATES[part]} == pytest.approx(RATES[part], rel=1e-9)


def test_the_command_prints_the_numbers_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["golden", "images", "12"])
    golden.main()
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"seed", "pairs", "perceptual", "frechet", "schedule", "losses"} and found["seed"] == 12
