"""Who may do what in the object store: the policies of a storage profile, as S3 policy documents; pure.

Five identities: the operator and, of each namespace for runs, training pods, build pods, people (the data key) and
readers of results (the view key).
`storage_init` installs them in the embedded MinIO; for a store of your own they are a pattern.

Pods show a ServiceAccount token, so one role serves all of them and each statement asks for the token's subject.
MinIO reads a condition's key from the request's own headers and parameters first: with the header
`Sub: system:serviceaccount:<another namespace>:lead-run` anybody would be that account. `${jwt:sub}` in a condition's
value comes from the token alone, so every statement also asks that the key has no other value than that. Likewise a
header `Prefix`, or a second parameter `prefix`, would be compared in place of what is listed: `${s3:prefix}` is the
parameter by which the server lists, so a listing asks that there is no other. AWS knows that variable, and so does the
MinIO of our image.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lead_operator.settings import StorageProfile
from lead_protocol.object_keys import RESERVED_PREFIXES, builds_prefix, caches_prefix, control_prefix, runs_prefix
from lead_protocol.store.session_policy import WRITE_ACTIONS

Policy = dict[str, Any]
Statement = dict[str, Any]

DATASETS, WEIGHTS = "datasets/", "weights/"
ROLE_POLICIES = tuple(f"lead-pods-{number:02d}" for number in range(16))  # the chart names them to MinIO
MAX_POLICY_BYTES = 18 * 1024  # MinIO takes 20 KiB

_READ = ("s3:GetObject", "s3:GetObjectVersion")
_REMOVE = ("s3:DeleteObject", "s3:DeleteObjectVersion")
_LIST = ("s3:ListBucket",)
_LIST_VERSIONS = ("s3:ListBucket", "s3:ListBucketVersions")
# Without it every key, that of a pod too, could make itself another one that never ends.
_NO_KEYS = {"Effect": "Deny", "Action": ["admin:*"]}


class TooManyNamespaces(ValueError):
    """The role's policies are full."""


@dataclass(frozen=True)
class Tenant:
    """A namespace for runs, on one storage profile."""

    profile: StorageProfile
    namespace: str
    alone: bool = False  # the only namespace for runs: all raw data and weights are its own

    @property
    def own_data(self) -> tuple[str, ...]:
        """Prefixes of its raw data and weights."""
        return (DATASETS, WEIGHTS) if self.alone else (f"{DATASETS}{self.namespace}/", f"{WEIGHTS}{self.namespace}/")

    def readable(self, root: str) -> tuple[str, ...]:
        """Prefixes below `root` (datasets/ or weights/) that its pods may read."""
        prefixes = {f"{root}{self.namespace}/", *(shared for shared in self.profile.shared if shared.startswith(root))}
        return (root,) if root in prefixes else tuple(sorted(prefixes))


def operator_policy(profile: StorageProfile) -> Policy:
    """Returns what the operator may: read everything; write and delete what it and pods made, never people's data."""
    return _policy(
        _listing(profile, ("",), _LIST_VERSIONS),
        _objects(profile, ("",), _READ),
        _objects(profile, RESERVED_PREFIXES, (*WRITE_ACTIONS, *_REMOVE)),
    )


def data_policy(tenant: Tenant) -> Policy:
    """Returns what the people of a namespace may: everything with their raw data and weights, read what pods made."""
    results = (runs_prefix(tenant.namespace), caches_prefix(tenant.namespace))
    bucket = {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [_bucket(tenant.profile)]}
    return _policy(
        bucket,
        _listing(tenant.profile, (*tenant.own_data, *results), _LIST_VERSIONS),
        _objects(tenant.profile, (*tenant.own_data, *results), _READ),
        _objects(tenant.profile, tenant.own_data, (*WRITE_ACTIONS, *_REMOVE)),
    )


def view_policy(tenant: Tenant) -> Policy:
    """Returns the rights of TensorBoard, the page and readers: read the namespace's results and published caches."""
    results = (runs_prefix(tenant.namespace), caches_prefix(tenant.namespace))
    return _policy(_listing(tenant.profile, results, _LIST), _objects(tenant.profile, results, _READ[:1]))


