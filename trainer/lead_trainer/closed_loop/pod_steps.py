"""What the trainer image does in a closed-loop pod: `fetch` before the user's command drives, `publish` after it.

The results are of another program and hostile until they were read. They are uploaded first and committed last, by one
create-only manifest that names attempt and pod: an evaluation exists when it does.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from lead_protocol import environment
from lead_protocol.closed_loop_record import FILES, MAX_CLOSED_LOOP_BYTES, SUMMARY, ClosedLoopManifest, DrivenNumbers
from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import ClosedLoopJob
from lead_protocol.job_access import job_access
from lead_protocol.manifests import StoredObject, sha256_hex, sha256_of_file
from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_trainer.closed_loop.result_folder import Evaluation, read_results, regular_files
from lead_trainer.commands.export import export_checkpoint
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.errors import BadConfig, BadData, TrainerError
from lead_trainer.storage import open_store

MAX_ROUTE_FILES, MAX_ROUTE_BYTES = 10_000, 256 * 1024 * 1024  # of all files of routes; Bench2Drive's have 1 MB
MAX_MESSAGE = 1024  # characters for the kubelet
ARTEFACTS = "files/"  # below an attempt's results


def run_closed_loop_job(job: ClosedLoopJob, termination_log: Path, environ: Mapping[str, str]) -> int:
    """Does one of the two steps; leaves what is wrong for the kubelet, and raises it."""
    steps: dict[str, Callable[[ClosedLoopJob, ObjectStore, Mapping[str, str]], None]] = {
        "fetch": fetch,
        "publish": publish,
    }
    step = steps.get(environ.get(environment.CLOSED_LOOP_STEP, ""))
    if step is None:
        raise BadConfig(
            f"{environment.CLOSED_LOOP_STEP}: found {environ.get(environment.CLOSED_LOOP_STEP)!r}, expected one of "
            f"{', '.join(steps)}; are operator and image of two versions?"
        )
    try:
        step(job, open_store(environ, job_access(job)), environ)
    except (TrainerError, StoreError) as error:
        termination_log.write_text(str(error)[:MAX_MESSAGE], encoding="utf-8")
        raise
    return int(ExitCode.DONE)


def fetch(job: ClosedLoopJob, store: ObjectStore, environ: Mapping[str, str]) -> None:
    """Copies the weights as `lead export` writes them, and the routes; raises BadData and StoreError."""
    folder = Path(environ[environment.CLOSED_LOOP_CHECKPOINT])
    folder.mkdir(parents=True, exist_ok=True)
    print(export_checkpoint(store, job.instance, folder, job.checkpoint_prefix), flush=True)
    if job.routes_prefix:
        _fetch_routes(store, f"{job.routes_prefix}/", Path(environ[environment.CLOSED_LOOP_ROUTES]))


def _fetch_routes(store: ObjectStore, prefix: str, folder: Path) -> None:
    left, count, waiting = MAX_ROUTE_BYTES, 0, _budget()
    for info in store.list(prefix):  # the store has checked each key: it leaves no folder
        left, count = left - info.size, count + 1
        if left < 0 or count > MAX_ROUTE_FILES:
            raise BadData(
                f"{store.url}/{prefix} holds more than {MAX_ROUTE_FILES} files or {MAX_ROUTE_BYTES >> 20} MiB; name "
                "the folder of the routes alone in closedLoop.routes.prefix"
            )
        path = folder / info.key.removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(waiting.call(store.get, info.key, max_bytes=info.size, etag=info.etag))
    if not count:
        raise BadData(f"{store.url}/{prefix} holds no routes; upload some, or correct closedLoop.routes.prefix")
    print(f"{count} files of routes", flush=True)


def publish(job: ClosedLoopJob, store: ObjectStore, environ: Mapping[str, str]) -> None:
    """Reads the results, uploads them and commits them; raises BadData where they are none."""
    folder = Path(environ[environment.CLOSED_LOOP_RESULTS])
    evaluation = read_results(folder)
    numbers = _numbers(evaluation)
    prefix, waiting = job.keys.results(job.epoch, job.attempt), _budget()
    files = {}
    for path in regular_files(folder):
        name = path.relative_to(folder).as_posix()
        stored = StoredObject(key=f"{prefix}{ARTEFACTS}{name}", size=path.stat().st_size, sha256=sha256_of_file(path))
        if not waiting.call(store.create_file, stored.key, path, sha256=stored.sha256):
            raise BadData(f"{stored.key} is in the store already, with other content; who else writes there?")
        files[name] = stored.model_dump()
    comfort = None if evaluation.comfort is None else asdict(evaluation.comfort)
    documents = {SUMMARY: {"summary": evaluation.summary.model_dump(), "comfort": comfort}, FILES: files}
    named = {name: _put(store, waiting, f"{prefix}{name}", document) for name, document in documents.items()}
    manifest = ClosedLoopManifest(
        run_uid=job.owner.uid,
        stage=job.stage,
        seed=job.seed,
        attempt=job.attempt,
        pod_uid=environ.get(environment.POD_UID, ""),
        request=job.request,
        epoch=job.epoch,
        step=job.step,
        checkpoint_prefix=job.checkpoint_prefix,
        numbers=numbers,
        files=named,
        saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    data = manifest.model_dump_json().encode()
    if len(data) > MAX_CLOSED_LOOP_BYTES:
        raise BadData(f"the numbers of the results take {len(data)} bytes, expected at most {MAX_CLOSED_LOOP_BYTES}")
    if not waiting.call(store.create, job.keys.manifest(job.attempt), data):
        raise BadData(f"attempt {job.attempt} has published other results already; these are left out")
    print(f"published {len(files)} files: {store.url}/{prefix}", flush=True)


def _numbers(evaluation: Evaluation) -> DrivenNumbers:
    """Returns what the operator reads, in percent; raises BadData that names what is out of bounds."""
    summary, comfort = evaluation.summary, evaluation.comfort
    try:
        return DrivenNumbers(
            routes=summary.routes,
            recorded=summary.recorded,
            driving_score=summary.driving_score,
            route_completion=summary.route_completion,
            success_whole_route=_percent(summary.success),
            success_bench2drive=_percent(summary.success_bench2drive),
            infractions_per_km=summary.infractions_per_km,
            interventions=summary.interventions,
            max_acceleration=None if comfort is None else comfort.max_acceleration,
            max_jerk=None if comfort is None else comfort.max_jerk,
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part)[:64] for part in first["loc"])
        raise BadData(f"the results cannot be reported: {where}: {first['msg']}") from None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _put(store: ObjectStore, waiting: RetryBudget, key: str, document: object) -> StoredObject:
    data = json.dumps(document, allow_nan=False).encode()
    if not waiting.call(store.create, key, data):
        raise BadData(f"{key} is in the store already, with other content; who else writes there?")
    return StoredObject(key=key, size=len(data), sha256=sha256_hex(data))


def _budget() -> RetryBudget:
    waiting = RetryBudget()
    waiting.begin()
    return waiting
