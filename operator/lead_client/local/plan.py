"""What a TrainingRun means on one machine: one `lead train` per stage and seed, in order. Pure.

What only a cluster can do is rejected. What concerns the cluster alone (resources, scheduling, restarts, deadlines) has
no effect here, and `without_effect` names it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lead_client.errors import NotSupported
from lead_client.objects.manifests import TrainingRun
from lead_client.objects.training_run_spec import Stage
from lead_protocol.merged_keys import merged_keys
from lead_protocol.object_keys import instance_name

_OF_A_CLUSTER = ("storage_profile", "session_cache", "failure_policy", "active_deadline_seconds",
                 "pending_deadline_seconds", "ttl_seconds_after_finished", "clean_pod_policy", "grace_period_seconds",
                 "scheduling", "resources", "pod_overrides")  # fmt: skip


@dataclass(frozen=True)
class StageRun:
    """One stage and seed."""

    stage: str
    seed: int
    processes: int
    keys: Mapping[str, Any]  # of the run and of the recipe
    parent: str = ""  # the stage instance whose weights it begins with

    @property
    def name(self) -> str:
        """Its folder below the run's."""
        return instance_name(self.stage, self.seed)


def stage_runs(run: TrainingRun, caches: Mapping[str, Mapping[str, Any]], here: Mapping[str, Any]) -> list[StageRun]:
    """Returns what is to be run, in order; raises NotSupported naming the field that only a cluster has.

    `caches`: the config of each submitted DatasetCache by name; `here`: keys that name places on this machine.
    """
    spec = run.spec
    for field, given in (
        ("closedLoop", spec.closed_loop),
        ("checkpoint.from", spec.checkpoint and spec.checkpoint.from_),
    ):
        if given:
            raise _not_here(run, field, "remove it, or submit the run to a Cluster()")
    if (spec.parallelism or 1) > 1:
        raise _not_here(run, "parallelism", "set it to 1: stages and seeds are trained one after another")
    shared: dict[str, Any] = {}
    for dataset in spec.datasets:
        if dataset.cache_ref.name not in caches:
            raise NotSupported(f"TrainingRun {run.name}: spec.datasets: there is no DatasetCache "
                               f"{dataset.cache_ref.name} here; submit it first")  # fmt: skip
        shared = merged_keys(shared, caches[dataset.cache_ref.name])
    stages = spec.stages or [Stage(name="train")]
    seeds: dict[str, Sequence[int]] = {}
    found = []
    for stage in stages:
        if stage.kind == "Evaluation" or (stage.init_from is not None and stage.init_from.uri):
            field = "kind: Evaluation" if stage.kind == "Evaluation" else "initFrom.uri"
            raise _not_here(run, f"stages[{stage.name}].{field}", "use `lead evaluate`, or `lead train load_file=…`")
        seeds[stage.name] = stage.seeds or [0]
        parent = stage.init_from.stage if stage.init_from is not None else None
        if parent is not None and parent not in seeds:
            raise NotSupported(f"TrainingRun {run.name}: spec.stages[{stage.name}].initFrom.stage: found {parent!r}, "
                               f"expected an earlier stage: {', '.join(seeds) or 'there is none'}")  # fmt: skip
        keys = merged_keys(shared, dict(spec.config or {}), dict(stage.config or {}), dict(here), _run_keys(run, stage))
        for seed in seeds[stage.name]:
            of = seed if parent and seed in seeds[parent] else seeds[parent][0] if parent else 0
            begins = instance_name(parent, of) if parent else ""
            found.append(StageRun(stage.name, seed, _processes(run), {**keys, "seed": seed}, begins))
    return found


def without_effect(run: TrainingRun) -> list[str]:
    """Returns the fields of a spec that have no effect on this machine, as the CRD names them."""
    document = run.spec.document()
    fields = type(run.spec).model_fields
    names = {name: fields[name].alias or name for name in _OF_A_CLUSTER}
    return [names[name] for name in _OF_A_CLUSTER if names[name] in document]


def _run_keys(run: TrainingRun, stage: Stage) -> dict[str, Any]:
    """Returns the keys of `lead train` for what the spec has fields for."""
    spec, checkpoint, logging = run.spec, run.spec.checkpoint, run.spec.logging
    keys: dict[str, Any] = {"recipe": spec.recipe, "preset": spec.preset, "epochs": stage.epochs}
    if checkpoint is not None:
        keys |= {name: getattr(checkpoint, name) for name in
                 ("every_epochs", "every_steps", "keep_last", "keep_best", "keep_every_epochs", "on_best")}  # fmt: skip
        keys["resume"] = checkpoint.resume.lower() if checkpoint.resume else None
    if logging is not None:
        keys["tensorboard"] = logging.tensorboard
        if logging.wandb is not None:
            keys |= {"wandb_mode": (logging.wandb.mode or "Online").lower(), "wandb_project": logging.wandb.project}
    return {key: value for key, value in keys.items() if value is not None}


def _processes(run: TrainingRun) -> int:
    limits = run.spec.resources.limits if run.spec.resources is not None else None
    gpus = sum(int(amount) for name, amount in (limits or {}).items() if name.endswith("/gpu"))
    each = run.spec.procs_per_node
    return (run.spec.nodes or 1) * (each if isinstance(each, int) else max(1, gpus))


def _not_here(run: TrainingRun, field: str, remedy: str) -> NotSupported:
    return NotSupported(f"TrainingRun {run.name}: spec.{field} needs a cluster; {remedy}")
