"""`lead train`: training without a cluster, by the code that pods run.

The cache is built below `carla_root/cache` (or in LEAD_STORE_URL), the run's objects lie in `logdir/.lead`; after each
epoch its files appear in `logdir` under LEAD's names, as hard links. Calling it again resumes. Under torchrun every
process calls it.
"""

import hashlib
import json
import statistics
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import structlog

from lead_protocol import environment
from lead_protocol.checkpoint_retention import ranked
from lead_protocol.job import (
    BuildJob,
    CheckpointPolicy,
    DatasetSource,
    FolderSource,
    LoggingPolicy,
    OwnerIdentity,
    TrainJob,
)
from lead_protocol.manifests import MAX_CHECKPOINT_MANIFEST_BYTES, CheckpointManifest
from lead_protocol.merged_keys import merged_keys
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_trainer.building import build
from lead_trainer.config_sources import (
    Resolved,
    RunKeys,
    Sources,
    read_config_json,
    read_sources,
    resolve,
)
from lead_trainer.engine.agreement import done_by_first
from lead_trainer.engine.attempt import newest_attempt
from lead_trainer.engine.attempt_run import Place, run_attempt
from lead_trainer.engine.config_document import keys_of_document
from lead_trainer.engine.ddp import Group
from lead_trainer.engine.instances import instance_manifests
from lead_trainer.engine.resume import manifest_keys
from lead_trainer.engine.stop import StopFlag
from lead_trainer.engine.storage import open_store
from lead_trainer.engine.worker import device_of
from lead_trainer.errors import BadConfig
from lead_trainer.lead_view import LeadView
from lead_trainer.named_view import NamedView, config_beside
from lead_trainer.recipes.local_runs import (
    MixesTrees,
    Respells,
    WarnsAtStart,
    WritesOut,
    collections_of,
    source_root,
)
from lead_trainer.recipes.recipe import Inherits, NamesFiles, PartsRuns, Recipe, load_recipe
from lead_trainer.report.console import open_log
from lead_trainer.world import world_of

NAMESPACE, UID, STAGE = "local", "local", "train"
PRIVATE_FOLDER = ".lead"
PICTURES_FOLDER = "training_viz"  # LEAD writes outputs/training_viz, where runs overwrite each other's
IDENTITY_KEY = "identity"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LocalRun:
    """A run on this machine, as its user described it."""

    keys: RunKeys
    recipe: Recipe
    values: Mapping[str, Any]  # the recipe's keys, without the preset's
    config: Any  # resolved

    @property
    def logdir(self) -> Path:
        """Where LEAD's files appear."""
        return Path(self.keys.logdir)

    @cached_property  # it reads checkpoints, and what it found stays so while the run goes on
    def instance(self) -> InstanceKeys:
        """Where the run's objects lie in its folder's store: runs of several kinds may share one.

        A run that began before that was so goes on in the place without a kind.
        """
        plain = InstanceKeys(NAMESPACE, UID, STAGE, self.keys.seed)
        if not self._kind:
            return plain
        own, store = replace(plain, stage=f"{STAGE}-{self._kind}"), FolderStore(self.logdir / PRIVATE_FOLDER)
        began = manifest_keys(store, own.manifests_prefix)
        return own if began or self._kind_at(store, plain) != self._kind else plain

    @property
    def events_folder(self) -> Path:
        """Where event files are written; runs that share a folder would hide each other's steps."""
        return self.logdir / f"{self._kind}_seed{self.keys.seed}" if self._kind else self.logdir

    @property
    def _kind(self) -> str:
        return self._kind_of(self.config)

    def _kind_of(self, config: Any) -> str:
        return self.recipe.run_kind(config) if isinstance(self.recipe, PartsRuns) else ""

    def _kind_at(self, store: FolderStore, keys: InstanceKeys) -> str:
        """Returns the kind of the run whose newest checkpoint lies there; empty where none can be read."""
        for manifest in instance_manifests(store, keys)[:1]:
            with suppress(BadConfig):
                return self._kind_of(self.recipe.config(_keys_of(self, store, manifest)))
        return ""


def train_locally(words: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str]) -> None:
    """Trains the run that the words describe, or resumes it, once a seed; raises what `run_attempt` raises."""
    run = local_run(words, config_files, environ)
    world = world_of(environ)
    open_log(rank=world.rank)
    stop, group = StopFlag(), Group(world, device_of(world))
    each = [local_run([*words, *seed_words(run, seed)], config_files, environ) for seed in run.keys.seeds] or [run]
    for one in each:
        train_one(one, group, stop, environ)
    if run.keys.seeds and world.is_first:
        print(seeds_table(each))
    group.close()


