"""A cache of clips whose stages have pods of their own: the same bytes as at once, resumable, and of one source."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from lead_protocol.cache_publication import publish_staged
from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.folder import FolderStore
from lead_trainer.contract.installed import load_recipe
from lead_trainer.data.build import build_share
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.distill.tree import write_example_tree
from lead_trainer.recipes.distill.ingest import clip_tree
from lead_trainer.recipes.distill.ingest.label_files import Label
from lead_trainer.recipes.distill.ingest.teacher import Question, ScriptedTeacher, Teacher

SIDE = 32
STAGES = ("extract", "labels", "history")
UID = "uid"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree without labels: the build asks the teacher."""
    folder = tmp_path_factory.mktemp("clips")
    write_example_tree(folder, train=5, val=3, resolution=SIDE)
    shutil.rmtree(folder / "teacher_labels")
    return folder


def a_job(
    root: Path, stage: str, index: int = 0, pods: int = 1, *, made: Sequence[str] = (), **changes: object
) -> BuildJob:
    job = BuildJob(
        owner=OwnerIdentity(namespace="team", name="clips", uid=UID), generation=1, attempt=1, index=index,
        parallelism=pods, recipe="distill", source=FolderSource(path=str(root)), collections=[],
        config={"resolution": SIDE, "teacher": "scripted"}, stage=stage, stages=list(STAGES), made=list(made),
    )  # fmt: skip
    return job.model_copy(update=changes)


def run(job: BuildJob, store: FolderStore, root: Path) -> BuildRecord:
    return build_share(job, store, FolderTree(root), load_recipe("distill"), lambda record: None, part_bytes=15_000)


def published(store: FolderStore, digest: str) -> dict[str, bytes]:
    prefix = f"caches/team/{digest}/"
    return {info.key.removeprefix(prefix): store.get(info.key, max_bytes=2**30) for info in store.list(prefix)}


def outputs(store: FolderStore) -> list[str]:
    prefix = f"builds/team/{UID}/staged/"
    keys = (info.key.removeprefix(prefix).partition("/")[2] for info in store.list(prefix))
    return sorted(key for key in keys if key.startswith("stages/"))


def build_in_stages(root: Path, store: FolderStore) -> BuildRecord:
    """Extract beside labels, which two pods share, then history, then two pods for the rest."""
    run(a_job(root, "extract"), store, root)
    for index in range(2):
        run(a_job(root, "labels", index, 2), store, root)
    run(a_job(root, "history", made=("extract", "labels")), store, root)
    return [run(a_job(root, "", index, 2, made=STAGES), store, root) for index in range(2)][-1]


class CountingTeacher(ScriptedTeacher):
    """Counts its questions."""

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    def label(self, questions: Sequence[Question]) -> list[Label]:
        self.asked += [question.clip.clip_id for question in questions]
        return super().label(questions)


class NoTeacher:
    """Stands for a pod without a GPU."""

    def label(self, questions: Sequence[Question]) -> list[Label]:
        raise BadConfig("the teacher needs a GPU")


def let_teach(monkeypatch: pytest.MonkeyPatch, teacher: Teacher) -> None:
    monkeypatch.setattr(clip_tree, "make_teacher", lambda name: teacher)


