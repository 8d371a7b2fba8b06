"""What a spec requests beyond the administrator's policy. Pure; messages name field, found, allowed, and value.

Asked of what has not begun. A list that is tightened later ends nothing that lives: a run goes on through its restarts
and suspensions, a build through its retries, and a complete cache stays.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lead_operator.policy import NEVER_PRIORITY, Policy, admits
from lead_operator.resources.body import Identity
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.pod_settings import ComputeResources, PodSettings
from lead_operator.resources.training_run import TrainingRun
from lead_operator.settings import Settings, StorageProfile
from lead_protocol.object_keys import RESERVED_PREFIXES

NOT_ALLOWED = "NotAllowed"
SOURCES, WEIGHTS = "datasets", "weights/"
SHOWN = 5


@dataclass(frozen=True)
class Violation:
    """One thing that a spec asks for and may not have."""

    field: str
    found: str
    allowed: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field} is {self.found}, allowed is {self.allowed}; {self.remedy}"


def explain(identity: Identity, violations: Iterable[Violation]) -> str:
    """Returns all violations as one sentence; empty where there is none."""
    messages = [str(each) for each in violations]
    more = f"; and {len(messages) - SHOWN} more" if len(messages) > SHOWN else ""
    return f"{identity}: {'; '.join(messages[:SHOWN])}{more}" if messages else ""


def run_violations(run: TrainingRun, settings: Settings) -> list[Violation]:
    """Returns what a run asks for beyond the policy."""
    policy, scheduling = settings.policy, run.scheduling
    lists = _Lists(policy)
    profile = settings.storage_profiles.get(run.storage_profile)
    return [
        *_namespace(run.identity, policy),
        *_profile(run.identity, profile),
        *_system_priority(scheduling.priority_class),
        *lists.outside("spec.scheduling.priorityClassName", scheduling.priority_class, "allowed_priority_classes"),
        *lists.outside("spec.scheduling.schedulerName", scheduling.scheduler, "allowed_schedulers"),
        *lists.outside("spec.scheduling.queueName", scheduling.queue, "allowed_queues"),
        *lists.outside(
            "spec.sessionCache.storageClassName", run.session_cache.storage_class or "", "allowed_storage_classes"
        ),
        *_pod_settings(lists, "spec.podOverrides", run.pod_settings),
        *_resources(lists, "spec.resources", run.resources),
        *_above("spec.nodes", run.nodes, policy, "max_nodes"),
        *_above("spec.parallelism", run.parallelism, policy, "max_parallelism"),
        *_above("spec.nodes x spec.parallelism", run.nodes * run.parallelism, policy, "max_pods_per_run"),
        *_above("devices of spec.resources", run.resources.devices, policy, "max_gpus_per_pod"),
    ]


def cache_violations(cache: DatasetCache, settings: Settings, claim_owner: str) -> list[Violation]:
    """Returns what a cache asks for beyond the policy; `claim_owner` is the owner of the claim it names."""
    policy, source = settings.policy, cache.source
    lists = _Lists(policy)
    profile = settings.storage_profiles.get(cache.storage_profile)
    return [
        *_namespace(cache.identity, policy),
        *_profile(cache.identity, profile),
        *(_prefix(source.prefix, cache.identity.namespace, profile) if source.prefix and profile else ()),
        *(_claim(lists, source.claim_name, claim_owner) if source.claim_name else ()),
        *_pod_settings(lists, "spec.build", cache.pod_settings),
        *_resources(lists, "spec.build.resources", cache.resources),
        *_above("spec.build.parallelism", cache.parallelism, policy, "max_build_pods"),
        *_above("devices of spec.build.resources", cache.resources.devices, policy, "max_gpus_per_pod"),
        *_stages(lists, cache),
    ]


def closed_loop_violations(run: TrainingRun, settings: Settings) -> list[Violation]:
    """Returns what a run's closed loop asks for beyond the policy; it holds up no training."""
    wanted, policy = run.closed_loop, settings.policy
    if wanted is None:
        return []
    lists, profile = _Lists(policy), settings.storage_profiles.get(run.storage_profile)
    return [
        *lists.outside("spec.closedLoop.image", wanted.image, "allowed_images"),
        *_resources(lists, "spec.closedLoop.resources", wanted.resources),
        *_above("devices of spec.closedLoop.resources", wanted.resources.devices, policy, "max_gpus_per_pod"),
        *(_routes(wanted.routes_prefix, run.identity.namespace, profile) if wanted.routes_prefix and profile else ()),
    ]


def _routes(prefix: str, namespace: str, profile: StorageProfile) -> Iterator[Violation]:
    """Yields a violation where pods of a run may not read: they have no right to raw data."""
    allowed = [f"{WEIGHTS}{namespace}/", *(each for each in profile.shared if each.startswith(WEIGHTS))]
    if not f"{prefix.rstrip('/')}/".startswith(tuple(allowed)):
        remedy = (
            f"upload the routes there, or an administrator adds their folder to storage.profiles.{profile.name}.shared"
        )
        yield Violation("spec.closedLoop.routes.prefix", repr(prefix), f"below {_either(allowed)}", remedy)


