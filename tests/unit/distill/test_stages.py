"""The data stages: files that anybody can read, calls that may be repeated, faults that are named."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.distill.tree import DrawnClips, write_example_tree
from lead_trainer.recipes.distill.drawn_drives import T0_US, drive
from lead_trainer.recipes.distill.ingest.ego_history import Motion, ego_history
from lead_trainer.recipes.distill.ingest.frame_files import Clip, Frames, read_frames
from lead_trainer.recipes.distill.ingest.frame_source import ExtractedFrames, StreamedFrames
from lead_trainer.recipes.distill.ingest.label_files import (
    Label,
    label_arrays,
    label_faults,
    read_histories,
    read_labels,
)
from lead_trainer.recipes.distill.ingest.npz import write_npz
from lead_trainer.recipes.distill.ingest.teacher import Question, ScriptedTeacher, make_teacher, yaw_rotations
from lead_trainer.recipes.distill.stage_commands import main
from lead_trainer.recipes.distill.stages import (
    extract_frames,
    generate_ego_history,
    generate_teacher_labels,
    label_report,
    merge_shards,
)

SIDE = 32


class Killed(BaseException):
    """The process died here."""


class BrokenClip(DrawnClips):
    """Drawn clips, one of which cannot be read."""

    def frames(self, split: str, number: int, clip: Clip, resolution: int) -> Frames:
        if number == 1:
            raise BadData("its video ends in the middle")
        return super().frames(split, number, clip, resolution)


class MortalTeacher(ScriptedTeacher):
    """Dies at a given question."""

    def __init__(self, at: int) -> None:
        self.left = at

    def label(self, questions: Sequence[Question]) -> list[Label]:
        self.left -= len(questions)
        if self.left < 0:
            raise Killed
        return super().label(questions)


def drawn(train: int = 5, val: int = 2) -> DrawnClips:
    return DrawnClips({"train": train, "val": val}, seed=3)


def test_d_02_frames_get_five_digit_names_and_a_second_call_writes_nothing(tmp_path: Path) -> None:
    first = extract_frames(drawn(), tmp_path, "train", resolution=SIDE, num_samples=3)
    assert first.written == (0, 1, 2)
    names = sorted(path.name for path in (tmp_path / "extracted_frames/train").iterdir())
    assert names == ["sample_00000.npz", "sample_00001.npz", "sample_00002.npz"]
    again = extract_frames(drawn(), tmp_path, "train", resolution=SIDE, num_samples=3)
    assert (again.written, again.kept) == ((), (0, 1, 2))


def test_d_03_a_sample_holds_four_cameras_by_four_frames_and_no_pickled_object(tmp_path: Path) -> None:
    extract_frames(drawn(), tmp_path, "train", resolution=SIDE, num_samples=1)
    path = tmp_path / "extracted_frames/train/sample_00000.npz"
    with np.load(path, allow_pickle=False) as stored:
        assert {name: (stored[name].dtype.kind, stored[name].shape) for name in stored.files} == {
            "frames": ("u", (4, 4, SIDE, SIDE, 3)),
            "clip_id": ("U", ()),
            "t0_us": ("i", ()),
            "timestamps": ("i", (4, 4)),
        }
        assert (stored["timestamps"] - T0_US).tolist() == [[-300_000, -200_000, -100_000, 0]] * 4
    spoiled = tmp_path / "spoiled.npz"
    write_npz(spoiled, {**read_frames(path.read_bytes(), "x").arrays(), "frames": np.zeros((4, 4, 8, 8), np.uint8)})
    with pytest.raises(BadData, match=r"spoiled.*frames is uint8 of shape \(4, 4, 8, 8\), expected u1 of 4x4xNxNx3"):
        read_frames(spoiled.read_bytes(), str(spoiled))
    np.savez(tmp_path / "objects.npz", frames=np.array([{}], dtype=object))
    with pytest.raises(BadData, match=r"without pickled objects|lacks the array"):
        read_frames((tmp_path / "objects.npz").read_bytes(), "objects.npz")


def test_a_smaller_number_of_samples_hides_no_clip_that_is_there(tmp_path: Path) -> None:
    extract_frames(drawn(), tmp_path, "train", resolution=SIDE, num_samples=4)
    extract_frames(drawn(), tmp_path, "train", resolution=SIDE, num_samples=2)
    assert list(ExtractedFrames(FolderTree(tmp_path), "extracted_frames").clips("train")) == [0, 1, 2, 3]


def test_a_list_of_failures_keeps_what_a_later_call_does_not_judge(tmp_path: Path) -> None:
    extract_frames(BrokenClip({"train": 3}, 3), tmp_path, "train", resolution=SIDE, num_samples=0)
    listed = tmp_path / "extracted_frames/train_failed.txt"
    listed.write_text(f"{listed.read_text()}2 a person says so\n")
    extract_frames(drawn(), tmp_path, "train", resolution=SIDE, num_samples=1)
    assert [line.split()[0] for line in listed.read_text().splitlines()] == ["1", "2"]
    extract_frames(drawn(train=3), tmp_path, "train", resolution=SIDE, num_samples=0)
    assert listed.read_text() == "2 a person says so\n"
    assert list(ExtractedFrames(FolderTree(tmp_path), "extracted_frames").clips("train")) == [0, 1, 2]


def test_an_extracted_tree_has_the_motion_that_the_next_stages_read(tmp_path: Path) -> None:
    for split in ("train", "val"):
        extract_frames(drawn(), tmp_path, split, resolution=SIDE, num_samples=0)
    root = ["--root", str(tmp_path)]
    main(["generate_teacher_labels", *root, "--split", "train", "--teacher", "scripted"])
    main(["generate_ego_history", *root, "--split", "all"])
    path = tmp_path / "teacher_labels/train_ego_history.npz"
    found = read_histories(path.read_bytes(), str(path))
    assert len(found) == 5 and all(history.xyz[0].any() for history in found.values())


def test_frames_that_were_extracted_without_motion_get_it_by_a_second_call(tmp_path: Path) -> None:
    extract_frames(drawn(), tmp_path, "val", resolution=SIDE, num_samples=0)
    motion = next((tmp_path / "egomotion").iterdir())
    whole = motion.read_bytes()
    motion.unlink()
    again = extract_frames(drawn(), tmp_path, "val", resolution=SIDE, num_samples=0)
    assert (again.written, again.kept) in {((0,), (1,)), ((1,), (0,))} and motion.read_bytes() == whole


def test_clips_that_came_later_are_labelled_and_the_others_not_again(tmp_path: Path) -> None:
    few, many = drawn(train=4), drawn(train=12)
    generate_teacher_labels(ScriptedTeacher(), tmp_path, "train", source=few, resolution=SIDE)
    path = generate_teacher_labels(MortalTeacher(8), tmp_path, "train", source=many, resolution=SIDE)
    whole = generate_teacher_labels(ScriptedTeacher(), tmp_path / "whole", "train", source=many, resolution=SIDE)
    assert len(read_labels(path.read_bytes(), "x")) == 12 and path.read_bytes() == whole.read_bytes()


def test_d_04_a_broken_clip_is_listed_and_the_others_are_done(tmp_path: Path) -> None:
    done = extract_frames(BrokenClip({"train": 3}, 3), tmp_path, "train", resolution=SIDE, num_samples=0)
    assert (done.written, list(done.failed)) == ((0, 2), [1])
    listed = (tmp_path / "extracted_frames/train_failed.txt").read_text()
    assert listed == "1 train-3-00001 its video ends in the middle\n"
    assert list(ExtractedFrames(FolderTree(tmp_path), "extracted_frames").clips("train")) == [0, 2]


def test_d_05_the_real_teacher_is_imported_on_demand_and_its_absence_is_one_sentence() -> None:
    assert isinstance(make_teacher("scripted"), ScriptedTeacher)
    with pytest.raises(BadConfig, match=r"teacher: found 'alpamayo_r1', but .* is not installed"):
        make_teacher("alpamayo_r1")


def a_package(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    """Puts stand-ins for the teacher's packages where Python looks for modules; they note what is called."""

    def interface() -> str:
        calls.append("open")
        return "interface"

    def load(clip_id: str, t0_us: int, avdi: str) -> dict[str, torch.Tensor]:
        calls.append(f"load {clip_id} {avdi}")
        return {"image_frames": torch.zeros(4, 4, 3, 8, 8), "ego_history_xyz": torch.zeros(1, 1, 16, 3),
                "ego_history_rot": torch.zeros(1, 1, 16, 3, 3)}  # fmt: skip

    class Model:
        @classmethod
        def from_pretrained(cls, name: str, dtype: torch.dtype) -> "Model":
            return cls()

        def to(self, device: str) -> "Model":
            return self

        tokenizer = None

        def sample_trajectories_from_data_with_vlm_rollout(self, data: dict[str, Any], **keys: Any) -> Any:
            count = len(data["ego_history_xyz"])
            calls.append(f"rollout {count} {len(data['tokenized_data'])}")
            xyz = torch.arange(count).float()[:, None, None, None, None].expand(count, 1, 1, 64, 3)
            texts = np.array([f"text {number}" for number in range(count)]).reshape(count, 1, 1)
            return xyz, torch.eye(3).expand(count, 1, 1, 64, 3, 3), {"cot": texts}

    class Processor:
        def apply_chat_template(self, messages: list[Any], **keys: Any) -> list[Any]:
            return messages

    class Embedder:
        def __init__(self, name: str) -> None: ...

        def encode(self, texts: list[str], normalize_embeddings: bool) -> np.ndarray:
            return np.full((len(texts), 384), 0.05)

    helper = SimpleNamespace(
        get_processor=lambda tokenizer: Processor(), create_message=lambda frames: [len(frames)],
        to_device=lambda inputs, device: inputs,
    )  # fmt: skip
    stand_ins: dict[str, Any] = {
        "physical_ai_av": SimpleNamespace(PhysicalAIAVDatasetInterface=interface),
        "alpamayo_r1": SimpleNamespace(
            helper=helper, load_physical_aiavdataset=SimpleNamespace(load_physical_aiavdataset=load)
        ),
        "alpamayo_r1.models": SimpleNamespace(),
        "alpamayo_r1.models.alpamayo_r1": SimpleNamespace(AlpamayoR1=Model),
        "sentence_transformers": SimpleNamespace(SentenceTransformer=Embedder),
    }
    for name, module in stand_ins.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