def seed_words(run: LocalRun, seed: int) -> list[str]:
    """Returns what the command line says more for one seed of several."""
    return [f"seed={seed}", f"logdir={run.logdir / f'seed_{seed}'}"]


def train_one(run: LocalRun, group: Group, stop: StopFlag, environ: Mapping[str, str]) -> None:
    """Trains or resumes one run, every process of the group together."""
    world = group.world
    store = FolderStore(run.logdir / PRIVATE_FOLDER)
    if world.is_first and isinstance(run.recipe, WarnsAtStart):
        for sentence in run.recipe.warnings(run.config):
            log.warning(sentence)
    caches = cache_store(run, environ)

    def prepared() -> str:
        refuse_weights_alone(run, store)
        refuse_other_weights(run, store)
        refuse_older_checkpoint(run, store)
        return local_job(run, store, caches, processes=world.world_size).model_dump_json()

    job = TrainJob.model_validate_json(done_by_first(group, prepared))
    stop.listen_later()
    view = view_of(run, store, job.keys)
    place = Place(
        store,
        scratch_folder(run),
        session_cache_folder(run, environ),
        initial_weights=Path(run.keys.load_file) if run.keys.load_file else None,
        dataset_store=caches,
        events_folder=run.events_folder,
        pictures_folder=run.logdir / PICTURES_FOLDER,
        after_commit=view.show,
        wandb_identity=_identity(store),
    )
    run_attempt(job, place, group, stop)
    if world.is_first:
        view.show_newest(job.keys)


def scratch_folder(run: LocalRun) -> Path:
    """Returns where a run works on files; runs that share a logdir would empty each other's."""
    keys = run.instance
    return run.logdir / PRIVATE_FOLDER / "scratch" / f"{keys.stage}-s{keys.seed}"


def refuse_weights_alone(run: LocalRun, store: FolderStore) -> None:
    """Raises BadConfig where a run shall be continued of which there is nothing but the weights in `load_file`.

    LEAD reads the optimizer and the epoch from the files beside them; ours have a manifest, and no run without one is
    continued.
    """
    keys, found = run.instance, Path(run.keys.load_file)
    if not (run.keys.continue_failed_training and run.keys.load_file) or manifest_keys(store, keys.manifests_prefix):
        return
    own = (found.parent / PRIVATE_FOLDER).is_dir() and found.parent.resolve() != run.logdir.resolve()
    raise BadConfig(
        f"continue_failed_training: found true, but logdir {run.logdir} holds no checkpoint of `lead train`, and of "
        f"load_file {found} only the weights can be read: the run would begin again at epoch 0. "
        + (f"To continue that run set logdir={found.parent}; to" if own else "To")
        + " begin a run from these weights give load_file alone, with a new logdir"
    )


def refuse_other_weights(run: LocalRun, store: FolderStore) -> None:
    """Raises BadConfig where a run goes on that began with other weights than `load_file` now names.

    They would be left out in silence: only a run that begins loads any. Where the earlier file is gone or unknown, that
    is a warning.
    """
    manifests = instance_manifests(store, run.instance)
    if not run.keys.load_file or run.keys.resume == "never" or not manifests:
        return
    now = Path(run.keys.load_file)
    before = {Path(name) for manifest in manifests if (name := _keys_of(run, store, manifest).get("load_file"))}
    if now.resolve() in {path.resolve() for path in before}:
        return
    there = sorted(path for path in before if path.is_file())
    own = {stored.sha256 for manifest in manifests for stored in manifest.files.values()}
    if _sha256(now) in own | {_sha256(path) for path in there}:
        return
    if there:
        raise BadConfig(
            f"load_file: found {now}, but the run in logdir {run.logdir} began with {there[0]}, and a run that goes on "
            "takes no other weights; restore load_file, choose another logdir, or begin again with resume=never"
        )
    log.warning("load_file is not read: the run in logdir goes on from its own checkpoint; resume=never begins again",
                load_file=str(now), logdir=str(run.logdir), before=sorted(map(str, before)))  # fmt: skip


def refuse_older_checkpoint(run: LocalRun, store: FolderStore) -> None:
    """Raises BadConfig unless a file named by `resume` shows the newest checkpoint of an epoch's end of this run."""
    if run.keys.resume in ("auto", "never"):
        return
    if not isinstance(run.recipe, NamesFiles):
        raise BadConfig(f"resume: found {run.keys.resume!r}, expected auto or never")
    manifests = [manifest for manifest in instance_manifests(store, run.instance) if not manifest.step_in_epoch]
    if not manifests:
        raise BadConfig(
            f"resume: {run.keys.resume} is of no run that was made in {run.logdir}: {PRIVATE_FOLDER} there holds no "
            "checkpoint of it; resume where it was made, or give load_file to begin a run from these weights"
        )
    newest = manifests[0]
    is_best = ranked(manifests)[:1] == [newest]
    shown = run.recipe.shown_names(run.config, newest.epoch - 1, newest=True, best=is_best)
    if Path(run.keys.resume).name not in shown:
        raise BadConfig(
            f"resume: {run.keys.resume} is not the checkpoint of epoch {newest.epoch}, from which the run goes on; "
            "leave resume out to go on, or give load_file, with a new logdir, to begin a run from these weights"
        )


