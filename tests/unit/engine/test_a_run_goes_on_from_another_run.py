"""`checkpoint.from` continues another run with everything it knew; `initFrom.uri` takes one checkpoint's weights."""

from pathlib import Path
from typing import Any

import pytest

from lead_protocol.job import InitFrom, OwnerIdentity, TrainJob
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests
from lead_testing.toy_runs import train_here
from lead_trainer.errors import BadConfig, NoValidCheckpoint

OTHER = OwnerIdentity(namespace="team-a", name="second", uid="6a1b8f04-0000-4000-8000-0000000000ff")


def folder_of(manifest: CheckpointManifest) -> str:
    return KEYS.checkpoint(manifest.step, manifest.attempt, manifest.nonce)


def of_another_run(attempt: int = 1, **fields: Any) -> TrainJob:
    return a_toy_job(attempt, **fields).model_copy(update={"owner": OTHER})


def another_run(epochs: int, attempt: int = 1, checkpoint: str = "") -> TrainJob:
    origin = InitFrom(manifests_prefix=KEYS.manifests_prefix, checkpoint_prefix=checkpoint)
    return of_another_run(attempt, epochs=epochs, resume_from=origin)


def test_a_run_that_goes_on_from_another_ends_with_the_weights_of_one_that_was_never_cut(tmp_path: Path) -> None:
    whole = FolderStore(tmp_path / "whole" / "store")
    train_here(whole, tmp_path / "whole", a_toy_job(epochs=3))
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=1))
    longer = another_run(epochs=3)
    train_here(store, tmp_path, longer)
    continued = manifests(store, longer.keys)
    assert [m.step for m in continued] == [12, 18]
    assert continued[-1].parameters_sha256 == manifests(whole)[-1].parameters_sha256
    assert continued[0].parent_sha256 is not None
    assert [m.step for m in manifests(store)] == [6]  # nothing was written to the first run


def test_a_run_that_goes_on_from_one_that_stopped_early_ends_with_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    config = {"validation_samples": 8, "patience_epochs": 1, "best_metric": "val/loss", "best_is_greatest": True}
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=30, config=config))
    job = another_run(epochs=40).model_copy(update={"config": config})
    train_here(store, tmp_path, job)
    (end,), origin = manifests(store, job.keys), manifests(store)[-1]
    assert end.final and (end.step, end.parameters_sha256) == (origin.step, origin.parameters_sha256)


def test_its_own_checkpoints_win_after_a_restart(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=1))
    train_here(store, tmp_path, another_run(epochs=2))
    train_here(store, tmp_path, another_run(epochs=3, attempt=2))
    assert [m.step for m in manifests(store, another_run(3).keys)] == [12, 18]


def test_the_checkpoint_that_is_named_is_taken_and_no_newer_one(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=3))
    job = another_run(epochs=2, checkpoint=folder_of(manifests(store)[0]))
    train_here(store, tmp_path, job)
    assert [m.step for m in manifests(store, job.keys)] == [12]


def test_a_spoiled_origin_ends_the_run_and_is_left_alone(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=2))
    named = manifests(store)[0]
    (tmp_path / "store" / named.files["optimizer_0000.pth"].key).write_bytes(b"not what it was")
    with pytest.raises(
        NoValidCheckpoint,
        match=r"^spec\.checkpoint\.from .*found 1 checkpoint, which is corrupt: .*optimizer_0000.pth has",
    ) as caught:
        train_here(store, tmp_path, another_run(epochs=3, checkpoint=folder_of(named)))
    assert str(caught.value).endswith("; restore its objects, or name another checkpoint")
    assert not list(store.list(KEYS.quarantine_prefix))


def test_an_origin_that_has_nothing_left_to_train_is_refused_with_both_numbers(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=2))
    with pytest.raises(BadConfig, match="has trained 2 epochs, and the stage asks for 2"):
        train_here(store, tmp_path, another_run(epochs=2))


def test_the_weights_of_a_named_checkpoint_begin_a_stage(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=2))
    first, last = manifests(store)
    path = tmp_path / "store" / last.files["model_0001.pth"].key
    path.write_bytes(b"of no use")  # the newest is not even looked at
    origin = InitFrom(manifests_prefix=KEYS.manifests_prefix, checkpoint_prefix=folder_of(first))
    child = of_another_run(epochs=1, init_from=origin)
    train_here(store, tmp_path, child)
    assert [m.step for m in manifests(store, child.keys)] == [6]
    missing = InitFrom(
        manifests_prefix=KEYS.manifests_prefix, checkpoint_prefix=KEYS.checkpoint(first.step, first.attempt, "gone")
    )
    with pytest.raises(
        NoValidCheckpoint,
        match=r"^spec\.stages\[lost\]\.initFrom .*gone/: found 1 checkpoint, which is corrupt: it names ",
    ):
        train_here(store, tmp_path, of_another_run(stage="lost", init_from=missing))
