"""A manifest or a loop's file that somebody edited is quarantined as corrupt bytes are; the next older one is used."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests
from lead_testing.toy_runs import train_here

Document = dict[str, Any]


def without_loop(manifest: Document) -> None:
    del manifest["parts"]["loop"]


def file_that_is_not_there(manifest: Document) -> None:
    manifest["parts"]["optimizer"] = "nothere"


def file_of_another_folder(manifest: Document) -> None:
    manifest["parts"]["loop"] = "../../../../etc/hostname"


@pytest.mark.parametrize("edit", [without_loop, file_that_is_not_there, file_of_another_folder])
def test_edited_parts_lead_to_the_next_older_checkpoint(tmp_path: Path, edit: Callable[[Document], None]) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=2))
    path = tmp_path / "store" / KEYS.manifest(12, 0)
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    assert train_here(store, tmp_path, a_toy_job(2, epochs=2)) == ExitCode.DONE
    assert store.head(KEYS.quarantine(12, 0)) is not None
    assert [(one.step, one.attempt) for one in manifests(store)][-1] == (12, 2)


@pytest.mark.parametrize("position", [{"step": 99}, {"epoch": 7}, {"step_in_epoch": 3}, None])
def test_a_loop_of_another_position_is_never_believed(tmp_path: Path, position: Document | None) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=2))
    path = tmp_path / "store" / KEYS.manifest(12, 0)
    document = json.loads(path.read_text())
    stored = document["files"][document["parts"]["loop"]]
    loop = tmp_path / "store" / stored["key"]
    data = b"[1]" if position is None else json.dumps({**json.loads(loop.read_text()), **position}).encode()
    loop.write_bytes(data)
    stored |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    path.write_text(json.dumps(document))
    assert train_here(store, tmp_path, a_toy_job(2, epochs=2)) == ExitCode.DONE
    assert store.head(KEYS.quarantine(12, 0)) is not None
    assert manifests(store)[-1].step == 12
