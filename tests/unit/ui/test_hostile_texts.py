"""Whatever a run, its pods or its config call something, the page shows it as text: nothing of it is an element."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.unit.ui.conftest import client_of

from lead_protocol.object_keys import LOCAL_NAMESPACE, InstanceKeys
from lead_protocol.progress_record import Advisory, ProgressRecord, to_bytes
from lead_protocol.store.folder import FolderStore
from lead_testing.shown_pages import PAYLOADS, faults_of, shown
from lead_trainer.report.tensorboard import EventFile
from lead_ui.local_runs import PRIVATE_FOLDER, UID

RUN = "/runs/local/{name}"
PATHS = ("/runs", RUN, *(f"{RUN}/{tab}" for tab in ("timeline", "pictures", "conditions", "config")),
         "/compare?run=local/{name}", "/space")  # fmt: skip


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_in_any_text_stays_text(tmp_path: Path, payload: str) -> None:
    folder = "".join(letter for letter in payload if letter not in "/\0")[:200]
    logdir = tmp_path / folder
    keys = InstanceKeys(LOCAL_NAMESPACE, UID, "train", 0)
    advice = Advisory(rule="rule", epoch=1, message=payload)
    record = ProgressRecord(attempt=1, seq=1, phase="Failed", epoch=1, epochs=2, step=5, steps=10, message=payload,
                            advisories=[advice])  # fmt: skip
    FolderStore(logdir / PRIVATE_FOLDER).put(keys.progress(1), to_bytes(record))
    (logdir / "config.json").write_text(json.dumps({payload: payload, "deep": {payload: [payload]}}))
    events = EventFile(logdir, None, "", attempt=1, first_step=0, on=True)
    events.scalars({payload: 1.0, f"{payload}/loss": 2.0}, 1)
    events.close()
    with client_of(tmp_path) as client:
        for path in PATHS:
            answer = client.get(path.format(name=_quoted(folder)))
            assert answer.status_code == 200, path
            assert list(faults_of(answer.text)) == [], path
        texts = shown(client.get(f"/runs/local/{_quoted(folder)}/config").text)
        assert "".join(payload.split()) in "".join(texts.text.split())
        tags = shown(client.get(f"/runs/local/{_quoted(folder)}").text).values("figure", "data-tag")
        assert payload in tags
        found = client.get(f"/runs/local/{_quoted(folder)}/curves.json", params={"tag": payload})
        assert found.headers["content-type"] == "application/json" and payload in found.json()["charts"]


def _quoted(name: str) -> str:
    return quote(name, safe="")
