"""The retention decision: what goes, in which order, and what is never touched."""

from typing import Any

import pytest

from lead_operator.decisions.training_run.retention import (
    Removal,
    decide_removals,
    find_orphans,
    outlived,
    remove_corrupt,
)
from lead_protocol.manifests import CheckpointManifest, StoredObject
from lead_protocol.object_keys import InstanceKeys

KEYS = InstanceKeys("team-a", "6a1b8f04-0000-4000-8000-000000000001", "train", 0)
SHA = "5" * 64


def a_manifest(step: int, **changes: Any) -> CheckpointManifest:
    attempt, loss = changes.pop("attempt", 1), changes.pop("loss", None)
    data = changes.pop("data", [f"{KEYS.checkpoint(step, attempt, 'abc123')}{name}" for name in ("model.pth", "o.pth")])
    fields: dict[str, Any] = {
        "run_uid": KEYS.uid, "stage": "train", "seed": 0, "attempt": attempt, "nonce": "abc123", "step": step,
        "epoch": step // 10, "step_in_epoch": 0, "parent_sha256": None, "recipe": "toy", "config_sha256": SHA,
        "dataset_digests": [], "world_size": 1, "torch_version": "0", "parameters_sha256": SHA, "saved_at": "",
        "files": {key.rsplit("/", 1)[1]: StoredObject(key=key, size=1, sha256=SHA) for key in data},
        "metrics": {} if loss is None else {"loss": loss},
    }  # fmt: skip
    return CheckpointManifest(**{**fields, **changes})


def by_key(*manifests: CheckpointManifest) -> dict[str, CheckpointManifest]:
    return {KEYS.manifest(manifest.step, 0): manifest for manifest in manifests}


def steps_removed(
    manifests: dict[str, CheckpointManifest], keep_last: int = 3, keep_best: int = 1, live_attempt: int = 1
) -> list[int]:
    removals = decide_removals(
        KEYS, manifests, keep_last=keep_last, keep_best=keep_best, live_attempt=live_attempt
    )  # fmt: skip
    return [manifests[removal.manifest_key].step for removal in removals]


FALLING = by_key(*(a_manifest(step, loss=1.0 / step) for step in (10, 20, 30, 40, 50, 60)))
RISING = by_key(*(a_manifest(step, loss=float(step)) for step in (10, 20, 30, 40, 50, 60)))


@pytest.mark.parametrize(
    ("manifests", "keep_last", "keep_best", "gone"),
    [
        (FALLING, 3, 1, [10, 20, 30]),
        (RISING, 3, 1, [20, 30]),
        (RISING, 3, 2, [30]),
        (RISING, 3, 0, [10, 20, 30]),
        (RISING, 100, 0, []),
        (RISING, 1, 0, [10, 20, 30, 40]),  # never below two
        (by_key(a_manifest(10), a_manifest(20)), 2, 0, []),
        ({}, 3, 1, []),
        (by_key(*(a_manifest(s, step_in_epoch=s % 2, loss=s) for s in (11, 12, 30, 40))), 2, 1, [11]),
        (by_key(*(a_manifest(s, loss=5.0) for s in (10, 20, 30, 40))), 2, 1, [10, 20]),  # of equals, the newest is best
        (by_key(*(a_manifest(s) for s in (10, 20, 30, 40))), 2, 1, [10, 20]),  # without a metric, none is best
    ],
)
def test_the_newest_and_the_best_stay(
    manifests: dict[str, CheckpointManifest], keep_last: int, keep_best: int, gone: list[int]
) -> None:
    assert steps_removed(manifests, keep_last, keep_best) == gone


def test_a_removal_names_the_manifest_and_exactly_its_data() -> None:
    (removal,) = decide_removals(
        KEYS, by_key(*map(a_manifest, (10, 20, 30))), keep_last=2, keep_best=0, live_attempt=1
    )  # fmt: skip
    prefix = KEYS.checkpoint(10, 1, "abc123")
    assert removal.manifest_key == KEYS.manifest(10, 0)
    assert removal.data_keys == (f"{prefix}model.pth", f"{prefix}o.pth")


@pytest.mark.parametrize(
    "foreign",
    [
        KEYS.manifest(30, 0),
        f"{KEYS.checkpoint(30, 1, 'abc123')}model.pth",  # of a checkpoint that stays
        f"{KEYS.checkpoint(10, 1, 'abc123')}../../../model.pth",
        "caches/d/MANIFEST.json",
        "runs/team-b/u/train-s0/checkpoints/000000000010/0001-abc123/model.pth",
    ],
)
def test_a_manifest_cannot_have_anything_but_its_own_data_removed(foreign: str) -> None:
    manifests = by_key(a_manifest(10, data=[foreign]), a_manifest(20), a_manifest(30))
    (removal,) = decide_removals(KEYS, manifests, keep_last=2, keep_best=0, live_attempt=1)
    assert removal.data_keys == ()


