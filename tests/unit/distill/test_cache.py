"""From a raw tree to batches: what a cache of clips holds, who may make it, and what training reads of it."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity
from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import build_and_publish
from lead_trainer import building
from lead_trainer.contract.raw_data import SampleKey
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.engine.samples.dataset import Dataset
from lead_trainer.engine.samples.stage_samples import limited
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.distill.tree import DrawnClips, write_example_tree
from lead_trainer.recipes.distill.action_stats import STATS, action_counts, action_facts
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.config_values import load_config
from lead_trainer.recipes.distill.dataset import ClipSamples
from lead_trainer.recipes.distill.ingest.ego_history import Motion, read_motion
from lead_trainer.recipes.distill.ingest.label_files import (
    History,
    history_arrays,
    label_arrays,
    read_histories,
    read_labels,
)
from lead_trainer.recipes.distill.ingest.npz import write_npz
from lead_trainer.recipes.distill.recipe import RECIPE

SIDE = 32
LABELS = "teacher_labels/train_labels.npz"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    write_example_tree(folder, train=6, val=3, resolution=SIDE)
    return folder


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root, tmp_path / "tree"))


def job_of(root: Path, *, index: int, pods: int, **config: Any) -> BuildJob:
    return BuildJob(
        owner=OwnerIdentity(namespace="local", name="clips", uid="uid"),
        generation=1,
        attempt=1,
        index=index,
        parallelism=pods,
        recipe="distill",
        source=FolderSource(path=str(root)),
        collections=[],
        config={"resolution": SIDE, **config},
    )


def build(root: Path, store: FolderStore, *, pods: int = 1, **config: Any) -> CacheReader:
    jobs = [job_of(root, index=index, pods=pods, **config) for index in range(pods)]
    records = [
        build_and_publish(job, store, FolderTree(root), RECIPE, lambda record: None, part_bytes=15_000) for job in jobs
    ]
    return CacheReader(store, records[-1].digest)


def settings(**values: Any) -> DistillConfig:
    return load_config({"model": "reasoning", "resolution": SIDE, **values}, "tiny")


def test_a_sample_is_what_the_tree_says(root: Path, tmp_path: Path) -> None:
    cache = build(root, FolderStore(tmp_path / "store"))
    samples = ClipSamples(settings(), cache, "train")
    labels = read_labels((root / LABELS).read_bytes(), LABELS)
    assert sorted(samples.epoch_draw(0).tolist()) == list(range(6)) and len(ClipSamples(settings(), cache, "val")) == 3
    for index in range(6):
        sample = samples.load(index, epoch=4)
        clip = next(clip for clip in labels if f"train/{clip.clip_id}@{clip.t0_us}" == samples.name(index))
        label, drawn = labels[clip], DrawnClips({}, 0).frames("train", 0, clip, SIDE).pictures
        np.testing.assert_array_equal(sample["target_xy"], label.xyz[:, :2])
        np.testing.assert_array_equal(sample["embedding"], label.embedding)
        np.testing.assert_array_equal(sample["history"][-1], [0, 0, 0, 1])
        assert sample["frames"].shape == (4, 4, 3, SIDE, SIDE)
        error = np.abs(sample["frames"].transpose(0, 1, 3, 4, 2).astype(int) - drawn)
        assert error.mean() < 6.0, "JPEG of quality 95"
        number = int(cache.rows("train").sample[index])
        assert bytes(cache.fields(number)["reasoning"]).decode() == label.text
    batch = RECIPE.collate([samples.load(index, 0) for index in range(3)])
    assert batch["frames"].shape == (3, 4, 4, 3, SIDE, SIDE) and batch["embedding"].shape == (3, 384)


def test_a_cache_states_the_actions_of_all_its_training_clips_and_runs_read_no_record_for_them(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = build(root, FolderStore(tmp_path / "store"))
    blocks = [unpack_arrays(cache.fields(int(number))["arrays"], compressed=False)
              for number in cache.rows("train").sample]  # fmt: skip
    actions = np.stack([block["actions"] for block in blocks]).astype(np.float64)
    whole = action_facts(action_counts(actions, np.array([block["speed"][0] for block in blocks], np.float64)))
    assert cache.facts == whole and len(blocks) == 6
    np.testing.assert_allclose(whole["action_mean"][0], actions[..., 0].mean(), atol=0.05)

    def refuse(sample: int) -> None:
        raise AssertionError(f"record {sample} was read")

    monkeypatch.setattr(cache, "fields", refuse)
    stats = RECIPE.facts(settings(), {"local": cache})[STATS]
    np.testing.assert_allclose(stats, [whole["action_mean"], whole["action_spread"]], rtol=1e-6)


@pytest.mark.parametrize(
    "facts", [{}, {"action_mean": [0.0], "action_spread": [1.0]}, {"action_mean": [0, 0], "action_spread": [1.0, 0.0]}]
)
def test_a_cache_without_facts_of_its_actions_is_refused_by_name(
    root: Path, tmp_path: Path, facts: dict[str, list[float]]
) -> None:
    cache = build(root, FolderStore(tmp_path / "store"))
    cache.manifest = cache.manifest.model_copy(update={"facts": facts})
    with pytest.raises(
        BadData,
        match=f"cache {cache.digest[:12]}, which states no mean and spread of actions; .* build the cache again",
    ):
        RECIPE.facts(settings(), {"local": cache})


def test_d_50_pods_share_a_build_and_make_the_same_cache_as_one(root: Path, tmp_path: Path) -> None:
    stores = [FolderStore(tmp_path / "one"), FolderStore(tmp_path / "three")]
    caches = [build(root, store, pods=pods) for store, pods in zip(stores, (1, 3), strict=True)]
    assert caches[0].manifest == caches[1].manifest and len(caches[0].manifest.shards) > 2


def test_d_50_frames_and_labels_may_be_made_by_the_build_itself(copy: Path, tmp_path: Path) -> None:
    """The scripted teacher in the pods gives what its files would have said."""
    store = FolderStore(tmp_path / "store")
    by_files = build(copy, store)
    shutil.rmtree(copy / "teacher_labels")
    by_teacher = build(copy, store, teacher="scripted")
    assert by_files.digest != by_teacher.digest
    for split in ("train", "val"):
        for one, other in zip(by_files.rows(split).sample, by_teacher.rows(split).sample, strict=True):
            blocks = [unpack_arrays(c.fields(int(n))["arrays"], compressed=False)
                      for c, n in ((by_files, one), (by_teacher, other))]  # fmt: skip
            assert blocks[0].keys() == blocks[1].keys()
            for name, values in blocks[0].items():
                np.testing.assert_array_equal(values, blocks[1][name], err_msg=name)


def test_d_08_unmerged_shards_serve_a_build_as_they_are(copy: Path, tmp_path: Path) -> None:
    whole = build(copy, FolderStore(tmp_path / "whole"))
    rows = list(read_labels((copy / LABELS).read_bytes(), LABELS).items())
    (copy / LABELS).unlink()
    for shard in (0, 1):
        path = copy / f"teacher_labels/train_labels_shard{shard}of2.npz"
        write_npz(path, label_arrays(dict(rows[shard::2])))
    sharded = build(copy, FolderStore(tmp_path / "sharded"))
    for number in range(sharded.manifest.samples):
        assert bytes(sharded.fields(number)["arrays"]) == bytes(whole.fields(number)["arrays"])
    path.unlink()
    with pytest.raises(BadData, match=r"shard .*shard1of2\.npz is missing, 1 of 2 are there"):
        build(copy, FolderStore(tmp_path / "lacking"))


def test_files_beside_the_data_of_a_folder_are_no_part_of_its_cache(copy: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    job = job_of(copy, index=0, pods=1)
    before = building.build(job, store, lambda record: None).digest
    (copy / "train.log").write_text("epoch 1")
    (copy / "runs").mkdir()
    (copy / "runs/config.json").write_text("{}")
    assert building.build(job, store, lambda record: None).digest == before
    (copy / "egomotion/other.npz").write_bytes(b"")
    assert building.build(job, store, lambda record: None).digest != before


def test_a_shard_that_is_still_labelled_is_named_as_unfinished(copy: Path, tmp_path: Path) -> None:
    (copy / LABELS).rename(copy / "teacher_labels/train_labels_shard0of2.npz")
    (copy / "teacher_labels/train_labels_shard1of2.partial.npz").write_bytes(b"half")
    with pytest.raises(BadData, match=r"shard .*shard1of2\.npz is unfinished, 1 of 2 are there"):
        build(copy, FolderStore(tmp_path / "store"))


def test_d_48_useless_clips_are_left_out_and_told(copy: Path, tmp_path: Path) -> None:
    labels = read_labels((copy / LABELS).read_bytes(), LABELS)
    clips = list(labels)
    broken = labels[clips[0]]
    xyz = broken.xyz.copy()
    xyz[2] = np.nan
    labels[clips[0]] = type(broken)(xyz, broken.rotations, broken.text, broken.embedding)
    del labels[clips[1]]
    write_npz(copy / LABELS, label_arrays(labels))
    (copy / "extracted_frames/train_failed.txt").write_text("2 train-0-00002 its video ends in the middle\n")
    cache = build(copy, FolderStore(tmp_path / "store"))
    assert cache.manifest.routes.reasons == {"failed_before": 1, "label_not_finite": 1, "no_label": 1}
    assert len(cache.rows("train").sample) == 3


def spoiled_histories(root: Path, teacher: str) -> None:
    """Spoils the ego histories of four clips of six; of a scripted teacher's tree, whose labels nobody reads, too."""
    path = root / "teacher_labels/train_ego_history.npz"
    histories = read_histories(path.read_bytes(), "x")
    for number, clip in enumerate(list(histories)[:4]):
        xyz, rotations = histories[clip].xyz.copy(), histories[clip].rotations.copy()
        match number:
            case 0:
                xyz[3, 0] = np.nan
            case 1:
                xyz[5] += 60.0
            case 2:
                rotations[4] *= 1.1
            case _:
                xyz += 1.0
        histories[clip] = History(xyz, rotations)
    write_npz(path, history_arrays(histories))
    if teacher != "files":
        (root / LABELS).unlink()


