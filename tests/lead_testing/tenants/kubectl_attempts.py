"""What alice, who has Kubernetes' `edit` in her own namespace, tries by kubectl; and what each answer must say."""

import json
from dataclasses import dataclass
from typing import Any

from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.policy_cases import REFUSED_CACHES, REFUSED_RUNS, SYSTEM_PRIORITY

FORBIDDEN = "Forbidden|forbidden"
MANAGED = {"app.kubernetes.io/managed-by": "lead-operator", "lead.dev/run": "drive", "lead.dev/rank": "0"}
CONTAINER = {
    "name": "x", "image": "registry.invalid/x", "securityContext": {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"}},
}  # fmt: skip
BIND = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}


@dataclass(frozen=True)
class KubectlAttempt:
    """One command of kubectl, which must fail; `must` is a regular expression of what it prints.

    `{alice}`, `{bob}` and `{release}` in texts are the namespaces, and `{bobs_run}` the UID of bob's run.
    """

    name: str
    arguments: tuple[str, ...]
    body: dict[str, Any] | None = None  # what stdin has
    must: str = FORBIDDEN

    def filled(self, names: dict[str, str]) -> tuple[tuple[str, ...], str]:
        """Returns arguments and stdin of one release."""
        arguments, text = self.arguments, json.dumps(self.body) if self.body else ""
        for name, value in names.items():
            arguments = tuple(argument.replace(f"{{{name}}}", value) for argument in arguments)
            text = text.replace(f"{{{name}}}", value)
        return arguments, text


def _in(namespace: str, *rows: tuple[str, str]) -> tuple[KubectlAttempt, ...]:
    return tuple(
        KubectlAttempt(what, ("-n", f"{{{namespace}}}", *(word.replace("~", " ") for word in command.split())))
        for what, command in rows
    )


def _create(what: str, body: dict[str, Any], must: str, namespace: str = "alice") -> KubectlAttempt:
    return KubectlAttempt(what, ("-n", f"{{{namespace}}}", "create", "-f", "-"), body, must)


def _object(kind: str, group: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "alices"}, **fields}