def test_data_that_a_standing_manifest_shares_stays() -> None:
    shared = a_manifest(10).files["model.pth"].key
    manifests = by_key(a_manifest(10), a_manifest(20), a_manifest(30, data=[shared]))
    (removal,) = decide_removals(KEYS, manifests, keep_last=2, keep_best=0, live_attempt=1)
    assert shared not in removal.data_keys
    assert len(removal.data_keys) == 1


def test_manifests_that_do_not_fit_their_key_neither_go_nor_count() -> None:
    manifests = by_key(*map(a_manifest, (10, 20, 30)))
    manifests[KEYS.manifest(40, 0)] = a_manifest(45)
    manifests[KEYS.manifest(50, 0)] = a_manifest(50, run_uid="another")
    assert steps_removed(manifests, keep_last=2, keep_best=0) == [10]


def test_nothing_goes_while_an_attempt_writes_that_is_not_known_yet() -> None:
    manifests = by_key(*map(a_manifest, (10, 20, 30)), a_manifest(40, attempt=2))
    assert steps_removed(manifests, 2, 0, live_attempt=1) == []
    assert steps_removed(manifests, 2, 0, live_attempt=2) == [10, 20]


@pytest.mark.parametrize(
    ("step", "attempt", "orphan"),
    [
        (10, 1, True),  # of an older attempt
        (90, 1, True),
        (10, 2, True),  # the live one has committed a later step since
        (30, 2, False),
        (40, 2, False),  # it may be about to commit this
        (10, 3, False),
    ],
)
def test_unnamed_data_is_an_orphan_once_nobody_will_commit_it(step: int, attempt: int, orphan: bool) -> None:
    key = f"{KEYS.checkpoint(step, attempt, 'left')}model.pth"
    manifests = by_key(a_manifest(20), a_manifest(30, attempt=2))
    named = [file.key for manifest in manifests.values() for file in manifest.files.values()]
    found = find_orphans(KEYS, manifests, [key, *named, f"{KEYS.checkpoints_prefix}readme"], live_attempt=2)
    assert found == ((key,) if orphan else ())


def test_every_so_many_epochs_one_checkpoint_stays_for_good() -> None:
    manifests = by_key(*(a_manifest(step) for step in (10, 20, 25, 30, 40, 50, 60)))
    removals = decide_removals(KEYS, manifests, keep_last=2, keep_best=0, live_attempt=1, keep_every_epochs=2)
    assert [manifests[removal.manifest_key].step for removal in removals] == [10, 30]


def test_a_spoiled_checkpoint_stays_until_enough_newer_ones_stand() -> None:
    spoiled = (KEYS.manifest(20, 0), KEYS.manifest(40, 0))
    standing = [KEYS.manifest(step, 0) for step in (10, 30, 40, 50)]
    standing[2] = KEYS.manifest(40, 1)  # the same step, committed once more
    assert outlived(spoiled, standing, keep_last=3) == spoiled[:1]
    assert outlived(spoiled, standing, keep_last=1) == spoiled  # two at least
    assert outlived(spoiled, standing, keep_last=4) == ()
    assert outlived(spoiled, [], keep_last=1) == ()


def test_a_step_that_was_committed_ten_times_anew_has_its_newest_last() -> None:
    standing = [KEYS.manifest(20, q) for q in (10, 11)]
    assert outlived([KEYS.manifest(20, 9)], standing, keep_last=2) == (KEYS.manifest(20, 9),)
    assert outlived([f"{KEYS.manifests_prefix}notes.txt"], standing, keep_last=2) == ()


def test_a_spoiled_checkpoint_goes_with_its_record_and_takes_nothing_of_another() -> None:
    shared = f"{KEYS.checkpoint(20, 1, 'abc123')}shared.pth"
    own = f"{KEYS.checkpoint(20, 1, 'abc123')}model.pth"
    spoiled = a_manifest(20, data=[shared, own, "caches/somebody/else"])
    removal = remove_corrupt(KEYS, KEYS.manifest(20, 0), spoiled, [a_manifest(30, data=[shared])])
    assert removal == Removal(KEYS.manifest(20, 0), (own,), KEYS.quarantine(20, 0))
    assert remove_corrupt(KEYS, KEYS.manifest(20, 0), None, []).data_keys == ()
    foreign = a_manifest(20, run_uid="another")
    assert remove_corrupt(KEYS, KEYS.manifest(20, 0), foreign, []).data_keys == ()