def test_d_50_a_cache_built_in_stages_is_the_one_built_at_once_byte_for_byte(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, staged = FolderStore(tmp_path / "one"), FolderStore(tmp_path / "two")
    whole = run(a_job(root, "", stages=[]), at_once, root)
    publish_staged(at_once, a_job(root, "").keys, whole.digest)
    asked: list[str] = []
    run(a_job(root, "extract"), staged, root)
    let_teach(monkeypatch, CountingTeacher(asked))
    run(a_job(root, "labels"), staged, root)
    let_teach(monkeypatch, NoTeacher())  # the GPU is the label stage's alone
    run(a_job(root, "history", made=("extract", "labels")), staged, root)
    done = run(a_job(root, "", made=STAGES), staged, root)
    assert sorted(asked) == sorted(set(asked)) and len(asked) == 8
    assert outputs(staged) == [f"stages/{stage}/{number:08d}" for stage in sorted(STAGES) for number in range(8)]
    publish_staged(staged, a_job(root, "").keys, done.digest)
    assert done.digest == whole.digest
    one = published(at_once, whole.digest)
    assert published(staged, done.digest) == one and len(one) > 4
    assert not outputs(staged)  # what stages made is removed with what was staged


def test_d_50_workers_of_a_stage_share_its_samples_and_one_that_was_killed_asks_no_question_twice(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = FolderStore(tmp_path), list[str]()
    let_teach(monkeypatch, CountingTeacher(asked))
    first = run(a_job(root, "labels", 0, 2), store, root)
    assert (first.phase, first.share_samples, first.samples_done, first.samples) == ("Done", 4, 4, 8)
    assert outputs(store) == [f"stages/labels/{number:08d}" for number in (0, 2, 4, 6)]
    lost = next(info.key for info in store.list(f"builds/team/{UID}/") if info.key.endswith("labels/00000004"))
    store.delete(lost)  # it was killed before this one
    assert run(a_job(root, "labels", 0, 2, attempt=2), store, root).samples_done == 4
    assert len(asked) == 5
    run(a_job(root, "labels", 1, 2), store, root)
    assert len(asked) == 9 and len(outputs(store)) == 8


def test_nothing_is_made_of_outputs_whose_source_has_changed_since(root: Path, tmp_path: Path) -> None:
    """No manifest comes of it, and without one the operator begins all stages again."""
    tree, store = Path(shutil.copytree(root, tmp_path / "tree")), FolderStore(tmp_path / "store")
    before = run(a_job(tree, "labels"), store, tree)
    (tree / "extracted_frames/val_clips.npz").touch()
    for job in (a_job(tree, "history", made=("labels",)), a_job(tree, "", made=("labels",))):
        after = run(job, store, tree)
        assert after.digest != before.digest
        assert (after.phase, after.shards_done) == ("Done", 0)
        assert after.message == "stage labels made nothing of 8 samples: the source has changed since it began"
    assert not [info for info in store.list("builds/") if "MANIFEST" in info.key or "/history/" in info.key]
    assert build_in_stages(tree, store).shards_total > 1


def test_a_stage_that_the_recipe_does_not_offer_is_named_with_those_it_does(root: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    job = a_job(root, "extract", stages=["extract", "lables"])
    offers = "recipe distill offers extract, labels, history with this config"
    with pytest.raises(BadConfig, match=rf"spec\.build\.stages: found 'lables'; {offers}; did you mean 'labels'\?"):
        run(job, store, root)
    with pytest.raises(
        BadConfig, match=r"found 'labels'; recipe distill offers extract with this config; remove the stage"
    ):
        run(a_job(root, "labels", config={"teacher": "files"}), store, root)
    with pytest.raises(BadConfig, match="offers no stage, as the build does all its work at once"):
        run(a_job(root, "", config={"benchmark": "nuscenes", "input_type": "raster", "model": "baseline"}), store, root)


def test_an_output_that_is_damaged_is_named_and_not_packed(root: Path, tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    run(a_job(root, "labels"), store, root)
    key = next(info.key for info in store.list("builds/") if info.key.endswith("labels/00000003"))
    for data in (b"LDR1 cut off", store.get(key.replace("00000003", "00000004"), max_bytes=2**20)):
        store.put(key, data)
        with pytest.raises(BadData, match=r"stages/labels/00000003.*; delete it and build again"):
            run(a_job(root, "", made=("labels",)), store, root)


class UselessTeacher(ScriptedTeacher):
    """Gives labels that jump."""

    def label(self, questions: Sequence[Question]) -> list[Label]:
        return [Label(each.xyz * 1e4, each.rotations, each.text, each.embedding) for each in super().label(questions)]


def test_a_useless_label_ends_its_stage_as_it_ends_a_build_at_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_teach(monkeypatch, UselessTeacher())
    for stage in ("labels", ""):
        with pytest.raises(BadData, match=r"the teacher's label is of no use \(label_jumps\)"):
            run(a_job(root, stage), FolderStore(tmp_path / f"of-{stage}"), root)
