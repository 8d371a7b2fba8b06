"""LEAD's routes and a real nuScenes keyframe are scenes like those of the made-up tree."""

import lzma
import pickle
from pathlib import Path

import numpy as np
import pytest

from lead_testing import shared_dir
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadData
from lead_trainer.recipes.world.ingest.can_bus import can_file
from lead_trainer.recipes.world.ingest.pictures import encoded
from lead_trainer.recipes.world.ingest.processed_tree import ProcessedTree
from lead_trainer.recipes.world.ingest.sources import open_source
from lead_trainer.recipes.world.ingest.splits import official_split, seeded_splits
from lead_trainer.recipes.world.prepare_dataset import prepare
from lead_trainer.recipes.world.prepare_keys import WorldKeys, data_keys_of


def write_route(root: Path, name: str, commands: list[tuple[float, float, bool, float]]) -> None:
    """Writes a route with what recipe `world` reads of it: a picture and a meta a frame."""
    for folder in ("rgb", "metas", "bboxes"):
        (root / "data/Accident" / name / folder).mkdir(parents=True)
    for frame, (steer, throttle, brake, speed) in enumerate(commands):
        picture = np.full((48, 96, 3), 40 * frame, np.uint8)
        (root / f"data/Accident/{name}/rgb/{frame:04d}.jpg").write_bytes(encoded(picture))
        meta = {"steer": steer, "throttle": throttle, "brake": brake, "speed": speed}
        (root / f"data/Accident/{name}/metas/{frame:04d}.pkl").write_bytes(lzma.compress(pickle.dumps(meta)))
        (root / f"data/Accident/{name}/bboxes/{frame:04d}.pkl").write_bytes(b"")


def test_w_50_leads_routes_become_the_same_layout(tmp_path: Path) -> None:
    driven = [(0.2, 0.5, False, 3.0), (-0.4, 0.0, True, 1.0), (0.0, 0.0, True, 0.0)]
    for name in ("a", "b"):
        write_route(tmp_path / "carla", name, driven)
    write_route(tmp_path / "carla", "c", driven[:1])
    section = {"dataset": "carla", "image_size": [32, 32], "crop": "centre"}
    done = prepare(FolderTree(tmp_path / "carla"), section, tmp_path / "out")
    assert len(done.written) == 2 and [verdict.reason for verdict in done.left_out] == ["one_picture"]
    made = ProcessedTree(FolderTree(tmp_path / "out"))
    for scene in made.scenes.values():
        found = made.actions(scene)
        assert found.values == pytest.approx(np.array([[-0.1, 0.25, 0.5, 1.0], [-0.2, 0.0, 1.0, 0.0]]), abs=1e-6)
        assert found.source == "recorded" and scene.fps == pytest.approx(4.0)


def test_a_meta_without_a_command_is_named(tmp_path: Path) -> None:
    write_route(tmp_path, "a", [(0.0, 0.0, False, 1.0), (float("nan"), 0.0, False, 1.0)])
    source = open_source(FolderTree(tmp_path), WorldKeys.of(data_keys_of({})))
    (scene,) = source.scenes.values()
    with pytest.raises(BadData, match=r"data/Accident/a/metas/0001\.pkl: steer: found nan, expected a finite number"):
        source.actions(scene)


def test_a_real_nuscenes_keyframe_is_read_and_left_out_as_one_picture() -> None:
    root = shared_dir() / "realdata/nuscenes/nuscenes_format_onesample"
    if not root.is_dir():
        pytest.skip("the real keyframe is not there")
    for camera in ("CAM_FRONT", "CAM_BACK_LEFT"):
        source = open_source(FolderTree(root), WorldKeys.of(data_keys_of({"data": {"camera": camera}})))
        assert [(v.route, v.reason) for v in source.verdicts] == [("train/scene-0061", "one_picture")]


def test_the_kits_scenes_without_messages_and_the_official_lists_are_known() -> None:
    assert [can_file(f"scene-{n:04d}") for n in (161, 168, 170, 314, 419)] == [""] * 5
    assert can_file("scene-0169") == "can_bus/scene-0169_vehicle_monitor.json"
    mini = {name: official_split(name, "v1.0-mini") for name in ("scene-0061", "scene-0103", "scene-0001", "mine")}
    assert mini == {"scene-0061": "train", "scene-0103": "val", "scene-0001": "", "mine": ""}
    full = [official_split(f"scene-{n:04d}", "v1.0-trainval") for n in (1, 3, 1073, 1110, 1111)]
    assert full == ["train", "val", "val", "train", ""]


@pytest.mark.parametrize(("scenes", "share", "validating"), [(10, 0.2, 2), (2, 0.2, 1), (1, 0.2, 0), (5, 0.0, 0)])
def test_a_seeded_split_keeps_scenes_whole_and_something_to_train(scenes: int, share: float, validating: int) -> None:
    names = [f"s{n}" for n in range(scenes)]
    splits = seeded_splits(names, share, 3)
    assert sorted(splits) == sorted(names) and list(splits.values()).count("val") == validating
    assert splits == seeded_splits(names[::-1], share, 3)


def test_poses_stand_in_where_there_are_no_messages_and_say_so(example: Path) -> None:
    source = open_source(FolderTree(example), WorldKeys.of(data_keys_of({"data": {"version": ""}})))
    found = {scene.name: source.actions(scene).source for scene in source.scenes.values()}
    assert found.pop("scene-0012") == "poses" and set(found.values()) == {"can"}