def test_d_05_the_real_teacher_labels_a_batch_at_once_and_opens_its_data_set_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()
    a_package(monkeypatch, calls)
    path = generate_teacher_labels(
        make_teacher("alpamayo_r1"), tmp_path, "train", source=drawn(train=5), resolution=SIDE, batch_size=3
    )
    assert [call for call in calls if call.startswith("rollout")] == ["rollout 3 3", "rollout 2 2"]
    assert calls.count("open") == 1 and sum(call.endswith(" interface") for call in calls) == 5
    labels = list(read_labels(path.read_bytes(), "x").values())
    assert [label.text for label in labels] == ["text 0", "text 1", "text 2", "text 0", "text 1"]
    assert [label.xyz[0, 0] for label in labels] == [0, 1, 2, 0, 1]


def test_d_06_a_killed_labelling_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    source = drawn(train=230)
    for name, teacher in (("whole", ScriptedTeacher()), ("killed", MortalTeacher(150))):
        root, saves = tmp_path / name, list[int]()
        try:
            generate_teacher_labels(teacher, root, "train", source=source, resolution=SIDE, on_save=saves.append)
        except Killed:
            assert saves == [100]
            survivor = MortalTeacher(130)  # what was saved is not asked again
            generate_teacher_labels(survivor, root, "train", source=source, resolution=SIDE)
    whole, killed = (tmp_path / name / "teacher_labels" for name in ("whole", "killed"))
    assert (whole / "train_labels.npz").read_bytes() == (killed / "train_labels.npz").read_bytes()
    assert [path.name for path in killed.iterdir()] == ["train_labels.npz"]
    with np.load(whole / "train_labels.npz", allow_pickle=False) as stored:
        assert {name: stored[name].shape for name in stored.files} == {
            "clip_ids": (230,),
            "t0_us": (230,),
            "trajectory_xyz": (230, 64, 3),
            "trajectory_rot": (230, 64, 3, 3),
            "coc_texts": (230,),
            "coc_embeddings": (230, 384),
        }


