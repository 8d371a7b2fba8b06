"""`lead export`: the weights of a run, taken out of a store for evaluation."""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lead_protocol.checkpoint_retention import ranked
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.engine.checkpoints.instances import instance_manifests, instances
from lead_trainer.engine.checkpoints.manifest_listing import model_file_name
from lead_trainer.engine.checkpoints.quarantine import fetch_fault
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.errors import BadConfig, BadData, NoSuchRecipe, missing_extra
from lead_trainer.local.config_sources import read_config_json
from lead_trainer.local.store import NAMESPACE, UID, logdirs_of, store_in
from lead_trainer.storage import named_store

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


def export_run(
    run: str, folder: Path, stage: str, store: str | None, environ: Mapping[str, str], *, best: bool = False
) -> None:
    """Writes the newest (or best) valid weights of each seed as LEAD's evaluation reads them: an ensemble, one config.

    Weights that were averaged while training are the ones that were validated, and so the ones that are written.
    """
    logdirs = logdirs_of(Path(run))
    local: list[ObjectStore] = [store_in(logdir) for logdir in logdirs]
    address = Address(None, NAMESPACE, UID) if logdirs else parse_address(run)
    if best and address.checkpoint_prefix:
        raise BadConfig(f"export: {run} is one checkpoint, and --best asks for another; leave one of them out")
    if store and address.store:
        raise BadConfig(f"export: {run} names its store, and --store names {store}; leave one of them out")
    stores = local or [named_store(address.store or store, environ)]
    found = [(keys, each) for each in stores for keys in instances(each, address.namespace, address.uid)]
    stages = sorted({keys.stage for keys, _ in found})
    if address.instance is not None:
        found = [(keys, each) for keys, each in found if keys == address.instance]
        stage = stage or address.instance.stage
    wanted = stage or ("posttrain" if "posttrain" in stages else stages[0] if len(stages) == 1 else "")
    chosen = [(keys, each) for keys, each in found if keys.stage == wanted]
    if not chosen:
        raise BadConfig(
            f"export: stage {wanted!r} is not below {run}; the run has {', '.join(stages)}; name one by --stage"
        )
    if folder.is_dir() and any(file.suffix in (".pth", ".pt") for file in folder.iterdir()):
        raise BadConfig(f"export: {folder} holds model files, which would join the ensemble; choose an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    recipe = ""
    for keys, each in chosen:
        target, recipe = _export_instance(each, keys, folder, address.checkpoint_prefix, best=best)
        print(target)
    _fit_for_evaluation(recipe, folder / "config.json")


def export_checkpoint(store: ObjectStore, keys: InstanceKeys, folder: Path, checkpoint_prefix: str) -> Path:
    """Writes the weights of one checkpoint as LEAD's evaluation reads them; returns their file; raises BadData."""
    target, recipe = _export_instance(store, keys, folder, checkpoint_prefix, best=False)
    _fit_for_evaluation(recipe, folder / "config.json")
    return target


def parse_address(text: str) -> Address:
    """Returns what `runs/…` or `s3://…/runs/…`, as in a run's status, names; raises BadConfig for anything else."""
    match = _ADDRESS.fullmatch(text.strip("/"))
    if match is None:
        raise BadConfig(
            f"export: found {text!r}, expected runs/<namespace>/<uid>, an address as status.stages[].checkpoint.uri "
            "shows it (s3://…/runs/…), or a logdir of lead train"
        )
    run = match["store"], match["namespace"], match["uid"]
    if match["stage"] is None:
        return Address(*run)
    keys = InstanceKeys(match["namespace"], match["uid"], match["stage"], int(match["seed"]))
    below = (match["checkpoint"] or "").removeprefix("/checkpoints/")
    return Address(*run, keys, f"{keys.checkpoints_prefix}{below}/" if below else "")


def _fit_for_evaluation(name: str, config_json: Path) -> None:
    """Rewrites an exported `config.json` for the program that evaluates it, if its recipe is installed."""
    if find_spec("torch") is None:
        print(f"config.json is as the run wrote it, not as LEAD's evaluation reads it: {missing_extra('torch')}")
        return
    from lead_trainer.contract.installed import load_recipe

    try:
        recipe = load_recipe(name)
    except NoSuchRecipe:  # weights are copied without their recipe too
        return
    except BadConfig as error:
        print(f"config.json is as the run wrote it, not as an evaluation reads it: {error}")
        return
    if recipe.keys.for_evaluation is not None:
        document, notes = recipe.keys.for_evaluation(json.loads(config_json.read_text(encoding="utf-8")))
        config_json.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        for sentence in notes:
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
        f"{checkpoint_prefix} is no valid checkpoint, or was removed since: its stage keeps the newest and the best"
        if checkpoint_prefix
        else f"{keys.prefix} has no valid checkpoint of an epoch's end"
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
