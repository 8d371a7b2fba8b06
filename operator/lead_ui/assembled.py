"""From records to the model of the pages: instances, attempts and checkpoints; pure, the same for bucket and folder."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from lead_operator.decisions.formatting import format_number
from lead_protocol.progress_record import ProgressRecord
from lead_ui.curves import Placement
from lead_ui.event_files.instance_events import History
from lead_ui.model import Attempt, Checkpoint, Instance
from lead_ui.records import InstanceRecords

ENDS = {"Done": "Done", "Stopped": "Stopped", "Failed": "Failed"}  # phases of a report -> outcome
SUPERSEDED = "it stopped reporting: it was killed, or its machine was lost"


def instance_of(records: InstanceRecords, parent: str = "") -> Instance:
    """Returns a stage instance as its newest report shows it."""
    keys, report = records.keys, records.newest
    if report is None:
        return Instance(keys=keys, stage=keys.stage, seed=keys.seed, phase="Pending", parent=parent)
    best = f"{report.best_by} {format_number(report.best_metric)}" if report.best_metric is not None else ""
    return Instance(
        keys=keys,
        stage=keys.stage,
        seed=keys.seed,
        phase=report.phase,
        attempt=report.attempt,
        epoch=report.epoch,
        epochs=report.epochs,
        step=report.step,
        steps=report.steps,
        loss=report.loss,
        rate=report.samples_per_s,
        eta_s=report.eta_s,
        best=best,
        metrics=report.metrics,
        parent=parent,
        message=report.message,
    )


def attempts_of(records: InstanceRecords, history: History, *, lives: bool) -> list[Attempt]:
    """Returns the attempts of a stage instance, oldest first; `lives`: its newest attempt may still write."""
    spans = {span.attempt: span for span in history.spans}
    newest = max([*records.attempts, *spans], default=0)
    found = list[Attempt]()
    for number in sorted({*records.attempts, *spans}):
        report, span = records.attempts.get(number), spans.get(number)
        outcome, cause = _end(report, is_newest=number == newest, lives=lives)
        found.append(
            Attempt(
                instance=records.keys.name,
                number=number,
                began=span.first_wall if span else None,
                ended=None if outcome == "Running" else span.last_wall if span else None,
                outcome=outcome,
                cause=cause,
                resumed_from_step=report.resumed_from_step if report else None,
                pods=(span.host,) if span and span.host else (),
            )
        )
    return found


def _end(report: ProgressRecord | None, *, is_newest: bool, lives: bool) -> tuple[str, str]:
    if report is not None and report.phase in ENDS:
        return ENDS[report.phase], report.message
    if is_newest and lives:
        return "Running", report.message if report else ""
    return "Lost", SUPERSEDED


def checkpoints_of(
    records: InstanceRecords, uri: Callable[[str], str], export: Callable[[InstanceRecords, bool], str]
) -> list[Checkpoint]:
    """Returns the checkpoints of a stage instance, newest first; `uri` of a key, `export` of the newest or the best."""
    best = records.best
    found = list[Checkpoint]()
    for at, manifest in zip(records.positions, records.manifests, strict=True):
        is_best = best is not None and best.step == manifest.step and best.nonce == manifest.nonce
        command = export(records, False) if not found else export(records, True) if is_best else ""
        found.append(
            Checkpoint(
                instance=records.keys.name,
                step=manifest.step,
                epoch=manifest.epoch,
                saved_at=manifest.saved_at,
                size_bytes=sum(stored.size for stored in manifest.files.values()),
                metrics=manifest.metrics,
                attempt=manifest.attempt,
                is_final=manifest.final,
                is_best=is_best,
                quarantined=records.quarantined.get(at, ""),
                uri=uri(records.keys.checkpoint(manifest.step, manifest.attempt, manifest.nonce)),
                export="" if manifest.is_report else command,
            )
        )
    return found


def placements(instances: Sequence[Instance]) -> dict[str, Placement]:
    """Returns where each stage instance begins on the axes: where its parent ends."""
    by_name = {each.name: each for each in instances}
    return {each.name: _placement(each, by_name, frozenset()) for each in instances}


def _placement(instance: Instance, by_name: Mapping[str, Instance], seen: frozenset[str]) -> Placement:
    parent = by_name.get(instance.parent)
    if parent is None or parent.name in seen:
        return Placement(steps_per_epoch=instance.steps_per_epoch)
    before = _placement(parent, by_name, seen | {instance.name})
    return Placement(
        before.steps_before + (parent.steps or parent.step),
        before.epochs_before + (parent.epochs or parent.epoch),
        instance.steps_per_epoch,
    )


def config_keys(configs: Iterable[Mapping[str, object]]) -> list[str]:
    """Returns the keys in which configs differ, sorted."""
    listed = list(configs)
    keys = {key for config in listed for key in config}
    absent = object()
    return sorted(key for key in keys if any(c.get(key, absent) != listed[0].get(key, absent) for c in listed[1:]))


def flattened(config: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Returns a config with the keys of its mappings joined by dots."""
    found = dict[str, object]()
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flattened(value, f"{name}.")
        else:
            found[name] = value
    return found
