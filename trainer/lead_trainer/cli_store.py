"""`lead fsck` and `lead export`: what lies in a store, checked object by object, and taken out for evaluation."""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from lead_protocol import environment
from lead_protocol.checkpoint_retention import ranked
from lead_protocol.exit_codes import ExitCode
from lead_protocol.manifests import MAX_CHECKPOINT_MANIFEST_BYTES, CheckpointManifest
from lead_protocol.object_keys import CacheKeys, InstanceKeys, position_of
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.config_sources import read_config_json
from lead_trainer.data.fsck import fsck_cache
from lead_trainer.engine.instances import instance_manifests, instances
from lead_trainer.engine.manifest_listing import manifest_keys, model_file_name
from lead_trainer.engine.quarantine import fetch_fault, find_fault, quarantined_positions
from lead_trainer.engine.retry_budget import RetryBudget
from lead_trainer.engine.storage import open_store
from lead_trainer.errors import BadConfig, BadData, NoSuchRecipe, missing_extra
from lead_trainer.local_store import NAMESPACE, UID, logdirs_of, store_in

_ADDRESS = re.compile(
    r"((?P<store>[a-z0-9]+://.*?)/)?runs/(?P<namespace>[^/]+)/(?P<uid>[^/]+)"
    r"(/(?P<stage>[^/]+)-s(?P<seed>[0-9]+)(?P<checkpoint>/checkpoints/[0-9]{12}/[^/]+)?)?"
)


@dataclass(frozen=True)
class Address:
    """What a person named in a store: a run, or one stage and seed of it, or one checkpoint of that."""

    store: str | None  # None: the environment's
    namespace: str
    uid: str
    instance: InstanceKeys | None = None
    checkpoint_prefix: str = ""  # of its data objects; empty: no certain one


def check_prefix(prefix: str, url: str | None, environ: Mapping[str, str]) -> int:
    """Checks a cache, a run or a logdir and prints one line a finding; returns 65 when anything is wrong."""
    if logdirs := logdirs_of(Path(prefix)):
        if url:
            raise BadConfig(f"fsck: {prefix} is a logdir, which has a store of its own; leave --store out")
        results = [_checked_checkpoints(store_in(logdir), NAMESPACE, UID) for logdir in logdirs]
        return _tell_checkpoints(prefix, chain(*results))
    parts = prefix.strip("/").split("/")
    if parts[0] not in ("caches", "runs") or len(parts) != 3:
        raise BadConfig(
            f"fsck: found {prefix!r}, expected caches/<namespace>/<digest>, runs/<namespace>/<uid>, or a logdir of "
            "lead train"
        )
    store = store_of(url, environ)
    if parts[0] == "caches":
        findings = [f"{finding.key}: {finding.fault}" for finding in fsck_cache(store, CacheKeys(parts[1], parts[2]))]
        return _tell_findings(f"{prefix}: 1 cache", findings)
    return _tell_checkpoints(prefix, _checked_checkpoints(store, parts[1], parts[2]))


def _tell_checkpoints(prefix: str, results: Iterable[str]) -> int:
    faults = list(results)
    return _tell_findings(f"{prefix}: {len(faults)} checkpoints", [fault for fault in faults if fault])


def _tell_findings(checked: str, findings: Sequence[str]) -> int:
    """Prints what is wrong, and what was checked; returns the exit code."""
    for finding in findings:
        print(finding)
    print(f"{checked} checked, {len(findings)} findings")
    return ExitCode.BAD_DATA if findings else ExitCode.DONE


def _checked_checkpoints(store: ObjectStore, namespace: str, uid: str) -> Iterator[str]:
    """Yields "" for each sound checkpoint of a run, and what is wrong with each other one."""
    for keys in instances(store, namespace, uid):
        bad = quarantined_positions(store, keys.quarantine_prefix)
        for key in manifest_keys(store, keys.manifests_prefix):
            if position_of(key) in bad:
                continue
            with tempfile.TemporaryDirectory(prefix="lead-fsck-") as folder:
                fault, _, _ = find_fault(store, keys, key, Path(folder), MAX_CHECKPOINT_MANIFEST_BYTES)
            yield f"{key}: {fault}" if fault else ""


