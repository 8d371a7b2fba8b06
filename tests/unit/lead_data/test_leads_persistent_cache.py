"""A tree of metas beside LEAD's persistent cache is built from as the whole tree was; other caches are named."""

import io
import json
import lzma
import pickle
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_operator.bucket.source_watch import list_source
from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_testing import shared_dir
from lead_testing.built_caches import build_and_publish, whole_build
from lead_testing.leads_cache import (
    FOLDERS,
    VIEWS,
    CompressedSensorData,
    entry_bytes,
    entry_of,
    leads_depth,
    png,
    write_cache,
)
from lead_testing.logged import Logged
from lead_trainer.building import RawTree
from lead_trainer.cli import main
from lead_trainer.contract.raw_data import SampleKey
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.digest import listing_sha256
from lead_trainer.data.source_tree import FolderTree, StoreTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.ingest.persistent_cache import CachedView
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.prepare_cached import cached_fields
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.recipe import RECIPE

ROUTE = "data/SignalizedJunctionLeftTurn/999_Rep-1_Town03_301_route0_11_04_01_11_59"
CACHED = f"cache/{ROUTE.removeprefix('data/')}/{FOLDERS}"
COLLECTIONS = ["full_pretrain", "full_posttrain"]
PREPARATION = LeadPreparation()


@cache
def golden() -> FolderTree:
    return FolderTree(shared_dir() / "golden/lead_data/carla_leaderboard2")


@cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared_dir() / "golden/lead_data/cache.json").read_text())["samples"]
    return found


@cache
def measured() -> Mapping[str, np.ndarray]:
    with np.load(shared_dir() / "golden/lead_data/cache_arrays.npz") as arrays:
        return dict(arrays)


def planes_of(record: Mapping[str, Any], view: str) -> dict[str, np.ndarray]:
    return dict(unpack_arrays(memoryview(record[f"{view}/planes"]), compressed=True))


class Entries:
    """A tree of entries in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def files(self) -> Any:
        raise NotImplementedError

    def read(self, path: str) -> bytes:
        return self._files[path]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recorded route with all of its files."""
    root = tmp_path_factory.mktemp("whole")
    shutil.copytree(shared_dir() / "golden/lead_data/carla_leaderboard2" / ROUTE, root / ROUTE)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