@pytest.mark.parametrize("teacher", ["files", "scripted"])
def test_d_48_an_ego_history_that_is_spoiled_leaves_its_clip_out_with_the_reason(
    copy: Path, tmp_path: Path, teacher: str
) -> None:
    spoiled_histories(copy, teacher)
    cache = build(copy, FolderStore(tmp_path / "store"), teacher=teacher)
    kinds = ("history_bad_rotation", "history_jumps", "history_not_at_t0", "history_not_finite")
    assert cache.manifest.routes.reasons == dict.fromkeys(kinds, 1)
    assert len(cache.rows("train").sample) == 2


def test_d_48_a_motion_that_is_spoiled_leaves_its_clip_out_with_the_reason(copy: Path, tmp_path: Path) -> None:
    shutil.rmtree(copy / "teacher_labels")
    motions = sorted((copy / "egomotion").glob("train-*.npz"))
    moved = read_motion(motions[0].read_bytes(), "x")
    write_npz(motions[0], Motion(moved.timestamps_us, moved.xyz * np.nan, moved.quaternions).arrays())
    write_npz(motions[1], Motion(moved.timestamps_us[:9], moved.xyz[:9], moved.quaternions[:9]).arrays())
    cache = build(copy, FolderStore(tmp_path / "store"), teacher="scripted")
    assert cache.manifest.routes.reasons == {"history_not_finite": 1, "no_ego_history": 1}


