"""Settings that a run without a cluster rejects, because it would not do what its user asked for."""

from pathlib import Path

import structlog

from lead_protocol.checkpoint_retention import ranked
from lead_protocol.manifests import sha256_of_file
from lead_protocol.store.folder import FolderStore
from lead_trainer.engine.checkpoints.instances import instance_manifests, instances_there
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys
from lead_trainer.errors import BadConfig
from lead_trainer.local.run import LocalRun, keys_of_checkpoint
from lead_trainer.local.store import NAMESPACE, PRIVATE_FOLDER, UID

log = structlog.get_logger(__name__)


def refuse_to_begin(run: LocalRun, store: FolderStore) -> None:
    """Raises BadConfig where a run would begin at step 0 and its recipe knows that its user expects otherwise."""
    if not manifest_keys(store, run.instance.manifests_prefix):
        run.recipe.keys.check_begin(run.config, Path(run.keys.load_file) if run.keys.load_file else None, run.logdir)


def refuse_another_run(run: LocalRun, store: FolderStore) -> None:
    """Raises BadConfig where the folder holds another run, whose files this one's would replace.

    Runs of one recipe that name their files by kind and seed may share a folder.
    """
    for keys in instances_there(store, NAMESPACE, UID):
        manifests = instance_manifests(store, keys) if keys != run.instance else []
        if not manifests or (manifests[0].recipe == run.recipe.name and run.recipe.files.run_kind is not None):
            continue
        raise BadConfig(
            f"logdir: {run.logdir} holds a run of recipe {manifests[0].recipe} with seed {keys.seed} (epoch "
            f"{manifests[0].epoch}), whose files this run of recipe {run.recipe.name} with seed {run.keys.seed} would "
            "replace; choose another logdir"
        )


def refuse_other_weights(run: LocalRun, store: FolderStore) -> None:
    """Raises BadConfig where a run goes on that began with other weights than `load_file` now names.

    They would be left out in silence: only a run that begins loads any. Where the earlier file is gone or unknown, that
    is a warning: it may have been moved, and then the run goes on as it should.
    """
    manifests = instance_manifests(store, run.instance)
    if not run.keys.load_file or run.keys.resume == "never" or not manifests:
        return
    now = Path(run.keys.load_file)
    documents = [keys for manifest in manifests if (keys := keys_of_checkpoint(run, store, manifest))]
    before = {Path(str(keys["load_file"])) for keys in documents if keys.get("load_file")}
    if now.resolve() in {path.resolve() for path in before}:
        return
    there = sorted(path for path in before if path.is_file())
    own = {stored.sha256 for manifest in manifests for stored in manifest.files.values()}
    if sha256_of_file(now) in own | {sha256_of_file(path) for path in there}:
        return
    if there:
        raise BadConfig(
            f"load_file: found {now}, but the run in logdir {run.logdir} began with {there[0]}, and a run that goes on "
            "takes no other weights; restore load_file, choose another logdir, or begin again with resume=never"
        )
    if documents and not before:
        raise BadConfig(
            f"load_file: found {now}, but the run in logdir {run.logdir} began without load_file, and a run that goes "
            "on takes no other weights; leave load_file out to go on, choose another logdir for a run from these "
            "weights, or begin again with resume=never"
        )
    log.warning("load_file is not read: the run in logdir goes on from its own checkpoint; resume=never begins again",
                load_file=str(now), logdir=str(run.logdir), before=sorted(map(str, before)))  # fmt: skip


def refuse_older_checkpoint(run: LocalRun, store: FolderStore) -> None:
    """Raises BadConfig unless a file named by `resume` holds the newest weights of an epoch's end of this run.

    The file is one that the run shows in its folder, or a copy of it under any name.
    """
    if run.keys.resume in ("auto", "never"):
        return
    if (shown_names := run.recipe.files.shown) is None:
        raise BadConfig(f"resume: found {run.keys.resume!r}, expected auto or never")
    manifests = [manifest for manifest in instance_manifests(store, run.instance) if not manifest.step_in_epoch]
    if not manifests:
        raise BadConfig(
            f"resume: {run.keys.resume} is of no run that was made in {run.logdir}: {PRIVATE_FOLDER} there holds no "
            "checkpoint of it; resume where it was made, or give load_file to begin a run from these weights"
        )
    newest, file = manifests[0], Path(run.keys.resume)
    is_best = ranked(manifests)[:1] == [newest]
    shown = shown_names(run.config, newest.epoch - 1, True, is_best)
    if file.parent.resolve() == run.logdir.resolve() and file.name in shown:
        return
    if sha256_of_file(file) not in {stored.sha256 for stored in newest.files.values()}:
        raise BadConfig(
            f"resume: {run.keys.resume} is not the checkpoint of epoch {newest.epoch}, from which the run goes on; "
            "leave resume out to go on, or give load_file, with a new logdir, to begin a run from these weights"
        )
