"""`lead inspect`, `preflight` and `bench model` on the smallest model."""

from pathlib import Path

import numpy as np
import pytest

from lead_testing.small_world import SMALL_WORDS
from lead_trainer.cli import main
from lead_trainer.commands.inspect_data import named_if_not_finite, nonfinite_keys
from lead_trainer.contract.samples import Indices, Sample, Samples


class Planted(Samples):
    """Five samples, the third with NaN."""

    def __len__(self) -> int:
        return 5

    def epoch_draw(self, epoch: int) -> Indices:
        return np.arange(5)

    def load(self, index: int, epoch: int) -> Sample:
        return {"x": np.full(3, np.nan if index == 2 else 1.0, np.float32), "scene": "a"}

    def name(self, index: int) -> str:
        return f"scene-{index}"


def words(tree: Path, folder: Path) -> list[str]:
    return [*SMALL_WORDS, f"data_root={tree}", f"logdir={folder}", "loss.pred_from_epoch_share=0"]


def test_w_35_a_batch_is_shown_with_its_pictures(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "batch", *words(tree, tmp_path)]) == 0
    found = capsys.readouterr().out
    assert "images" in found and "(4, 4, 3, 32, 32)" in found and "(4, 3, 4)" in found
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "train_reconstruction_0000000.png", "train_prediction_0000000.png",
    }  # fmt: skip
    assert all(f"{path}\n" in found for path in tmp_path.glob("*.png"))


def test_w_35_a_planted_nan_is_named(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert named_if_not_finite(Planted(), 2) == 1
    assert capsys.readouterr().out.splitlines() == [
        "scene-2: x: found NaN or infinity", "1 of 5 samples hold a value that is not finite",
    ]  # fmt: skip
    assert nonfinite_keys({"far": np.float32("inf"), "x": np.float32("inf")}, frozenset({"far"})) == ["x"]
    assert nonfinite_keys({"far": np.float32("nan")}, frozenset({"far"})) == ["far"]
    assert main(["inspect", "nan", *words(tree, tmp_path)]) == 0
    assert "0 of 12 samples" in capsys.readouterr().out


def test_w_35_the_range_of_outputs_is_within_minus_one_and_one(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "range", *words(tree, tmp_path)]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "reconstructed" in line]
    least, _, greatest = (float(cell) for cell in row.replace("│", " ").split()[-4:-1])
    assert -1 <= least < greatest <= 1


def test_w_45_preflight_checks_the_guides_list(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", *words(tree, tmp_path / "run")]) == 0
    found = capsys.readouterr().out
    for part in ("samples", "device", "model", "data", "disk", "TensorBoard", "W&B", "ready to train"):
        assert part in found, part
    assert not (tmp_path / "run").exists()


def test_w_57_what_is_measured_stands_beside_what_the_guide_states(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "model", "--seconds", "0.01", *words(tree, tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    plain, half, recomputed = (line.split("│") for line in lines[:3])
    assert plain[1].strip() == "fp32" and half[8].strip() == "-50 % memory, +40 % speed"
    assert recomputed[8].strip() == "-50 % memory, -20 % speed" and "4 GPUs" in "".join(lines)
    kept = [int(row[6].strip().removesuffix("%")) for row in (plain, half, recomputed)]
    assert kept[0] == 0 and kept[1] < -25 and kept[2] < -25
