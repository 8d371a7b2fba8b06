"""`prepare_dataset` writes the guide's layout once, and a cache of it is the cache of the raw tree."""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_protocol.store.folder import FolderStore
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.world.dataset import training_samples
from lead_trainer.recipes.world.ingest.difficulty import difficulty_of
from lead_trainer.recipes.world.ingest.pictures import fitted, read_picture
from lead_trainer.recipes.world.prepare_dataset import add_arguments, prepare, run

from .conftest import SIZE, build

SECTION: dict[str, Any] = {"dataset": "nuscenes", "image_size": list(SIZE)}


def command(root: Path, output: Path | None = None, *more: str) -> str:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flags = [] if output is None else ["--output", str(output)]
    words = ["--dataset", "nuscenes", "--data-root", str(root), "--image-size", *map(str, SIZE), *flags, *more]
    return run(parser.parse_args(words))


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_w_01_the_guides_command_writes_the_layout_and_then_does_nothing(copy: Path) -> None:
    assert command(copy).endswith("8 scenes written (6 train, 2 val), 0 were there")
    output = copy.parent / "processed/nuscenes"
    first = snapshot(output)
    assert command(copy).endswith("nothing to do, 8 scenes are there")
    assert snapshot(output) == first
    scene = output / "val/scene-0012"
    assert sorted(path.name for path in (scene / "images").iterdir()) == [f"{n:03d}.jpg" for n in range(8)]
    actions = np.load(scene / "actions.npy")
    assert actions.shape == (7, 4) and actions.dtype == np.float32
    metadata = json.loads((scene / "metadata.json").read_text())
    assert metadata["scene"] == "scene-0012" and metadata["fps"] == pytest.approx(2.0)
    assert (metadata["action_source"], metadata["location"]) == ("poses", "plain") and len(metadata["timestamps"]) == 8
    assert json.loads((output / "val/scene-0003/metadata.json").read_text())["action_source"] == "can"


def test_another_kind_of_tree_is_named_and_nothing_is_left(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"no usable scene of carla .* --dataset: this is a tree of nuscenes"):
        command(copy, tmp_path / "out", "--dataset", "carla")
    assert not (tmp_path / "out").exists()


def test_a_stopped_command_goes_on_where_it_was(copy: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command(copy, output)
    first = snapshot(output)
    shutil.rmtree(output / "train/scene-0002")
    half = output / ".unfinished/scene-0002/images"
    half.mkdir(parents=True)
    (half / "000.jpg").write_bytes(b"half")
    assert command(copy, output).endswith("1 scenes written (1 train, 0 val), 7 were there")
    assert {name: data for name, (data, _) in snapshot(output).items()} == {n: data for n, (data, _) in first.items()}


def test_a_folder_of_other_values_or_files_is_never_mixed(copy: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command(copy, output)
    with pytest.raises(BadConfig, match="was prepared with crop 'none', not 'centre'"):
        command(copy, output, "--crop", "centre")
    (copy / "can_bus/scene-0003_vehicle_monitor.json").unlink()
    with pytest.raises(BadConfig, match="from other files"):
        command(copy, output)
    (output / "prepared.json").unlink()
    with pytest.raises(BadConfig, match=r"is not empty and has no prepared\.json"):
        command(copy, output)
    with pytest.raises(BadConfig, match=r"--data-root: folder .* does not exist"):
        command(tmp_path / "nowhere", output)


def test_a_cache_of_the_layout_holds_the_records_of_the_raw_trees(
    example: Path, cache: CacheReader, tmp_path: Path, a_config: Callable[..., Any]
) -> None:
    prepare(FolderTree(example), SECTION, tmp_path / "out")
    processed = build(tmp_path / "out", FolderStore(tmp_path / "store"))
    for split in ("train", "val"):
        raw, made = cache.rows(split), processed.rows(split)
        assert list(raw.route) == list(made.route) and (raw.frame == made.frame).all()
        for row in range(len(raw.sample)):
            one, other = (c.fields(int(r.sample[row]))["image"] for c, r in ((cache, raw), (processed, made)))
            assert bytes(one) == bytes(other)
        for route, frame in {(raw.route[row], int(raw.frame[row])) for row in range(len(raw.sample))}:
            one_meta, other_meta = cache.metas().row(route, frame), processed.metas().row(route, frame)
            assert str(one_meta) == str(other_meta)
    one_sample = training_samples(a_config(), {"local": cache}).load(5, 1)
    other_sample = training_samples(a_config(), {"local": processed}).load(5, 1)
    assert (np.asarray(one_sample["images"]) == np.asarray(other_sample["images"])).all()


def test_pictures_are_within_40_db_of_the_resized_ones(golden: Path, tmp_path: Path) -> None:
    prepare(FolderTree(golden), {"dataset": "nuscenes"}, tmp_path / "out")
    raw = sorted((golden / "samples/CAM_FRONT").glob("*-0103__*"))
    for number, path in enumerate(raw):
        wanted = fitted(read_picture(path.read_bytes(), path.name), (256, 256), "none").astype(float)
        stored = tmp_path / f"out/val/scene-0103/images/{number:03d}.jpg"
        error = np.mean((read_picture(stored.read_bytes(), stored.name) - wanted) ** 2)
        assert 10 * np.log10(255**2 / error) >= 40.0


def test_w_56_difficulty_is_reproducible_and_a_users_own_wins(golden: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(FolderTree(golden), {"dataset": "nuscenes", "image_size": [64, 64]}, out)
    files = sorted((golden / "samples/CAM_FRONT").glob("*-0061__*"))
    pictures = [fitted(read_picture(path.read_bytes(), path.name), (64, 64), "none") for path in files]
    by_hand = np.mean([np.abs(a.astype(float) - b).mean() / 255 for a, b in zip(pictures[1:], pictures, strict=False)])
    metadata = out / "train/scene-0061/metadata.json"
    stated = json.loads(metadata.read_text())
    assert stated["difficulty"] == difficulty_of(pictures) == pytest.approx(by_hand, abs=1e-6)
    metadata.write_text(json.dumps({**stated, "difficulty": 123.0}))
    built = build(out, FolderStore(tmp_path / "store"), image_size=[64, 64])
    found = {route: built.metas().row(route, 0)["difficulty"] for route in set(built.rows("train").route)}
    assert found["train/scene-0061"] == 123.0 == max(found.values())
