"""A run without a cluster, as its user described it: resolved keys, and where its objects are."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.merged_keys import merged_keys
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreError
from lead_trainer.contract.config_values import near_matches
from lead_trainer.contract.installed import load_recipe, other_recipes, recipe_names
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.training_keys import key_name, key_names, values_at
from lead_trainer.errors import BadConfig
from lead_trainer.local.config_sources import (
    Resolved,
    Sources,
    read_config_json,
    read_sources,
    replaced_values,
    resolve,
)
from lead_trainer.local.foreign_document import other_recipe
from lead_trainer.local.named_view import config_beside
from lead_trainer.local.run_keys import DEFAULT_RECIPE, RunKeys
from lead_trainer.local.store import NAMESPACE, PRIVATE_FOLDER, STAGE, UID

MAX_CONFIG_BYTES = 1024 * 1024


@dataclass(frozen=True)
class LocalRun:
    """A run on this machine, as its user described it."""

    keys: RunKeys
    recipe: Recipe[Any]
    values: Mapping[str, Any]  # the recipe's keys, without the preset's
    config: Any  # resolved
    replaced: Sequence[str] = ()  # values of files that a later file replaces, a sentence each

    @property
    def logdir(self) -> Path:
        """Where LEAD's files appear."""
        return Path(self.keys.logdir)

    @property
    def instance(self) -> InstanceKeys:
        """Where the run's objects lie in its folder's store: runs of several kinds may share one."""
        stage = f"{STAGE}-{self._kind}" if self._kind else STAGE
        return InstanceKeys(NAMESPACE, UID, stage, self.keys.seed)

    @property
    def lock_name(self) -> str:
        """What one process at a time may train in the folder: a run, and of files without kind and seed any run."""
        return self.instance.name if self._kind else self.instance.stage

    @property
    def events_folder(self) -> Path:
        """Where event files are written; runs that share a folder would hide each other's steps."""
        return self.logdir / f"{self._kind}_seed{self.keys.seed}" if self._kind else self.logdir

    @property
    def scratch_folder(self) -> Path:
        """Where it works on files; runs that share a logdir would empty each other's."""
        return self.logdir / PRIVATE_FOLDER / "scratch" / self.instance.name

    @property
    def _kind(self) -> str:
        kind = self.recipe.files.run_kind
        return "" if kind is None else kind(self.config)


def local_run(arguments: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str]) -> LocalRun:
    """Resolves every source of configuration; raises BadConfig naming the key and who is wrong."""
    sources = read_sources(arguments, config_files, environ)
    merged = sources.merged()
    recipe = installed_recipe(str(merged.get("recipe", DEFAULT_RECIPE)))
    sources = replace(sources, files=[
        dict(recipe.keys.from_document(keys)) if path.suffix == ".json" else keys
        for path, keys in zip(config_files, sources.files, strict=True)
    ])  # fmt: skip
    given = _given(sources, recipe)
    if "recipe" not in merged:
        _refuse_keys_of_another_recipe(given, recipe)
    resolved = resolve(given, key_names(recipe.config_model))
    logdir = _default(recipe, "logdir") or ""
    run = resolved.run if resolved.run.logdir else resolved.run.model_copy(update={"logdir": logdir})
    if not run.logdir:
        raise BadConfig("logdir is not set: name a folder for checkpoints, such as logdir=outputs/training/pretrain")
    if run.load_file and not Path(run.load_file).is_file():
        raise BadConfig(f"load_file: there is no file {run.load_file}; name a model_<epoch>.pth")
    values = recipe_values(recipe, Resolved(run, resolved.recipe))
    if "seed" not in given:
        values.pop("seed", None)  # the preset's, or the recipe's own
    config = recipe.config(values, run.preset)
    keys = run.model_copy(update={"seed": getattr(config, "seed", run.seed)})
    replaced = replaced_values([str(path) for path in config_files], list(map(recipe.keys.expand, sources.files)))
    return LocalRun(keys, recipe, values, config, replaced)


def dataset_run(arguments: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str]) -> LocalRun:
    """Returns the run of a command that writes no results, so that needs no logdir; its recipe must read a dataset."""
    named = any(argument.startswith("logdir=") for argument in arguments)
    run = local_run([*arguments, *([] if named else ["logdir=."])], config_files, environ)
    if run.recipe.preparation is None:
        raise BadConfig(f"recipe {run.recipe.name} reads no dataset")
    return run


def installed_recipe(name: str) -> Recipe[Any]:
    """Returns a recipe; raises BadConfig with the choices where none of this name is installed."""
    if name not in (names := recipe_names()):
        raise BadConfig(f"recipe: found {name!r}, expected one of {', '.join(names)}{near_matches(name, names)}")
    return load_recipe(name)


def _refuse_keys_of_another_recipe(given: Mapping[str, Any], recipe: Recipe[Any]) -> None:
    """Raises BadConfig where keys that are unknown here are another recipe's: its name was forgotten."""
    known = {*RunKeys.model_fields, *key_names(recipe.config_model)}
    unknown = {key.split(".")[0] for key in given} - known
    for other in other_recipes(recipe.name) if unknown else ():
        if unknown <= set(key_names(other.config_model)):
            raise BadConfig(
                f"{min(unknown)}: unknown key of recipe {recipe.name}, which is trained where none is named; recipe "
                f"{other.name} has it: add recipe={other.name}"
            )


def _given(sources: Sources, recipe: Recipe[Any]) -> Mapping[str, Any]:
    """Returns the given keys, under the trainer's names, from the winning sources."""
    return recipe.keys.respell(sources.merged(recipe.keys.expand))


def _default(recipe: Recipe[Any], key: str) -> Any:
    field = recipe.config_model.model_fields.get(key)
    return field.default if field is not None else None


def recipe_values(recipe: Recipe[Any], resolved: Resolved) -> dict[str, Any]:
    """Returns the recipe's keys: the given ones, over those inherited from `load_file`'s stage."""
    run = resolved.run
    values: dict[str, Any] = {}
    if run.load_file:
        beside = config_beside(Path(run.load_file))
        document = read_config_json(beside)
        if other := other_recipe(recipe.name, document):
            raise BadConfig(
                f"load_file: {run.load_file} is of recipe {other}, not {recipe.name}, as {beside} shows; name weights "
                f"of recipe {recipe.name}, or train with recipe={other}"
            )
        set_there = recipe.keys.from_document(document)
        values = values_at(set_there, recipe.keys.inherited)
        if run.preset:
            model = recipe.config_model
            named = {key_name(model, name) for name in recipe.config({}, run.preset).model_fields_set}
            values = {key: value for key, value in values.items() if key not in named}
    shared = {"seed": run.seed, "logdir": run.logdir, "load_file": run.load_file, "epochs": run.epochs}
    for key, value in shared.items():
        if key in recipe.config_model.model_fields and value not in ("", None):
            values[key] = value
    return merged_keys(values, resolved.recipe)


def keys_of_checkpoint(run: LocalRun, store: FolderStore, manifest: CheckpointManifest) -> Mapping[str, Any]:
    """Returns the recipe's keys of the attempt that wrote a checkpoint; none where they cannot be read."""
    with suppress(KeyError, ValueError, StoreError):  # a corrupt checkpoint is reported when it is resumed
        document = json.loads(store.get(manifest.files["config.json"].key, max_bytes=MAX_CONFIG_BYTES))
        return run.recipe.keys.from_document(document)
    return {}