def _keys_of(run: LocalRun, store: FolderStore, manifest: CheckpointManifest) -> Mapping[str, Any]:
    """Returns the recipe's keys of the attempt that wrote a checkpoint; none where they cannot be read."""
    with suppress(KeyError, ValueError, StoreError):  # a spoiled checkpoint is judged when it is resumed
        document = json.loads(store.get(manifest.files["config.json"].key, max_bytes=MAX_CHECKPOINT_MANIFEST_BYTES))
        return keys_of_document(run.recipe, document)
    return {}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def view_of(run: LocalRun, store: FolderStore, keys: InstanceKeys) -> LeadView | NamedView:
    """Returns what shows a run's checkpoints in its folder."""
    objects = run.logdir / PRIVATE_FOLDER
    if isinstance(run.recipe, NamesFiles):
        return NamedView(run.logdir, objects, store, run.recipe, run.config, keys)
    return LeadView(run.logdir, objects, store, keys, getattr(run.config, "epoch_checkpoints_keep", ()))


def _identity(store: FolderStore) -> str:
    """Returns a name of this logdir that no other has, made when it is first used."""
    store.create(IDENTITY_KEY, uuid.uuid4().hex.encode())
    return store.get(IDENTITY_KEY, max_bytes=64).decode()


def local_run(words: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str]) -> LocalRun:
    """Resolves every source of configuration; raises BadConfig naming the key and who is wrong."""
    sources = read_sources(words, config_files, environ)
    recipe = load_recipe(str(sources.merged().get("recipe", RunKeys.recipe)))
    said = _said(sources, recipe)
    resolved = resolve(said, list(recipe.config_model.model_fields))
    logdir = _default(recipe, "logdir") or ""
    run = resolved.run if resolved.run.logdir else replace(resolved.run, logdir=logdir)
    if not run.logdir:
        raise BadConfig("logdir is not set: say where checkpoints go, for example logdir=outputs/training/pretrain")
    if run.load_file and not Path(run.load_file).is_file():
        raise BadConfig(f"load_file: there is no file {run.load_file}; name a model_<epoch>.pth")
    refuse_carla_root(run, recipe)
    values = recipe_values(recipe, Resolved(run, resolved.recipe))
    if "seed" not in said:
        values.pop("seed", None)  # the preset's, or the recipe's own
    config = recipe.config(values, run.preset)
    return LocalRun(replace(run, seed=getattr(config, "seed", run.seed)), recipe, values, config)


def refuse_carla_root(run: RunKeys, recipe: Recipe) -> None:
    """Raises BadConfig where `carla_root` is given to a recipe that does not read it."""
    known = recipe.config_model.model_fields
    if run.carla_root and "carla_root" not in known:
        roots = " or ".join(key for key in known if key.endswith("_root"))
        raise BadConfig(
            f"carla_root: found {run.carla_root!r}, but recipe {recipe.name} does not read it; "
            + (f"set {roots}" if roots else "remove the key")
        )


def _said(sources: Sources, recipe: Recipe) -> Mapping[str, Any]:
    """Returns what was said, under the trainer's names, by the one who wins."""
    said = sources.merged(recipe.written_out) if isinstance(recipe, WritesOut) else sources.merged()
    return recipe.respelled(said) if isinstance(recipe, Respells) else said


def _default(recipe: Recipe, key: str) -> Any:
    field = recipe.config_model.model_fields.get(key)
    return field.default if field is not None else None


def recipe_values(recipe: Recipe, resolved: Resolved) -> dict[str, Any]:
    """Returns the recipe's keys: what was said, over what is taken over from `load_file`'s stage."""
    run = resolved.run
    values: dict[str, Any] = {}
    if run.load_file:
        document = read_config_json(config_beside(Path(run.load_file)))
        taken_over = recipe.inherited_keys if isinstance(recipe, Inherits) else frozenset()
        values = {key: value for key, value in keys_of_document(recipe, document).items() if key in taken_over}
        if run.preset:
            named = recipe.config({}, run.preset).model_fields_set
            values = {key: value for key, value in values.items() if key not in named}
    told = {"seed": run.seed, "logdir": run.logdir, "load_file": run.load_file, "carla_root": run.carla_root,
            "epochs": run.epochs, "continue_failed_training": run.continue_failed_training}  # fmt: skip
    for key, value in told.items():
        if key in recipe.config_model.model_fields and value not in ("", None):
            values[key] = value
    return merged_keys(values, resolved.recipe)


