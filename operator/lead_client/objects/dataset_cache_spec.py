"""Spec of a DatasetCache: generated from crds/datasetcache.yaml by `python -m lead_testing.client_models`; do not edit."""
# One class a mapping of the schema.

from __future__ import annotations

from typing import Any, Literal

from lead_client.objects.parts import SpecPart


class Source(SpecPart):
    """
    Where the raw tree lies; exactly one of prefix and claimName.
    """

    prefix: str | None = None
    """
    Folder in the bucket of the storage profile, such as datasets/carla_leaderboard2. With several namespaces for runs it lies below datasets/<namespace>/, or in a folder that the profile shares.
    """
    claim_name: str | None = None
    """
    PersistentVolumeClaim in the same namespace, of those that the chart's policy.allowedClaims holds (lead-source-…). It is mounted read-only.
    """
    path: str | None = None
    """
    Folder in the volume. Absent means its root.
    """


class Resources(SpecPart):
    """
    Compute resources of each build pod, as in a container.
    """

    requests: dict[str, int | str] | None = None
    """
    What the scheduler sets aside for each pod.
    """
    limits: dict[str, int | str] | None = None
    """
    What each pod may use at most.
    """


class Resources1(SpecPart):
    """
    Compute resources of each of its pods, such as a GPU, besides those of build.resources or in their place.
    """

    requests: dict[str, int | str] | None = None
    """
    What the scheduler sets aside for each pod.
    """
    limits: dict[str, int | str] | None = None
    """
    What each pod may use at most.
    """


class Stage(SpecPart):
    name: str
    """
    A stage that the recipe offers, such as labels. It is part of pod names and object keys.
    """
    after: list[str] | None = None
    """
    Stages that have to be complete before this one begins. Absent, it begins at once.
    """
    workers: int | None = None
    """
    How many pods share the stage; 1 by default.
    """
    resources: Resources1 | None = None
    """
    Compute resources of each of its pods, such as a GPU, besides those of build.resources or in their place.
    """


class Toleration(SpecPart):
    key: str
    """
    Key of the taint.
    """
    operator: Literal["Equal", "Exists"] | None = None
    """
    Equal, the default, compares value; Exists takes any value.
    """
    value: str | None = None
    """
    Value of the taint, for operator Equal; empty by default.
    """
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """
    Effect of the taint.
    """
    toleration_seconds: int | None = None
    """
    For effect NoExecute, how long a pod stays on the tainted node.
    """


class Build(SpecPart):
    """
    The pods that build.
    """

    parallelism: int | None = None
    """
    How many pods share the work, or with build.stages its last stage. It does not change the result. Default: 1.
    """
    max_retries: int | None = None
    """
    How often one pod's share is tried again after an error before the build is Failed. Work that is done is kept. Default: 5.
    """
    resources: Resources | None = None
    """
    Compute resources of each build pod, as in a container.
    """
    stages: list[Stage] | None = None
    """
    Stages with pods of their own, before the last one (merge), which build.parallelism and build.resources describe and which waits for all of them. The recipe defines the stages it offers. Absent or empty: each pod does all the work of its share. The result is the same.
    """
    node_selector: dict[str, str] | None = None
    """
    Labels a node must have to build on it.
    """
    tolerations: list[Toleration] | None = None
    """
    Taints the build pods tolerate. Each names its key; a toleration of everything is refused.
    """


class DatasetCacheSpec(SpecPart):
    """
    What to prepare. Another source, other collections or another config start a new build; if they resolve to the same digest again, nothing is done twice. All other changes leave a complete cache Ready. recipe and storageProfile are fixed after creation.
    """

    recipe: str
    """
    Whose preparation to run: lead, distill, world, nuplan, or another that the trainer image contains.
    """
    storage_profile: str | None = None
    """
    Which object store keeps the cache (and the raw tree, for source.prefix): the name of a storage profile that the administrator defined in the Helm chart. Default: default.
    """
    source: Source
    """
    Where the raw tree lies; exactly one of prefix and claimName.
    """
    collections: list[str] | None = None
    """
    The recipe's bucket collections to index, such as full_pretrain. Empty means all that the recipe has.
    """
    config: dict[str, Any] | None = None
    """
    The recipe's preparation keys. All of them enter the digest. An unknown key or a wrong type fails the build with a message that names it and near matches.
    """
    build: Build | None = None
    """
    The pods that build.
    """
    expect_digest: str | None = None
    """
    The digest that the build must come to, 64 hexadecimal digits; another one fails it. Absent means any. Pin it to be sure that data and preparation are those of an earlier build.
    """
    retain: Literal["Retain", "Delete"] | None = None
    """
    What becomes of the data in the object store when this DatasetCache is deleted. Retain keeps it: the next cache that comes to the same digest has it at once. Delete removes it, also that of earlier specs, as soon as no other DatasetCache and no unfinished TrainingRun uses it; until then, and while no operator runs, the DatasetCache stays. Only for a store that one operator has for itself. Default: Retain.
    """