class ChoosyTeacher(ScriptedTeacher):
    """Cannot label some of the clips, by their numbers."""

    def __init__(self, *refused: int) -> None:
        self.refused, self.asked = refused, list[int]()

    def label(self, questions: Sequence[Question]) -> list[Label]:
        self.asked.append(len(questions))
        for question in questions:
            if int(question.clip.clip_id[-5:]) in self.refused:
                raise RuntimeError("its reasoning never ends")
        return super().label(questions)


def test_d_06_a_clip_that_cannot_be_labelled_is_listed_and_the_others_are_done(tmp_path: Path) -> None:
    source, whole = drawn(train=7), tmp_path / "whole"
    generate_teacher_labels(ScriptedTeacher(), whole, "train", source=source, resolution=SIDE)
    path = generate_teacher_labels(ChoosyTeacher(1, 5), tmp_path, "train", source=source, resolution=SIDE)
    labels = list(read_labels(path.read_bytes(), "x").values())
    assert [next(label_faults(label), "") for label in labels] == [
        "", "teacher_failed", "", "", "", "teacher_failed", ""]  # fmt: skip
    assert path.with_name("train_labels_failed.txt").read_text().splitlines() == [
        "1 RuntimeError: its reasoning never ends", "5 RuntimeError: its reasoning never ends"]  # fmt: skip
    again = ChoosyTeacher()
    generate_teacher_labels(again, tmp_path, "train", source=source, resolution=SIDE)
    assert again.asked == [2], "only what failed is asked for again"
    assert [file.name for file in path.parent.iterdir()] == ["train_labels.npz"]
    assert path.read_bytes() == (whole / "teacher_labels/train_labels.npz").read_bytes()


