"""`verify` and `bundles` of `python -m lead_trainer.recipes.nuplan`: what they read, write and refuse."""

import hashlib
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import NuplanTree
from lead_trainer.recipes.nuplan.prepare_keys import NuplanKeys, data_keys_of
from lead_trainer.recipes.nuplan.sensor_bundle import read_npz
from lead_trainer.recipes.nuplan.targets.bundles import bundle_of_sweep
from lead_trainer.recipes.nuplan.tree_commands import main
from unit.nuplan_data.test_bad_trees import log_file, sql

WORDS = ["data.image_size=[24,40]", "data.cameras=[CAM_F0]", "data.cell_m=2.0"]
KEYS = {"image_size": [24, 40], "cameras": ["CAM_F0"], "cell_m": 2.0}


def sums(root: Path) -> str:
    files = [file for file in sorted(root.rglob("*")) if file.is_file()]
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(root)}\n" for file in files)


def test_n_53_verify_reads_a_whole_tree_and_counts_by_reason(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "sums.txt"
    listed.write_text(sums(example))
    assert main(["verify", str(example), "--checksums", str(listed), *WORDS]) == 0
    out = capsys.readouterr().out
    assert "files have the sums of" in out and "kept: 16 sweeps" in out and "cloud_missing: 144 sweeps" in out


def test_n_53_verify_names_what_is_missing_changed_or_of_another_form(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "sums.txt"
    listed.write_text(sums(copy))
    picture = sorted(copy.rglob("CAM_F0/*.jpg"))[0]
    whole = picture.read_bytes()
    for damage, sentence in (
        (lambda: picture.write_bytes(whole[:-2] + b"xx"), f"{picture.name}: found sha256"),
        (picture.unlink, f"{picture.name} is missing; fetch it again"),
    ):
        damage()
        assert main(["verify", str(copy), "--checksums", str(listed), *WORDS]) == ExitCode.BAD_DATA
        assert sentence in capsys.readouterr().err
    picture.write_bytes(whole[:-2] + b"xx")
    assert main(["verify", str(copy), *WORDS]) == ExitCode.BAD_DATA
    assert "is no whole picture" in capsys.readouterr().err
    sql(log_file(copy), "DROP TABLE lidar_box")
    assert main(["verify", str(copy), *WORDS]) == ExitCode.BAD_DATA
    assert "table lidar_box is missing" in capsys.readouterr().err
    listed.write_text("no sums\n")
    assert main(["verify", str(copy), "--checksums", str(listed)]) == ExitCode.BAD_CONFIG
    assert main(["verify", str(copy), "data.cel_m=1"]) == ExitCode.BAD_CONFIG
    assert "did you mean" in capsys.readouterr().err


def test_a_tree_without_any_blob_is_named_with_the_reasons(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in copy.rglob("*.jpg"):
        file.unlink()
    assert main(["verify", str(copy), *WORDS]) == ExitCode.BAD_DATA
    assert "no sweep is usable (cloud_missing 144, picture_missing 16" in capsys.readouterr().err


def test_n_06_and_n_53_bundles_are_those_made_on_the_fly(example: Path, tmp_path: Path) -> None:
    assert main(["bundles", str(example), str(tmp_path), *WORDS]) == 0
    files = sorted(tmp_path.rglob("*.npz"))
    assert len(files) == 16
    stored = read_npz(files[0].read_bytes(), str(files[0]))
    tree = NuplanTree(FolderTree(example))
    log = tree.log("mini", files[0].parent.name)
    anew = bundle_of_sweep(tree, log, log.tokens.index(files[0].stem), NuplanKeys.of(data_keys_of({"data": KEYS})))
    assert stored.meta() == anew.meta() and stored.images == anew.images
    assert all((array == anew.arrays()[name]).all() for name, array in stored.arrays().items())