@pytest.fixture(scope="module")
def left(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What LEAD's guide says may be left of it: metas, and the cache of the frames that LEAD trains on."""
    root, tree = tmp_path_factory.mktemp("left"), FolderTree(whole)
    shutil.copytree(whole / ROUTE / "metas", root / ROUTE / "metas")
    scan = PREPARATION.scan(tree, PREPARATION.config_keys({}), ["full_pretrain"])
    write_cache(tree, root, list(scan.samples))
    return root


def build(root: Path, store: FolderStore, config: Mapping[str, Any]) -> CacheReader:
    job = whole_build("lead", COLLECTIONS, config)
    done = build_and_publish(job, store, RawTree(FolderTree(root)), RECIPE, lambda record: None)
    return CacheReader(store, done.digest)


def scanned(root: Path, config: Mapping[str, Any]) -> Any:
    return PREPARATION.scan(RawTree(FolderTree(root)), PREPARATION.config_keys(config), COLLECTIONS)


@pytest.mark.parametrize("frame", sorted(recorded()))
def test_what_lead_itself_kept_of_a_frame_gives_the_record_of_its_files(frame: str) -> None:
    """Planes and boxes are those that LEAD's code computed (cache_arrays.npz), depth as LEAD keeps it."""
    config = PREPARATION.config_keys({})
    keys, files, key = PreparationKeys.parse(config), {}, None
    for view, suffix in VIEWS.items():
        path = recorded()[frame][view]["path"]
        parts = path.split("/")
        assert "/".join(parts[3:-2]) == FOLDERS
        key = SampleKey(f"data/{parts[1]}/{parts[2]}", int(parts[-1].removesuffix(".pkl")))
        held = {name: measured()[f"{frame}/{view}/{name}"] for name in ("bboxes", "bev_occupancy")}
        held |= {name: measured()[f"{frame}/{view}/{long}"] for name, long in (
            ("bev_semantic", "bev_semantic_256"), ("lidar_bev", "lidar_bev_u16"), ("depth", "depth_u8"))}  # fmt: skip
        files[path] = entry_bytes(entry_of(golden(), key.route, suffix, key.frame, **held))
    assert key is not None
    expected = PREPARATION.record(golden(), config, key)
    found = cached_fields(Entries(files), f"cache/{key.route.removeprefix('data/')}/{FOLDERS}", key.frame, keys)
    assert list(found) == list(expected)
    for field in expected:
        if not field.endswith("/planes"):
            assert found[field] == expected[field], field
    for view in VIEWS:
        ours, theirs = planes_of(found, view), planes_of(expected, view)
        np.testing.assert_array_equal(ours["depth"], measured()[f"{frame}/{view}/depth_u8"])
        np.testing.assert_array_equal(ours.pop("depth"), leads_depth(theirs.pop("depth")))
        assert list(ours) == list(theirs)
        for name, plane in theirs.items():
            np.testing.assert_array_equal(ours[name], plane)
            assert ours[name].dtype == plane.dtype


def test_a_build_from_metas_and_leads_cache_is_the_build_from_the_whole_tree(
    whole: Path, left: Path, tmp_path: Path
) -> None:
    """Every sample byte for byte, every row of every collection, every meta; depth but for what LEAD rounds."""
    for config in ({"use_depth": False}, {}):
        store = FolderStore(tmp_path / f"store{len(config)}")
        before, after = build(whole, store, config), build(left, store, config)
        assert before.manifest.digest != after.manifest.digest  # other sources
        assert before.manifest.samples == after.manifest.samples > 20
        for name in COLLECTIONS:
            rows, again = before.rows(name), after.rows(name)
            np.testing.assert_array_equal(rows.frame, again.frame)
            np.testing.assert_array_equal(rows.bucket, again.bucket)
            assert [str(rows.route[n]) for n in range(len(rows.frame))] == [ROUTE] * len(rows.frame)
        for sample in range(before.manifest.samples):
            expected, found = before.fields(sample), after.fields(sample)
            assert list(expected) == list(found)
            for field, value in expected.items():
                if config or not field.endswith("/planes"):
                    assert bytes(found[field]) == bytes(value), (sample, field)
        assert before.manifest.routes.kept == after.manifest.routes.kept == 1
        assert [item.sha256 for item in before.manifest.metas] == [item.sha256 for item in after.manifest.metas]
        if config:  # records lie in an order of the digest's
            sizes = [[shard.object.size for shard in cache.manifest.shards] for cache in (before, after)]
            assert sizes[0] == sizes[1]


def test_entries_count_in_the_digest_where_pictures_are_gone_and_nowhere_else(
    whole: Path, left: Path, tmp_path: Path
) -> None:
    def listed(root: Path) -> list[str]:
        return [file.path for file in RawTree(FolderTree(root)).files()]

    both = tmp_path / "both"
    shutil.copytree(whole, both)
    shutil.copytree(left / "cache", both / "cache")
    assert listed(both) == listed(whole)
    assert [path for path in listed(left) if path.startswith("cache/")]
    (left_too := tmp_path / "left_too").mkdir()
    shutil.copytree(left, left_too, dirs_exist_ok=True)
    own = left_too / "cache/caches/local/0123/shards/a.shard"  # of `lead cache`, which builds below the same folder
    own.parent.mkdir(parents=True)
    own.write_bytes(b"")
    assert listed(left_too) == listed(left)


@pytest.mark.parametrize("kind", ["whole", "left", "both"])
def test_operator_and_build_count_the_same_files(whole: Path, left: Path, tmp_path: Path, kind: str) -> None:
    store, roots = FolderStore(tmp_path), {"whole": [whole], "left": [left], "both": [left, whole]}[kind]
    for root in roots:
        for file in root.rglob("*"):
            if file.is_file():
                store.create(f"datasets/towns/{file.relative_to(root)}", file.read_bytes())
    files = RawTree(StoreTree(store, "datasets/towns")).files()
    listing = list_source(store, "datasets/towns")
    assert listing is not None and (listing.sha256, listing.files) == (listing_sha256(files), len(files))


def test_a_missing_entry_leaves_its_route_out_and_is_named_with_its_frame(
    left: Path, tmp_path: Path, logged: Logged
) -> None:
    shutil.copytree(left, tmp_path / "gap")
    (tmp_path / "gap" / CACHED / "perturbated/0009.pkl").unlink()
    scan = scanned(tmp_path / "gap", {})
    assert [(verdict.reason, verdict.kept) for verdict in scan.verdicts] == [("missing_files", False)]
    assert f"route {ROUTE} is left out: file {CACHED}/perturbated/0009.pkl is missing" in str(logged)
    assert [v.reason for v in scanned(tmp_path / "gap", {"use_sensor_perburtation": False}).verdicts] == ["kept"]


def test_an_entry_that_goes_away_while_it_is_built_is_named_with_route_and_frame(left: Path, tmp_path: Path) -> None:
    shutil.copytree(left, tmp_path / "gone")
    tree, config = RawTree(FolderTree(tmp_path / "gone")), PREPARATION.config_keys({})
    tree.files()
    (tmp_path / "gone" / CACHED / "normal/0009.pkl").unlink()
    with pytest.raises(BadData, match=r"999_Rep-1_Town03_301.*/normal/0009\.pkl: .*restore the file, or remove the"):
        PREPARATION.record(tree, config, SampleKey(ROUTE, 9))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"training_used_lidar_steps": 5}, r"training_used_lidar_steps: found 5, but cache/.* was made with 10"),
        ({"max_y_meter": 24, "min_y_meter": -24}, r"min_y_meter: found -24, but cache/.* was made with -40"),
        ({"pixels_per_meter": 2.0}, r"pixels_per_meter: found 2.0, .* taken as made with 4.0; restore"),
        ({"vehicle_min_num_lidar_points": 3}, r"vehicle_min_num_lidar_points: found 3, .* made with 1; restore"),
    ],
)
def test_keys_that_lead_did_not_make_its_cache_with_are_refused(left: Path, config: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        scanned(left, config)


def test_the_command_builds_from_it(left: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(left, tmp_path / "tree")
    for _ in range(2):  # the second finds what the first has built below the same folder
        assert main(["cache", f"carla_root={tmp_path / 'tree'}", "--collection", "full_posttrain"]) == 0
    first, second = capsys.readouterr().out.split()
    assert first == second
    assert main(["buckets", f"carla_root={tmp_path / 'tree'}"]) == 0
    assert "kept" in capsys.readouterr().out
    entry = tmp_path / "tree" / CACHED / "normal/0009.pkl"
    entry.write_bytes(entry.read_bytes()[:-9])
    assert main(["cache", f"carla_root={tmp_path / 'tree'}", "--collection", "full_posttrain"]) == ExitCode.BAD_DATA
    assert "normal/0009.pkl is not a valid xz pickle" in capsys.readouterr().err


def spoiled(**changes: Any) -> bytes:
    return entry_bytes(CompressedSensorData(**(vars(sound()) | changes)))


@cache
def sound() -> CompressedSensorData:
    zeros: dict[str, Any] = {
        "lidar_bev": np.zeros((320, 384), np.uint16),
        "bev_semantic": np.zeros((256, 256), np.uint8),
    }
    zeros |= {"bev_occupancy": np.zeros((1024, 1024), np.uint8), "depth": np.zeros((96, 288), np.uint8)}
    return entry_of(golden(), ROUTE, "", 9, **zeros, bboxes=np.zeros((90, 9), np.float32))


def png_of(value: int, *shape: int, kind: Any = np.uint8) -> np.ndarray:
    return png(np.full(shape, value, kind))


def npz_of(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


SPOILED: dict[str, dict[str, Any]] = {
    "no picture": {"image": None},
    "a picture of text": {"image": "text"},
    "a picture of zeros": {"image": bytes(1000)},
    "objects for boxes": {"bboxes": [1, 2]},
    "boxes of another shape": {"bboxes": np.zeros((9, 9), np.float32)},
    "a class that is none": {"bboxes": np.pad(np.full((1, 9), 8, np.float32), ((0, 89), (0, 0)))},
    "a box off the grid": {"bboxes": np.pad(np.array([[400] + [0] * 8], np.float32), ((0, 89), (0, 0)))},
    "a box at no place": {"bboxes": np.full((90, 9), np.nan, np.float32)},
    "a sweep of 8 bit": {"lidar_bev": png_of(0, 320, 384)},
    "a sweep of another window": {"lidar_bev": png_of(0, 9, 9, kind=np.uint16)},
    "a map class that is none": {"bev_semantic": png_of(9, 256, 256)},
    "a map that is not square": {"bev_semantic": png_of(0, 256, 128)},
    "an occupancy that is none": {"bev_occupancy": png_of(10, 1024, 1024)},
    "an occupancy of a window": {"bev_occupancy": png_of(0, 320, 384)},
    "no depth": {"depth": None},
    "two radars": {"radars": (b"PK", b"PK")},
    "radars that are no archives": {"radars": (b"PK nonsense",) * 4},
    "radars of objects": {"radars": (npz_of(arr=np.array([{}], object)),) * 4},
    "radars of other columns": {"radars": (npz_of(arr=np.zeros((3, 5))),) * 4},
    "radars without points": {"radars": (npz_of(points=np.zeros((3, 4))),) * 4},
}


@pytest.mark.parametrize("what", SPOILED)
def test_an_entry_that_holds_something_else_is_named(what: str) -> None:
    keys = PreparationKeys.parse(PREPARATION.config_keys({"use_sensor_perburtation": False}))
    path = f"{CACHED}/normal/0009.pkl"
    assert cached_fields(Entries({path: spoiled()}), CACHED, 9, keys)
    with pytest.raises(BadData, match=r"file cache/.*/0009\.pkl"):
        cached_fields(Entries({path: spoiled(**SPOILED[what])}), CACHED, 9, keys)


def test_a_small_entry_whose_radars_unpack_to_much_is_refused() -> None:
    """660 bytes became a gigabyte. Audit: S11"""
    packed = io.BytesIO()
    np.savez_compressed(packed, arr=np.zeros((2**20 * 2 + 1, 4)))
    path = f"{CACHED}/normal/0009.pkl"
    keys = PreparationKeys.parse(PREPARATION.config_keys({"use_sensor_perburtation": False}))
    with pytest.raises(
        BadData, match=r"file cache/.*/0009\.pkl holds no valid radars: its arrays have more than 67108864"
    ):
        cached_fields(Entries({path: spoiled(radars=(packed.getvalue(),) * 4)}), CACHED, 9, keys)


class Opens:
    """Names another class than LEAD's, with its fields."""

    def __reduce__(self) -> Any:
        return (open, ("/etc/passwd",))


def _streams() -> dict[str, bytes]:
    plain = dict(vars(sound()))
    object_ = b"\x80\x04clead.training.data_loader.carla_dataset_utils\nCompressedSensorData\n"
    return {
        "a dict of its fields beside a call": pickle.dumps({**plain, "image": Opens()}),
        "a list": pickle.dumps([1]),
        "an object without its state": object_ + b")\x81.",
        "an object made of something": object_ + b"K\x01\x85\x81}b.",
        "an object of other fields": object_ + b")\x81}b.",
        "the class itself": object_ + b".",
        "its state twice": object_ + b")\x81}b}b.",
        "a state that is no dict": object_ + b")\x81K\x01b.",
        "another class": b"\x80\x04clead.training.data_loader.carla_dataset_utils\nPersistentCache\n)\x81.",
        "another module": b"\x80\x04cos\nCompressedSensorData\n)\x81.",
        "a class of Python": b"\x80\x04cbuiltins\nobject\n)\x81.",
    }


@pytest.mark.parametrize("what", _streams())
def test_an_entry_runs_nothing_and_is_nothing_but_leads_object(what: str) -> None:
    """Audit: B1

    Audit: S10
    """
    path = f"{CACHED}/normal/0009.pkl"
    with pytest.raises(BadData, match=r"file cache/.*/0009\.pkl is "):
        CachedView.read(lzma.compress(_streams()[what]), path)