def test_d_06_shards_with_clips_that_failed_are_merged(tmp_path: Path) -> None:
    for shard in (0, 1):
        generate_teacher_labels(
            ChoosyTeacher(2), tmp_path, "train", source=drawn(train=5), resolution=SIDE, shard=shard, num_shards=2
        )
    merge_shards(tmp_path, "train", 2)
    assert label_report(tmp_path, "train") == {"valid": 4, "teacher_failed": 1}


def test_d_06_a_teacher_that_fails_clip_after_clip_ends_the_call_and_leaves_what_was_labelled(tmp_path: Path) -> None:
    teacher = ChoosyTeacher(*range(7, 40))
    with pytest.raises(RuntimeError, match="never ends"):
        generate_teacher_labels(teacher, tmp_path, "train", source=drawn(train=40), resolution=SIDE)
    labels = read_labels((tmp_path / "teacher_labels/train_labels.partial.npz").read_bytes(), "x")
    assert len([label for label in labels.values() if not list(label_faults(label))]) == 7


def test_d_07_the_history_ends_at_the_origin_and_is_exact_for_a_constant_speed(tmp_path: Path) -> None:
    times = np.arange(0, 6_000_001, 50_000)
    heading, start = 0.7, np.array([300.0, -40.0, 2.0])
    ahead = np.array([np.cos(heading), np.sin(heading), 0.0])
    quaternions = np.tile([0.0, 0.0, np.sin(heading / 2), np.cos(heading / 2)], (len(times), 1))
    motion = Motion(times, start + 8.0 * times[:, None] / 1e6 * ahead, quaternions)
    history = ego_history(motion, Clip("straight", T0_US))
    np.testing.assert_allclose(history.xyz[:, 0], 8.0 * np.arange(-15, 1) / 10, atol=1e-5)
    np.testing.assert_allclose(history.xyz[:, 1:], 0.0, atol=1e-5)
    np.testing.assert_allclose(history.rotations, np.tile(np.eye(3), (16, 1, 1)), atol=1e-6)
    generate_ego_history(drawn(), tmp_path, ("train", "val"))
    path = tmp_path / "teacher_labels/val_ego_history.npz"
    for found in read_histories(path.read_bytes(), str(path)).values():
        assert not found.xyz[-1].any()
        np.testing.assert_allclose(found.rotations[-1], np.eye(3), atol=1e-6)


