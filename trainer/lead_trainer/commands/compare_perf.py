"""`lead compare-perf`: compare the speed of two runs after a code change; imports no torch."""

from pathlib import Path

from pydantic import ValidationError

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_trainer.engine.checkpoints.instances import instances
from lead_trainer.engine.reporting.perf_record import PerfRecord
from lead_trainer.errors import BadConfig
from lead_trainer.local.store import NAMESPACE, PRIVATE_FOLDER, UID


def compare_perf(before: Path, after: Path, max_drop: float) -> int:
    """Prints two speed records side by side; returns 1 when the second lost more than `max_drop` of the samples/s."""
    old, new = perf_record(before), perf_record(after)
    for name in ("device", "ranks", "precision", "batch_size"):
        if getattr(old, name) != getattr(new, name):
            print(f"note: {name} differs, {getattr(old, name)} and {getattr(new, name)}")
    for name in ("samples_per_s", "step_s", "step_p90_s", "waiting_share", "gpu_memory_bytes", "gpu_utilisation"):
        values = [getattr(record, name) for record in (old, new)]
        if None not in values:
            print(f"{name:<18} {values[0]:>14.5g} {values[1]:>14.5g}")
    drop = 1.0 - new.samples_per_s / old.samples_per_s
    verdict = "too slow" if drop > max_drop else "ok"
    print(f"{verdict}: B trains {abs(drop):.1%} {'slower' if drop > 0 else 'faster'} than A (allowed: {max_drop:.0%})")
    return 1 if drop > max_drop else ExitCode.DONE


def perf_record(path: Path) -> PerfRecord:
    """Returns the record in a file, or the last one written in a logdir; raises BadConfig where there is none."""
    if path.is_dir():
        store, objects = FolderStore(path / PRIVATE_FOLDER), path / PRIVATE_FOLDER
        keys = [info.key for one in instances(store, NAMESPACE, UID) for info in store.list(one.perf_prefix)]
        if not keys:
            raise BadConfig(f"{path} holds no speed record; a run writes one once it has trained a few steps")
        path = max((objects / key for key in keys), key=lambda record: record.stat().st_mtime_ns)
    try:
        return PerfRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise BadConfig(f"{path} is no speed record of a run: {str(error).splitlines()[0]}") from error