def source_is_allowed(prefix: str, namespace: str, shared: Iterable[str]) -> bool:
    """Returns whether a namespace may read raw data at a prefix: its own folder, or one that all may read."""
    folder = f"{prefix.rstrip('/')}/"
    own = (f"{SOURCES}/{namespace}/", *(each for each in shared if each.startswith(f"{SOURCES}/")))
    return folder.startswith(own)


@dataclass(frozen=True)
class _Lists:
    policy: Policy

    def outside(self, field: str, found: str, attribute: str) -> Iterator[Violation]:
        """Yields a violation where a name is set and no list holds it."""
        allowed: tuple[str, ...] = getattr(self.policy, attribute)
        if found and not admits(allowed, found):
            yield Violation(field, repr(found), _either(allowed), _ask_for(self.policy, attribute))


def _pod_settings(lists: _Lists, path: str, settings: PodSettings) -> Iterator[Violation]:
    for key in settings.labels:
        yield from lists.outside(f"a key of {path}.labels", key, "allowed_labels")
    for key in settings.annotations:
        yield from lists.outside(f"a key of {path}.annotations", key, "allowed_annotations")
    for key in settings.node_selector:
        yield from lists.outside(f"a key of {path}.nodeSelector", key, "allowed_node_selectors")
    for number, toleration in enumerate(settings.tolerations):
        yield from lists.outside(f"{path}.tolerations[{number}].key", toleration.get("key", ""), "allowed_tolerations")


def _resources(lists: _Lists, path: str, resources: ComputeResources) -> Iterator[Violation]:
    for name in {**resources.requests, **resources.limits}:
        yield from lists.outside(f"a resource of {path}", name, "allowed_resources")


def _stages(lists: _Lists, cache: DatasetCache) -> Iterator[Violation]:
    """Yields what stages ask for beyond the build's own resources; the last one waits for all, and counts alone."""
    early = [stage for stage in cache.stages if not stage.commits]
    for stage in early:
        if stage.resources != cache.resources:
            yield from _resources(lists, stage.path, stage.resources)
            yield from _above(f"devices of {stage.path}", stage.resources.devices, lists.policy, "max_gpus_per_pod")
    workers = sum(stage.workers for stage in early)
    yield from _above("workers of spec.build.stages together", workers, lists.policy, "max_build_pods")


def _system_priority(found: str) -> Iterator[Violation]:
    if found.startswith(NEVER_PRIORITY):
        remedy = "such classes belong to the cluster's own pods; no value of the chart allows them"
        yield Violation(
            "spec.scheduling.priorityClassName", repr(found), f"nothing that begins {NEVER_PRIORITY}", remedy
        )


def _above(field: str, found: int, policy: Policy, attribute: str) -> Iterator[Violation]:
    most: int = getattr(policy, attribute)
    if found > most:
        yield Violation(field, str(found), f"at most {most}", _ask_for(policy, attribute))


def _namespace(identity: Identity, policy: Policy) -> Iterator[Violation]:
    if identity.namespace in policy.refused_namespaces:
        remedy = "use a namespace for runs; it is the operator's own, which runs.allowInReleaseNamespace would open"
        yield Violation("metadata.namespace", repr(identity.namespace), "any namespace for runs", remedy)


def _profile(identity: Identity, profile: StorageProfile | None) -> Iterator[Violation]:
    if profile is not None and not profile.serves(identity.namespace):
        remedy = (
            f"an administrator adds the namespace to storage.profiles.{profile.name}.namespaces of the chart's values"
        )
        yield Violation("spec.storageProfile", repr(profile.name), f"in {', '.join(profile.namespaces)} alone", remedy)


def _prefix(prefix: str, namespace: str, profile: StorageProfile) -> Iterator[Violation]:
    if source_is_allowed(prefix, namespace, profile.shared):
        return
    shared = [each for each in profile.shared if each.startswith(f"{SOURCES}/")]
    remedy = (
        f"{prefix.split('/')[0]}/ is what pods and operator write, and never a source"
        if f"{prefix.rstrip('/')}/".startswith(RESERVED_PREFIXES)  # the CRD refuses them at admission
        else f"upload the data there, or an administrator adds its folder to storage.profiles.{profile.name}.shared"
    )
    yield Violation(
        "spec.source.prefix", repr(prefix), f"below {_either([f'{SOURCES}/{namespace}/', *shared])}", remedy
    )


def _claim(lists: _Lists, name: str, owner: str) -> Iterator[Violation]:
    if owner or admits(lists.policy.reserved_claims, name):
        whose = owner or "the embedded object store"
        allowed = f"no claim of {whose}"
        yield Violation("spec.source.claimName", repr(name), allowed, "name a claim that holds raw data and is yours")
        return
    yield from lists.outside("spec.source.claimName", name, "allowed_claims")


def _either(allowed: Iterable[str]) -> str:
    names = list(allowed)
    return ", ".join(names) if names else "none"


def _ask_for(policy: Policy, attribute: str) -> str:
    return f"an administrator sets {policy.value(attribute)} in the chart's values"
