"""Scalars of a run as a DataFrame; imported by the one call that needs pandas and TensorBoard's reader."""

import difflib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lead_client.checkpoints import Instance
from lead_client.errors import NoCheckpoint

INDEX = ["stage", "seed", "step"]
MAX_FILE_BYTES = 64 * 1024 * 1024  # of one event file; the trainer begins another one at a fraction of it
_SIZES = {"scalars": 0, "images": 1, "histograms": 1, "tensors": 1, "compressedHistograms": 1, "audio": 1}


def scalars(run: str, instances: Sequence[Instance], tags: Sequence[str]) -> pandas.DataFrame:
    """Returns a row per stage, seed and step, a column per tag; raises NoCheckpoint naming what there is instead."""
    tables = []
    for one in instances:
        with tempfile.TemporaryDirectory(prefix="lead-events-") as scratch:
            columns = _columns(_folder(one, Path(scratch)))
        if columns:
            table = pandas.DataFrame(columns).sort_index()
            tables.append(pandas.concat({(one.stage, one.seed): table}, names=INDEX))
    if not tables:
        raise NoCheckpoint(
            f"TrainingRun {run} has no event file yet; they appear with its first checkpoint, if tensorboard is on"
        )
    frame = pandas.concat(tables)
    unknown = [tag for tag in tags if tag not in frame.columns]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(frame.columns), n=3, cutoff=0.5)
        known = near or sorted(frame.columns)[:8]
        raise NoCheckpoint(f"TrainingRun {run} logs no {unknown[0]!r}; it logs {', '.join(known)} …")
    return frame[list(tags)].dropna(how="all") if tags else frame


def _folder(one: Instance, scratch: Path) -> Path:
    if one.events is not None:
        return one.events
    for info in one.store.list(one.keys.tensorboard_prefix):
        if "tfevents" in info.key:
            path = scratch / info.key.rsplit("/", 1)[-1]
            path.write_bytes(one.store.get(info.key, max_bytes=MAX_FILE_BYTES))
    return scratch


def _columns(folder: Path) -> dict[str, pandas.Series]:
    """Returns each tag's values by step; of a step that was trained twice, the last."""
    if not any(folder.glob("*tfevents*")):
        return {}
    events = EventAccumulator(str(folder), size_guidance=_SIZES)
    events.Reload()
    found = {tag: {each.step: each.value for each in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    return {tag: pandas.Series(values, dtype="float64") for tag, values in found.items()}