def cache_store(run: LocalRun, environ: Mapping[str, str]) -> ObjectStore | None:
    """Returns where the dataset's cache is; None for a recipe that needs no dataset."""
    root = source_root(run.recipe, run.config)
    if root is None:
        return None
    return open_store(environ) if environ.get(environment.STORE_URL) else FolderStore(Path(root) / "cache")


def session_cache_folder(run: LocalRun, environ: Mapping[str, str]) -> Path | None:
    """Returns where shards are kept on this machine; None reads them in place, for a cache that is a folder here."""
    if run.keys.session_cache:
        return Path(run.keys.session_cache)
    remote = environ.get(environment.STORE_URL, "").startswith("s3://")
    return run.logdir / PRIVATE_FOLDER / "scratch" / "session-cache" if remote else None


def local_job(run: LocalRun, store: FolderStore, caches: ObjectStore | None, *, processes: int) -> TrainJob:
    """Returns the job of the next attempt, with the cache it reads built; for the first process alone."""
    try:
        run.logdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadConfig(f"logdir: {run.logdir} cannot be made a folder ({error.strerror}); choose another") from error
    datasets = []
    if caches is not None:
        parts = dataset_runs(run)
        datasets = [DatasetSource(name=name, digest=build_cache(part, caches)) for name, part in parts.items()]
    keys = run.instance
    return TrainJob(
        owner=OwnerIdentity(namespace=NAMESPACE, name=run.logdir.name or "run", uid=UID),
        stage=keys.stage,
        seed=run.keys.seed,
        attempt=newest_attempt(store, keys) + 1,
        recipe=run.recipe.name,
        preset=run.keys.preset,
        config=dict(run.values),
        epochs=run.config.epochs,
        nodes=1,
        procs_per_node=processes,
        datasets=datasets,
        checkpoint=CheckpointPolicy(
            every_epochs=run.keys.every_epochs,
            every_steps=run.keys.every_steps,
            on_best=run.keys.on_best,
            keep_last=run.keys.keep_last,
            keep_best=run.keys.keep_best,
            keep_every_epochs=run.keys.keep_every_epochs,
            resume="Never" if run.keys.resume == "never" else "Auto",
        ),
        logging=LoggingPolicy(
            tensorboard=run.keys.tensorboard, wandb_mode=run.keys.wandb_mode, wandb_project=run.keys.wandb_project
        ),
    )


def dataset_runs(run: LocalRun) -> dict[str, LocalRun]:
    """Returns the run as the cache of each of its raw trees sees it, by the tree's name."""
    if not isinstance(run.recipe, MixesTrees):
        return {"local": run}
    parts = {name: {**run.values, **keys} for name, keys in run.recipe.datasets(run.config).items()}
    return {
        name: replace(run, values=values, config=run.recipe.config(values, run.keys.preset))
        for name, values in parts.items()
    }


def build_cache(run: LocalRun, store: ObjectStore, collections: Sequence[str] = ()) -> str:
    """Builds what is missing of the run's cache and returns its digest."""
    config = {**run.values, **({"preset": run.keys.preset} if run.keys.preset else {})}
    job = BuildJob(
        owner=OwnerIdentity(namespace=NAMESPACE, name="local", uid=UID),
        generation=1,
        attempt=1,
        index=0,
        parallelism=1,
        recipe=run.recipe.name,
        source=FolderSource(path=str(source_root(run.recipe, run.config))),
        collections=list(collections) or collections_of(run.recipe, run.config),
        config=config,
    )
    phase = ""

    def tell(record: Any) -> None:
        nonlocal phase
        if record.phase != phase:
            phase = record.phase
            log.info(f"cache: {phase.lower()}", digest=record.digest[:12], samples=record.samples)

    return build(job, store, tell).digest


def seeds_table(runs: Sequence[LocalRun]) -> str:
    """Returns mean and standard deviation over finished runs of every metric of their last checkpoints."""
    newest = [instance_manifests(FolderStore(run.logdir / PRIVATE_FOLDER), run.instance)[0] for run in runs]
    last = [manifest.metrics for manifest in newest]
    rows = [f"{len(last)} seeds: mean ± standard deviation"]
    for name in sorted(set.intersection(*(set(metrics) for metrics in last))):
        values = [metrics[name] for metrics in last]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        rows.append(f"  {name:<32} {statistics.fmean(values):.6g} ± {spread:.3g}")
    return "\n".join(rows)