def export_run(
    run: str, folder: Path, stage: str, url: str | None, environ: Mapping[str, str], *, best: bool = False
) -> None:
    """Writes the newest (or best) sound weights of each seed as LEAD's evaluation reads them: an ensemble, one config.

    Weights that were averaged while training are the ones that were validated, and so the ones that are written.
    """
    logdirs = logdirs_of(Path(run))
    local: list[ObjectStore] = [store_in(logdir) for logdir in logdirs]
    address = Address(None, NAMESPACE, UID) if logdirs else parse_address(run)
    if best and address.checkpoint_prefix:
        raise BadConfig(f"export: {run} is one checkpoint, and --best asks for another; leave one of them out")
    if url and address.store:
        raise BadConfig(f"export: {run} names its store, and --store names {url}; leave one of them out")
    stores = local or [store_of(address.store or url, environ)]
    found = [(keys, store) for store in stores for keys in instances(store, address.namespace, address.uid)]
    stages = sorted({keys.stage for keys, _ in found})
    if address.instance is not None:
        found = [(keys, store) for keys, store in found if keys == address.instance]
        stage = stage or address.instance.stage
    wanted = stage or ("posttrain" if "posttrain" in stages else stages[0] if len(stages) == 1 else "")
    chosen = [(keys, store) for keys, store in found if keys.stage == wanted]
    if not chosen:
        raise BadConfig(
            f"export: stage {wanted!r} is not below {run}; the run has {', '.join(stages)}; name one by --stage"
        )
    if folder.is_dir() and any(file.suffix in (".pth", ".pt") for file in folder.iterdir()):
        raise BadConfig(f"export: {folder} holds model files, which would join the ensemble; choose an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    recipe = ""
    for keys, store in chosen:
        target, recipe = _export_instance(store, keys, folder, address.checkpoint_prefix, best=best)
        print(target)
    _fit_for_evaluation(recipe, folder / "config.json")


def parse_address(text: str) -> Address:
    """Returns what `runs/…` or `s3://…/runs/…`, as in a run's status, names; raises BadConfig for anything else."""
    match = _ADDRESS.fullmatch(text.strip("/"))
    if match is None:
        raise BadConfig(
            f"export: found {text!r}, expected runs/<namespace>/<uid>, an address as status.checkpoint.uri shows it "
            "(s3://…/runs/…), or a logdir of lead train"
        )
    run = match["store"], match["namespace"], match["uid"]
    if match["stage"] is None:
        return Address(*run)
    keys = InstanceKeys(match["namespace"], match["uid"], match["stage"], int(match["seed"]))
    below = (match["checkpoint"] or "").removeprefix("/checkpoints/")
    return Address(*run, keys, f"{keys.checkpoints_prefix}{below}/" if below else "")


def _fit_for_evaluation(name: str, config_json: Path) -> None:
    """Rewrites an exported `config.json` for whoever evaluates it, where the recipe is installed and says how."""
    if find_spec("torch") is None:
        print(f"config.json is as the run wrote it, not as LEAD's evaluation reads it: {missing_extra('torch')}")
        return
    from lead_trainer.contract.installed import load_recipe

    try:
        recipe = load_recipe(name)
    except NoSuchRecipe:  # weights are copied without their recipe too
        return
    if recipe.keys.for_evaluation is not None:
        document, told = recipe.keys.for_evaluation(json.loads(config_json.read_text(encoding="utf-8")))
        config_json.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        for sentence in told:
            print(sentence)


def _export_instance(
    store: ObjectStore, keys: InstanceKeys, folder: Path, checkpoint_prefix: str, *, best: bool
) -> tuple[Path, str]:
    manifests = instance_manifests(store, keys)
    for manifest in ranked(manifests) if best else manifests:
        name = model_file_name(manifest)
        if not manifest.files[name].key.startswith(checkpoint_prefix):
            continue
        if manifest.step_in_epoch and not checkpoint_prefix:
            continue
        wanted = manifest.model_copy(update={"files": {part: manifest.files[part] for part in (name, "config.json")}})
        with tempfile.TemporaryDirectory(prefix="lead-export-") as scratch:
            waiting = RetryBudget()
            waiting.begin()
            if waiting.call(fetch_fault, store, wanted, Path(scratch)) is None:
                plain = manifest.parts.get("model", name)  # also of averaged weights
                target = folder / exported_name(plain, keys.seed)
                shutil.copyfile(Path(scratch) / name, target)
                shutil.copyfile(Path(scratch) / "config.json", folder / "config.json")
                _warn_if_unfinished(manifests[0], read_config_json(folder / "config.json"))
                return target, manifest.recipe
    raise BadData(
        f"{checkpoint_prefix} is no sound checkpoint, or was removed since: its stage keeps the newest and the best"
        if checkpoint_prefix
        else f"{keys.prefix} has no sound checkpoint of an epoch's end"
    )


def exported_name(plain: str, seed: int) -> str:
    """Returns the name of a seed's weights in a bundle: `model_0030_<seed>.pth`; one that names its seed is kept."""
    if f"_seed{seed}_" in plain:
        return plain
    path = Path(plain)
    return f"{path.stem}_{seed}{path.suffix}"


def _warn_if_unfinished(newest: CheckpointManifest, document: Mapping[str, Any]) -> None:
    epochs = document.get("epochs")
    if not newest.final and type(epochs) is int and newest.epoch < epochs:
        print(f"warning: epoch {newest.epoch} of {epochs}; the run is not finished", file=sys.stderr)


def store_of(url: str | None, environ: Mapping[str, str]) -> ObjectStore:
    """Returns the store a person named, or the environment's."""
    return open_store({**environ, environment.STORE_URL: url} if url else environ)
