"""Every name the operator gives: labels, annotations, condition types, reasons, names of children.

Child names are a pure function of what they stand for, so a second pass after a crash makes the same name again, and
never longer than 63 characters: a long or dotted owner name is cut and gets eight digits of its hash.
"""

import hashlib
import re
from enum import StrEnum
from typing import Final

GROUP: Final = "lead.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
TRAINING_RUN_KIND: Final = "TrainingRun"
DATASET_CACHE_KIND: Final = "DatasetCache"
FIELD_MANAGER: Final = "lead-operator"

MAX_NAME: Final = 63  # a pod's name is its hostname, a label value has the same limit


class Label:
    """Keys of the labels on pods, services and claims."""

    APP = "app.kubernetes.io/name"
    MANAGED_BY = "app.kubernetes.io/managed-by"
    COMPONENT = "app.kubernetes.io/component"
    OWNER_UID = "lead.dev/owner-uid"
    RUN = "lead.dev/run"
    CACHE = "lead.dev/cache"
    ROLE = "lead.dev/role"
    STAGE = "lead.dev/stage"
    SEED = "lead.dev/seed"
    ATTEMPT = "lead.dev/attempt"
    RANK = "lead.dev/rank"
    NODES = "lead.dev/nodes"
    EPOCH = "lead.dev/epoch"
    SHARED_CLAIM = "lead.dev/shared-claim"
    GENERATION = "lead.dev/generation"
    INDEX = "lead.dev/index"
    QUEUE_NAME = "kueue.x-k8s.io/queue-name"
    POD_GROUP = "kueue.x-k8s.io/pod-group-name"


class Annotation:
    """Keys of the annotations on pods and runs; Kueue's as its page "Run Plain Pods" has them."""

    POD_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
    POD_RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
    LAST_CHECKPOINT = "volcano.sh/last-checkpoint-time"
    CLOSED_LOOP = "lead.dev/closed-loop"  # on a TrainingRun: each new value asks for one evaluation
    PULLS = "lead.dev/pulls"  # image, pull policy and pull secrets that the chart's values held for this pod


class Role(StrEnum):
    """Value of Label.ROLE: what a pod is for."""

    TRAIN = "train"
    BUILD = "build"
    CHECK = "check"
    CLOSED_LOOP = "closed-loop"


APP_NAME: Final = "lead"
MANAGED_SELECTOR: Final = f"{Label.MANAGED_BY}={FIELD_MANAGER}"  # every child carries it: the informers' selector


class Condition(StrEnum):
    """Types of conditions; the descriptions in the CRDs list them."""

    ACCEPTED = "Accepted"
    CONFIG_CHECKED = "ConfigChecked"
    STORAGE_AVAILABLE = "StorageAvailable"
    DATASET_READY = "DatasetReady"
    SOURCE_DRIFT = "SourceDrift"
    READY = "Ready"
    PROGRESSING = "Progressing"
    CHECKPOINTED = "Checkpointed"
    CHECKPOINTS_VALID = "CheckpointsValid"
    SESSION_CACHE_DEGRADED = "SessionCacheDegraded"
    ADVISORY = "Advisory"
    CLOSED_LOOP = "ClosedLoop"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class RunPhase(StrEnum):
    """Phases of a TrainingRun."""

    PENDING = "Pending"
    CACHING = "Caching"
    STARTING = "Starting"
    RUNNING = "Running"
    CHECKPOINTING = "Checkpointing"
    RECOVERING = "Recovering"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CachePhase(StrEnum):
    """Phases of a DatasetCache."""

    PENDING = "Pending"
    BUILDING = "Building"
    READY = "Ready"
    FAILED = "Failed"
    DELETING = "Deleting"


CACHE_DATA_FINALIZER: Final = f"{GROUP}/cache-data"  # only on caches with retain Delete: their data go first


def training_pod_name(run: str, stage: str, seed: int, attempt: int, rank: int) -> str:
    """Returns `<run>-<stage>-s<seed>-a<attempt>-<rank>`; with digits of the run's hash where the stage has a dash."""
    return _child(run, f"-{stage}-s{seed}-a{attempt}-{rank}", plainly="-" not in stage)


def rank_service_name(run: str) -> str:
    """Returns `<run>-ranks`, the headless service in which pod names resolve."""
    return _child(run, "-ranks")


def session_cache_claim_name(run: str, rank: int) -> str:
    """Returns `<run>-cache-<rank>`: rank k finds its warm cache again whatever the attempt."""
    return _child(run, f"-cache-{rank}")


def shared_cache_claim_name(name: str, rank: int) -> str:
    """Returns `<name>-shared-<rank>`: rank k of every run that gives the name finds the same warm cache.

    No run's own claim ends like it: `<name>-shared-cache-<rank>` would be that of a run `<name>-shared`.
    """
    return _child(name, f"-shared-{rank}")


def build_pod_name(cache: str, generation: int, attempt: int, index: int, stage: str = "") -> str:
    """Returns `<cache>-build-g<generation>-a<attempt>-<index>`, of a stage `<cache>-build-<stage>-g…`."""
    return _child(cache, f"-build{f'-{stage}' if stage else ''}-g{generation}-a{attempt}-{index}")


def check_pod_name(run: str, key: str) -> str:
    """Returns `<run>-check-<key>`: one pod judges one configuration, however often the operator restarts."""
    return _child(run, f"-check-{key}")


def closed_loop_pod_name(run: str, attempt: int) -> str:
    """Returns `<run>-closed-loop-<attempt>`: attempts are counted over the run."""
    return _child(run, f"-closed-loop-{attempt}")


def pod_group_name(run: str, stage: str, seed: int, attempt: int) -> str:
    """Returns the name of the pod group that a queueing system admits as one."""
    return _child(run, f"-{stage}-s{seed}-a{attempt}", plainly="-" not in stage)


def label_value(name: str) -> str:
    """Returns `name` where it fits into a label value, else a cut of it with eight digits of its hash."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 9].rstrip('-._')}-{_digits(name)}"


def _child(owner: str, suffix: str, *, plainly: bool = True) -> str:
    # The name must be one DNS label (pods are host names), and services may not begin with a digit. Nor may two owners
    # share one: `exp` with stage `big-train` and `exp-big` with stage `train` read the same.
    plain = plainly and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", owner) is not None
    if plain and len(owner) + len(suffix) <= MAX_NAME:
        return owner + suffix
    stem = owner.replace(".", "-")
    if not stem[:1].isalpha():
        stem = f"r{stem}"
    room = MAX_NAME - len(suffix) - 9
    return f"{stem[:room].rstrip('-')}-{_digits(owner)}{suffix}"


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