@pytest.mark.parametrize(
    ("split", "told"), [("train", "training split holds no"), ("val", "validation split holds no")]
)
def test_a_split_without_a_usable_clip_is_named_before_training(
    copy: Path, tmp_path: Path, split: str, told: str
) -> None:
    write_npz(copy / f"teacher_labels/{split}_labels.npz", label_arrays({}))
    cache, config = build(copy, FolderStore(tmp_path / "store")), settings()
    with pytest.raises(BadData, match=told):
        limited(RECIPE, config, Dataset(RECIPE.samples(config, {"local": cache}), None, {"local": cache}))


def test_d_11_a_missing_history_file_ends_a_build_with_its_name(copy: Path, tmp_path: Path) -> None:
    (copy / "teacher_labels/val_ego_history.npz").unlink()
    with pytest.raises(BadData, match=r"no file teacher_labels/val_ego_history\.npz: make it with python -m"):
        build(copy, FolderStore(tmp_path / "store"))


def test_d_12_offline_takes_labels_of_the_cache_and_no_picture(root: Path, tmp_path: Path) -> None:
    cache = build(root, FolderStore(tmp_path / "store"))
    real, dummy = (ClipSamples(settings(offline=offline), cache, "train").load(0, 0) for offline in (False, True))
    assert not np.array_equal(real["frames"], dummy["frames"])
    assert all(np.array_equal(real[key], dummy[key]) for key in real if key != "frames")
    with pytest.raises(BadConfig, match="set offline=true"):
        RECIPE.samples(settings(), {})


def test_d_49_a_cache_of_another_size_is_refused(root: Path, tmp_path: Path) -> None:
    cache = build(root, FolderStore(tmp_path / "store"))
    with pytest.raises(BadConfig, match="resolution: found 64, the cache has 32"):
        ClipSamples(settings(resolution=64), cache, "train")
    with pytest.raises(BadConfig, match="pictures are never made larger"):
        build(root, FolderStore(tmp_path / "larger"), resolution=64)


def test_frames_without_an_index_are_read_one_by_one(copy: Path, tmp_path: Path) -> None:
    keys = RECIPE.required_preparation.config_keys({"resolution": SIDE})
    listed = RECIPE.required_preparation.scan(FolderTree(copy), keys, ["train"]).samples
    (copy / "extracted_frames/train_clips.npz").unlink()
    assert RECIPE.required_preparation.scan(FolderTree(copy), keys, ["train"]).samples == listed
    assert listed[0] == SampleKey("train/train-0-00000@5100000", 0)