def run_statements(tenant: Tenant, account: str) -> list[Statement]:
    """Returns what training pods may: write below runs/, read caches, records and weights; delete nothing."""
    runs = runs_prefix(tenant.namespace)
    made = (caches_prefix(tenant.namespace), runs, control_prefix(tenant.namespace))
    return _role(tenant, account, reads=(*made, *tenant.readable(WEIGHTS)), writes=runs)


def build_statements(tenant: Tenant, account: str) -> list[Statement]:
    """Returns what build pods may: read raw data, and write what they make of them below builds/; delete nothing."""
    builds = builds_prefix(tenant.namespace)
    made = (caches_prefix(tenant.namespace), builds)
    return _role(tenant, account, reads=(*tenant.readable(DATASETS), *made), writes=builds)


def role_policies(tenants: Iterable[Tenant], *, run_account: str, build_account: str) -> dict[str, Policy]:
    """Returns the policies of the role of all pods, one of each of ROLE_POLICIES, some with nothing to allow.

    All must exist, because MinIO searches its disk for missing ones at every request.
    """
    groups = [run_statements(tenant, run_account) + build_statements(tenant, build_account) for tenant in tenants]
    filled: list[Policy] = [_policy()]
    for group in groups:
        larger = {**filled[-1], "Statement": [*filled[-1]["Statement"], *group]}
        if len(json.dumps(larger)) > MAX_POLICY_BYTES:
            larger = _policy(*group)
            filled.append(larger)
        filled[-1] = larger
    if len(filled) > len(ROLE_POLICIES):
        raise TooManyNamespaces(
            f"{len(groups)} pairs of storage profile and namespace do not fit into the role of the embedded store; "
            "name fewer by storage.profiles.<name>.namespaces, or use a store of your own"
        )
    empty = [_policy()] * (len(ROLE_POLICIES) - len(filled))
    return dict(zip(ROLE_POLICIES, [*filled, *empty], strict=True))


def subject(namespace: str, account: str) -> str:
    """Returns whom a ServiceAccount's token names."""
    return f"system:serviceaccount:{namespace}:{account}"


def _role(tenant: Tenant, account: str, *, reads: Sequence[str], writes: str) -> list[Statement]:
    condition = {
        "StringEquals": {"jwt:sub": [subject(tenant.namespace, account)]},
        "ForAllValues:StringEquals": {"jwt:sub": ["${jwt:sub}"]},
    }
    return [
        _with(_listing(tenant.profile, reads, _LIST), condition),
        _with(_objects(tenant.profile, reads, _READ[:1]), condition),
        _with(_objects(tenant.profile, (writes,), WRITE_ACTIONS), condition),
    ]


def _policy(*statements: Statement) -> Policy:
    return {"Version": "2012-10-17", "Statement": [_NO_KEYS, *statements]}


def _with(statement: Statement, condition: dict[str, dict[str, list[str]]]) -> Statement:
    own = statement.get("Condition", {})
    merged = {test: {**own.get(test, {}), **condition.get(test, {})} for test in (*own, *condition)}
    return {**statement, "Condition": merged}


def _listing(profile: StorageProfile, prefixes: Iterable[str], actions: Sequence[str]) -> Statement:
    below = [f"{_below(profile)}{prefix}*" for prefix in prefixes]
    everything = below == ["*"]
    listed = {"StringLike": {"s3:prefix": below}, "ForAllValues:StringEquals": {"s3:prefix": ["${s3:prefix}"]}}
    condition = {} if everything else {"Condition": listed}
    return {"Effect": "Allow", "Action": list(actions), "Resource": [_bucket(profile)], **condition}


def _objects(profile: StorageProfile, prefixes: Iterable[str], actions: Sequence[str]) -> Statement:
    resources = [f"{_bucket(profile)}/{_below(profile)}{prefix}*" for prefix in prefixes]
    return {"Effect": "Allow", "Action": list(actions), "Resource": resources}


def _bucket(profile: StorageProfile) -> str:
    return f"arn:aws:s3:::{profile.bucket}"


def _below(profile: StorageProfile) -> str:
    return f"{profile.prefix}/" if profile.prefix else ""