def _pod(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    body = _object("Pod", "v1", spec={"containers": [CONTAINER], "restartPolicy": "Never", **spec})
    return {**body, "metadata": {"name": "alices", "labels": labels or {}}}


def _binding(kind: str, role: str) -> dict[str, Any]:
    subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
    return _object(kind, "rbac.authorization.k8s.io/v1", roleRef={**BIND, "name": role}, subjects=[subject])


_STATUS = '{"status":{"phase":"Succeeded","stages":[{"name":"pretrain","seed":0,"phase":"Succeeded"}]}}'
_OF_BOB = _in(
    "bob",
    ("bob's Secrets are listed", "get secrets"),
    ("bob's key for raw data is read", "get secret lead-data-default -o yaml"),
    ("bob's runs are listed", "get trainingruns"),
    ("bob's run is read", "get trainingrun drive -o yaml"),
    ("bob's caches are listed", "get datasetcaches"),
    ("bob's pods are listed", "get pods"),
    ("a pod of bob is entered", "exec drive-pretrain-s0-0 -- id"),
    ("a log of bob is read", "logs -l lead.dev/run=drive"),
    ("a port of bob's pod is forwarded", "port-forward pod/drive-pretrain-s0-0 :80"),
    ("bob's events are read", "get events"),
    ("bob's ConfigMaps are read", "get configmaps"),
    ("bob's claims are listed", "get persistentvolumeclaims"),
    ("bob's pods are deleted", "delete pods --all"),
    ("bob's run is deleted", "delete trainingrun drive"),
    ("all of bob's caches are deleted", "delete datasetcaches --all"),
    ("bob's run is suspended", 'patch trainingrun drive --type=merge -p {"spec":{"suspend":true}}'),
    ("bob's run gets a finalizer", 'patch trainingrun drive --type=merge -p {"metadata":{"finalizers":["a.b/c"]}}'),
    ("bob's cache loses its finalizer", 'patch datasetcache town --type=merge -p {"metadata":{"finalizers":null}}'),
    ("the status of bob's run is forged", f"patch trainingrun drive --subresource=status --type=merge -p {_STATUS}"),
    ("a token of bob's lead-run is made", "create token lead-run --audience=lead-store"),
    ("a token of bob's lead-build is made", "create token lead-build --audience=lead-store"),
    ("bob's NetworkPolicy is deleted", "delete networkpolicy lead-runs"),
    ("the operator's Role in bob's namespace is deleted", "delete role lead-operator"),
)
_OF_THE_RELEASE = _in(
    "release",
    ("the release's Secrets are listed", "get secrets"),
    ("the store's root key is read", "get secret lead-minio-credentials -o yaml"),
    ("the operator's key is read", "get secret lead-operator-s3-default -o yaml"),
    ("the store's private key is read", "get secret lead-minio-tls -o yaml"),
    ("helm's record of the release is read", "get secret sh.helm.release.v1.lead.v1 -o yaml"),
    ("the profiles are changed", "delete configmap lead-storage-profiles"),
    ("the lease is read", "get lease lead-operator"),
    ("the lease is taken", 'patch lease lead-operator --type=merge -p {"spec":{"holderIdentity":"mallory"}}'),
    ("the lease is deleted", "delete lease lead-operator"),
    ("the store's claim is deleted", "delete persistentvolumeclaim data-lead-minio-0"),
    ("the store's claim is read", "get persistentvolumeclaim data-lead-minio-0"),
    ("the operator's pods are listed", "get pods"),
    ("the operator's log is read", "logs deploy/lead-operator"),
    ("the store's pod is entered", "exec lead-minio-0 -- id"),
    ("the store's pod is deleted", "delete pod lead-minio-0"),
    ("the store's port is forwarded", "port-forward svc/lead-minio :9000"),
    ("the operator is scaled to none", "scale deployment lead-operator --replicas=0"),
    ("the operator's image is changed", "set image deployment/lead-operator operator=registry.invalid/x"),
    ("a token of the operator is made", "create token lead-operator"),
    ("a token of the store's account is made", "create token lead-minio"),
    ("a Job of the release is deleted", "delete jobs --all"),
    ("the release's NetworkPolicies are deleted", "delete networkpolicies --all"),
)
_OF_THE_CLUSTER = _in(
    "alice",
    ("a policy of admission is deleted", "delete validatingadmissionpolicies --all"),
    ("a binding of the policies is deleted", "delete validatingadmissionpolicybindings --all"),
    ("the CRD of runs is deleted", "delete crd trainingruns.lead.dev"),
    ("the restricted profile is taken off her namespace",
     "label namespace {alice} pod-security.kubernetes.io/enforce-"),
    ("runs of all namespaces are listed", "get trainingruns -A"),
    ("Secrets of all namespaces are listed", "get secrets -A"),
    ("volumes are listed", "get persistentvolumes"),
    ("the node is read", "get nodes"),
    ("the operator's Role in her own namespace is widened",
     'patch role lead-operator --type=json -p [{"op":"remove","path":"/rules"}]'),
    ("the status of her own run is forged", f"patch trainingrun mine --subresource=status --type=merge -p {_STATUS}"),
    ("the status of her own cache is forged",
     'patch datasetcache town --subresource=status --type=merge -p {"status":{"phase":"Ready"}}'),
)  # fmt: skip
_CREATED = (
    _create("a run in bob's namespace", a_training_run("alices", "town"), FORBIDDEN, "bob"),
    _create("a cache in bob's namespace", a_dataset_cache("alices", "datasets/{bob}/town"), FORBIDDEN, "bob"),
    _create("a pod in bob's namespace", _pod(), FORBIDDEN, "bob"),
    _create("a run in the release's namespace", a_training_run("alices", "town"), FORBIDDEN, "release"),
    _create("a pod in the release's namespace", _pod(), FORBIDDEN, "release"),
    _create("an event about bob's run", _object(
        "Event", "v1", involvedObject={"kind": "TrainingRun", "name": "drive", "namespace": "{bob}"},
        reason="Failed", message="forged", type="Warning"), f"{FORBIDDEN}|does not match", "bob"),
    _create("an event about bob's run, in her own namespace", _object(
        "Event", "v1", involvedObject={"kind": "TrainingRun", "name": "drive", "namespace": "{bob}"},
        reason="Failed", message="forged", type="Warning"), f"{FORBIDDEN}|does not match"),
    _create("a forged rank", _pod(MANAGED), "were set by alice, expected system:serviceaccount:.*:lead-operator alone"),
    _create("a pod with the node's disk",
            _pod(volumes=[{"name": "x", "hostPath": {"path": "/"}}]), "violates PodSecurity"),
    _create("a pod in the node's network", _pod(hostNetwork=True), "violates PodSecurity"),
    _create("a binding to the operator's rights", _binding("RoleBinding", "lead-operator-{release}"), FORBIDDEN),
    _create("a binding to cluster-admin in her namespace", _binding("RoleBinding", "cluster-admin"), FORBIDDEN),
    _create("a binding to cluster-admin", _binding("ClusterRoleBinding", "cluster-admin"), FORBIDDEN),
    _create("a policy of admission",
            _object("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", spec={}), FORBIDDEN),
    _create("a PriorityClass", _object("PriorityClass", "scheduling.k8s.io/v1", value=10**9), FORBIDDEN),
    _create("a volume over the node's disk", _object("PersistentVolume", "v1", spec={
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "hostPath": {"path": "/"}}), FORBIDDEN),
    *(_create(f"a cache of {source}", a_dataset_cache("alices", source), "allowed is below datasets/.*/|never a source")
      for source in ("datasets/{bob}/town", "datasets", "datasets/{alice}x", "runs/{bob}", "runs/{alice}",
                     "caches/{bob}",
                     "builds/{bob}", "control/{alice}", "weights/{bob}")),
    _create("a cache of datasets/../runs",
            a_dataset_cache("alices", "datasets/{alice}/../../runs/{bob}"), "spec.source.prefix"),
    *(_create(f"a cache of the claim {claim}", a_dataset_cache("alices", "", source={"claimName": claim}),
              "spec.source.claimName is .*, allowed is")
      for claim in ("data-lead-minio-0", "bobs-raw-data", "drive-shared-0")),
    _create("a run of the cluster's own priority", SYSTEM_PRIORITY, "the cluster's own pods"),
    *(_create(f"a run with {case.id}", case.manifest, "allowed is") for case in REFUSED_RUNS),
    *(_create(f"a cache with {case.id}",
              case.manifest, "allowed is") for case in REFUSED_CACHES if case.id != "a claim"),
    *(_create(f"a run with the field {field}", a_training_run("alices", "town", **{field: value}), "unknown field")
      for field, value in (("image", "registry.invalid/x"), ("serviceAccountName", "lead-operator"),
                           ("volumes", [{"hostPath": {"path": "/"}}]), ("podTemplate", {}), ("hostNetwork", True))),
    *(_create(f"podOverrides with {field}",
              a_training_run("alices", "town", podOverrides={field: value}), "unknown field")
      for field, value in (("hostPID", True), ("volumes", []), ("securityContext", {"runAsUser": 0}),
                           ("serviceAccountName", "lead-build"), ("containers", []))),
    _create("a run that says it is of bob's namespace", {
        **a_training_run("alices", "town"), "metadata": {"name": "alices", "namespace": "{bob}"}},
        "does not match|Forbidden"),
)  # fmt: skip
_IMPERSONATED = tuple(
    KubectlAttempt(f"she acts as {account} of {whose}", ("-n", f"{{{whose}}}", "auth", "can-i", "impersonate",
                                                         f"serviceaccounts/{account}"), must="^no")
    for whose, account in (("bob", "lead-run"), ("bob", "lead-build"), ("release", "lead-operator"))
)  # fmt: skip
ATTEMPTS = (*_OF_BOB, *_OF_THE_RELEASE, *_OF_THE_CLUSTER, *_IMPERSONATED, *_CREATED)


@dataclass(frozen=True)
class ConditionAttempt:
    """A resource that admission takes; the operator or its pod refuses it, and a condition says so."""

    name: str
    manifest: dict[str, Any]
    must: str  # a regular expression of its conditions


def condition_attempts(alice: str, bob: str, bobs_run: str) -> tuple[ConditionAttempt, ...]:
    """Returns what is refused by a condition: checkpoints, a profile and weights of bob."""
    instance = f"s3://lead/runs/{bob}/{bobs_run}/pretrain-s0"
    weights = {"backbone_weights": f"store:weights/{bob}/w.pth", "backbone_weights_sha256": "5" * 64}
    once = {"failurePolicy": {"maxRestarts": 0}, "gracePeriodSeconds": 5, "stages": [{"name": "pretrain", "epochs": 1}]}
    own_only = "may begin with those of its own namespace"
    stages = [{"name": "pretrain", "epochs": 1, "initFrom": {"uri": instance}}]
    return (
        ConditionAttempt(
            "a run reads bob's weights",
            a_training_run("weights-bob", "town", nodes=1, config=weights, **once),
            "AccessDenied",
        ),
        ConditionAttempt(
            "a run begins at bob's checkpoint",
            a_training_run("from-bob", "town", nodes=1, checkpoint={"from": instance}),
            own_only,
        ),
        ConditionAttempt(
            "a stage begins with bob's weights", a_training_run("init-bob", "town", nodes=1, stages=stages), own_only
        ),
        ConditionAttempt(
            "a run uses a profile that is bob's alone",
            a_training_run("private-run", "private-cache", nodes=1, storageProfile="private"),
            "NotAllowed.*private",
        ),
        ConditionAttempt(
            "a cache uses a profile that is bob's alone",
            a_dataset_cache("private-cache", f"datasets/{alice}/town", storageProfile="private"),
            "NotAllowed.*private",
        ),
    )