def test_d_07_a_motion_that_is_too_short_is_refused_with_the_times_it_needs() -> None:
    with pytest.raises(BadData, match="its motion lasts from 0 to 3000000 µs, but the history needs 3600000"):
        ego_history(drive(0, seconds=3.0), Clip("short", T0_US))


@pytest.mark.parametrize("shards", [1, 3, 4])
def test_d_08_merged_shards_are_the_unsharded_file(tmp_path: Path, shards: int) -> None:
    source = drawn(train=10)
    whole = generate_teacher_labels(ScriptedTeacher(), tmp_path / "whole", "train", source=source, resolution=SIDE)
    if shards == 1:
        merge = whole
    else:
        for shard in range(shards):
            generate_teacher_labels(
                ScriptedTeacher(), tmp_path, "train", source=source, resolution=SIDE, shard=shard, num_shards=shards
            )
        merge = merge_shards(tmp_path, "train", shards)
    assert merge.read_bytes() == whole.read_bytes()


def test_d_08_a_missing_or_doubled_shard_is_an_error(tmp_path: Path) -> None:
    for shard in (0, 1):
        generate_teacher_labels(
            ScriptedTeacher(), tmp_path, "train", source=drawn(train=6), resolution=SIDE, shard=shard, num_shards=3
        )
    with pytest.raises(BadData, match=r"shard2of3\.npz is missing"):
        merge_shards(tmp_path, "train", 3)
    folder = tmp_path / "teacher_labels"
    (folder / "train_labels_shard2of3.npz").write_bytes((folder / "train_labels_shard1of3.npz").read_bytes())
    with pytest.raises(BadData, match=r"shard2of3.npz and in another shard"):
        merge_shards(tmp_path, "train", 3)


def sound_label() -> Label:
    xyz = np.stack([np.arange(1, 65) * 0.5, np.zeros(64), np.zeros(64)], -1).astype(np.float32)
    return Label(xyz, yaw_rotations(np.zeros(64)), "Keep the lane.", np.full(384, 0.05, np.float32))


def spoiled(fault: str) -> Label:
    label = sound_label()
    xyz, rotations = label.xyz.copy(), label.rotations.copy()
    match fault:
        case "label_not_finite":
            xyz[3, 1] = np.nan
        case "label_bad_rotation":
            rotations[5] *= 1.1
        case "label_jumps":
            xyz[40:] += 5.1  # 51 m/s and more for one step
    return Label(xyz, rotations, label.text, label.embedding)


@pytest.mark.parametrize("fault", ["label_not_finite", "label_bad_rotation", "label_jumps"])
def test_d_48_a_useless_label_is_found(tmp_path: Path, fault: str) -> None:
    assert list(label_faults(sound_label())) == []
    assert list(label_faults(spoiled(fault))) == [fault]
    labels: Mapping[Clip, Label] = {Clip("good", 0): sound_label(), Clip("bad", 0): spoiled(fault)}
    write_npz(tmp_path / "teacher_labels/val_labels.npz", label_arrays(labels))
    assert label_report(tmp_path, "val") == {fault: 1, "valid": 1}


def test_d_49_streaming_is_an_optional_import_and_says_what_else_to_do() -> None:
    with pytest.raises(BadConfig, match=r"needs the package physical_ai_av .* frame_source=extracted"):
        StreamedFrames()


def test_d_50_the_stages_by_hand_make_a_whole_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(tmp_path)]
    write_example_tree(tmp_path, train=4, val=2, resolution=SIDE)
    labelled = tmp_path / "teacher_labels/train_labels.npz"
    before = labelled.read_bytes()
    labelled.unlink()
    for shard in ("0", "1"):
        words = ["--split", "train", "--teacher", "scripted", "--shard", shard, "--num-shards", "2"]
        main(["generate_teacher_labels", *root, *words])
    main(["generate_ego_history", *root, "--split", "all"])
    main(["merge_shards", *root, "--split", "train", "--num-shards", "2"])
    assert "{'valid': 4}" in capsys.readouterr().out
    assert {c.clip_id: label.text for c, label in read_labels(labelled.read_bytes(), "x").items()}
    assert labelled.read_bytes() == before
