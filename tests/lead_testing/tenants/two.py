"""A release with two namespaces for runs, alice in the one and bob in the other, each with `edit` there alone."""

import base64
import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from lead_protocol.manifests import sha256_hex
from lead_protocol.object_keys import RESERVED_PREFIXES
from lead_protocol.store.object_store import ObjectStore
from lead_testing import PROJECT_ROOT
from lead_testing.installed import Installed, conditions, fresh_namespace, helm, uninstall, upload_tree
from lead_testing.live_runs import epoch_of
from lead_testing.local_cluster import Cluster
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.tenants.kubectl_attempts import ATTEMPTS as KUBECTL_ATTEMPTS
from lead_testing.tenants.kubectl_attempts import CONTAINER, KubectlAttempt, condition_attempts
from lead_testing.tenants.store_attempts import CANARY, Scene
from lead_testing.token_issuer import ROLE_ARN
from lead_trainer.example_worlds.lead.tree import write_example_tree

AT_ONCE = 4  # commands of kubectl
FOLDERS = ("datasets/", "weights/", *RESERVED_PREFIXES)
KEPT_OBJECTS = ("trainingrun/drive", "datasetcache/town", "secret/lead-data-default", "configmap/lead-store-ca-default",
                "role/lead-operator", "rolebinding/lead-operator", "networkpolicy/lead-runs",
                "serviceaccount/lead-run", "serviceaccount/lead-build")  # fmt: skip
KEPT_OF_THE_RELEASE = ("secret/lead-minio-credentials", "secret/lead-operator-s3-default", "secret/lead-minio-tls",
                       "configmap/lead-storage-profiles", "persistentvolumeclaim/data-lead-minio-0",
                       "secret/sh.helm.release.v1.lead.v1", "networkpolicy/lead-minio")  # fmt: skip


@dataclass(frozen=True)
class Person(Installed):
    """Somebody in a namespace of theirs: every command is theirs, and not the administrator's."""

    name: str

    def _command(self, name: str, *arguments: str) -> list[str]:
        return [*super()._command(name), f"--as={self.name}", *arguments]


@dataclass(frozen=True)
class TwoTenants:
    """The release as its administrator has it, and its two users."""

    release: Installed
    alice: Person
    bob: Person
    image: str  # of the trainer: what alice's own pod runs

    def of(self, person: Person) -> Installed:
        """Returns a person's namespace as the administrator sees it."""
        return Installed(self.release.cluster, person.namespace)

    def uid(self, person: Person, kind: str, name: str) -> str:
        """Returns the UID of a resource."""
        return str(self.of(person).get(kind, name)["metadata"]["uid"])


def install(cluster: Cluster, images: dict[str, str]) -> TwoTenants:
    """Installs the chart for two namespaces, with a second profile that is bob's alone."""
    word = uuid.uuid4().hex[:6]
    alice, bob = f"tenant-a-{word}", f"tenant-b-{word}"
    release = fresh_namespace(cluster, f"lead-two-{word}")
    for namespace, person in ((alice, "alice"), (bob, "bob")):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        release.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
        release.kubectl("-n", namespace, "create", "rolebinding", person, "--clusterrole=edit", f"--user={person}")
    private = f"storage.profiles.private.bucket=private,storage.profiles.private.namespaces={{{bob}}}"
    helm(release, "install", images, f"runs.namespaces={{{alice},{bob}}}", private)
    return TwoTenants(release, Person(cluster, alice, "alice"), Person(cluster, bob, "bob"), images["trainer"])


def remove(two: TwoTenants) -> None:
    """Deletes the runs, the release and the three namespaces."""
    for person in (two.alice, two.bob):
        two.of(person).run("kubectl", "delete", "trainingruns,datasetcaches", "--all", "--wait", "--timeout=60s")
    uninstall(two.release)
    for person in (two.alice, two.bob):
        two.of(person).run("kubectl", "delete", "namespace", person.namespace, "--wait=false")


def prepare(two: TwoTenants, folder: Path) -> None:
    """Gives both raw data and a cache, bob a run that has ended, and alice one that goes on."""
    write_example_tree(folder / "tree", routes=1, frames=10, seed=1, failed_routes=0)
    with two.release.store() as store:
        for person in (two.alice, two.bob):
            upload_tree(store, folder / "tree", f"datasets/{person.namespace}/town")
        for key in (f"datasets/{two.bob.namespace}/canary", f"weights/{two.bob.namespace}/w.pth"):
            store.put(key, f"{CANARY}{key}".encode())
    for person in (two.alice, two.bob):
        cache = a_dataset_cache("town", f"datasets/{person.namespace}/town", collections=["full_pretrain"])
        cache["spec"]["build"] |= {"parallelism": 1}
        person.apply(cache)
    one = {"nodes": 1, "gracePeriodSeconds": 5}
    two.bob.apply(a_training_run("drive", "town", stages=[{"name": "pretrain", "epochs": 1}], **one))
    two.of(two.bob).wait_for_phase("trainingrun", "drive", "Succeeded", deadline_s=600)
    two.alice.apply(a_training_run("mine", "town", stages=[{"name": "pretrain", "epochs": 100_000}], **one))
    two.of(two.alice).wait_for("an epoch of alice's", lambda: epoch_of(two.of(two.alice), "mine"), deadline_s=600)


def scene_of(two: TwoTenants, store: ObjectStore) -> Scene:
    """Returns where everything is; it names a key of bob's of each folder."""
    bob, alice = two.bob.namespace, two.alice.namespace
    suffixes = {"caches/": "MANIFEST.json", "datasets/": "canary"}
    theirs = {
        folder.rstrip("/"): next(
            info.key for info in store.list(f"{folder}{bob}/") if info.key.endswith(suffixes.get(folder, ""))
        )
        for folder in FOLDERS
    }
    manifests = f"runs/{bob}/{two.uid(two.bob, 'trainingrun', 'drive')}/pretrain-s0/manifest/"
    theirs |= {"runs": next(info.key for info in store.list(manifests)), "private": f"datasets/{bob}/canary"}
    data = two.alice.get("secret", "lead-data-default")["data"]
    pods = {pod["metadata"]["labels"].get("app.kubernetes.io/component"): pod for pod in two.release.items("pods")}
    tokens = {
        who: two.alice.kubectl("create", "token", account, "--audience=lead-store").strip()
        for who, account in (("run", "lead-run"), ("build", "lead-build"), ("default", "default"))
    }
    return Scene(
        bucket="lead", alice=alice, bob=bob, release=two.release.namespace,
        store=f"https://lead-minio.{two.release.namespace}.svc:9000",
        store_pod=pods["minio"]["status"]["podIP"], operator_pod=pods["operator"]["status"]["podIP"],
        ca_file="/attack/ca.crt", api="https://kubernetes.default.svc",
        api_ca_file="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", role=ROLE_ARN,
        tokens={**tokens, "api": two.alice.kubectl("create", "token", "lead-run").strip()},
        data_key=(_text(data["access-key"]), _text(data["secret-key"])), theirs=theirs,
        mine=two.uid(two.alice, "trainingrun", "mine"), my_cache=two.uid(two.alice, "datasetcache", "town"),
        my_digest=str(two.of(two.alice).status("datasetcache", "town")["digest"]),
    )  # fmt: skip


def try_in_a_pod(two: TwoTenants, scene: Scene) -> dict[str, str]:
    """Runs the attempts at the store in a pod that alice makes, as lead-run; returns what each has seen."""
    sources = {"raw_s3.py": "lead_testing/raw_s3.py", "store_attempts.py": "lead_testing/tenants/store_attempts.py"}
    texts = {file: (PROJECT_ROOT / "tests" / path).read_text() for file, path in sources.items()}
    ca = two.alice.get("configmap", "lead-store-ca-default")["data"]["ca.crt"]
    meta = {"name": "attack"}
    items = [{"key": file, "path": path} for file, path in sources.items()]
    items += [{"key": name, "path": name} for name in ("scene.json", "ca.crt")]
    spec = {
        "serviceAccountName": "lead-run", "automountServiceAccountToken": True, "restartPolicy": "Never",
        "volumes": [{"name": "attack", "secret": {"secretName": "attack", "items": items}}],
        "containers": [{
            **CONTAINER, "name": "attack", "image": two.image, "command": ["python3"],
            "args": ["/attack/lead_testing/tenants/store_attempts.py", "/attack/scene.json"],
            "env": [{"name": "PYTHONPATH", "value": "/attack"}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
            "volumeMounts": [{"name": "attack", "mountPath": "/attack", "readOnly": True}],
        }],
    }  # fmt: skip
    data = {**texts, "scene.json": json.dumps(asdict(scene)), "ca.crt": ca}
    two.alice.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data},
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
    )
    look = lambda: two.alice.get("pod", "attack").get("status", {}).get("phase") in ("Succeeded", "Failed")  # noqa: E731
    two.alice.wait_for("alice's pod to end", look, deadline_s=300)
    seen = [json.loads(line) for line in two.alice.kubectl("logs", "attack").splitlines() if line.startswith("{")]
    assert seen and seen[-1]["name"] == "forged", two.alice.kubectl("logs", "attack", "--tail=20")
    return {each["name"]: each["seen"] for each in seen}


def try_by_kubectl(two: TwoTenants) -> dict[str, str]:
    """Runs the attempts by kubectl as alice; what succeeds is seen as `succeeded: …`."""
    names = {
        "alice": two.alice.namespace, "bob": two.bob.namespace, "release": two.release.namespace,
        "bobs_run": two.uid(two.bob, "trainingrun", "drive"),
    }  # fmt: skip

    def attempt(each: KubectlAttempt) -> str:
        arguments, stdin = each.filled(names)
        done = two.alice.run("kubectl", "--request-timeout=20s", *arguments, stdin=stdin)
        return f"{'' if done.returncode else 'succeeded: '}{done.stdout}{done.stderr}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip((each.name for each in KUBECTL_ATTEMPTS), pool.map(attempt, KUBECTL_ATTEMPTS), strict=True))


def try_by_resources(two: TwoTenants) -> dict[str, str]:
    """Makes the resources that a condition refuses; returns their conditions."""
    attempts = condition_attempts(two.alice.namespace, two.bob.namespace, two.uid(two.bob, "trainingrun", "drive"))
    two.alice.apply(*(each.manifest for each in attempts))
    seen = {}
    for each in attempts:
        kind, name = each.manifest["kind"].lower(), each.manifest["metadata"]["name"]

        def look(kind: str = kind, name: str = name, must: str = each.must) -> str:
            found = json.dumps(conditions(two.alice.status(kind, name)))
            return found if re.search(must, found) else ""

        seen[each.name] = two.alice.wait_for(f"{each.must!r} in a condition of {name}", look, deadline_s=60)
    two.alice.kubectl("delete", "-f", "-", "--wait=false", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [each.manifest for each in attempts]}))  # fmt: skip
    return seen


def what_bob_has(two: TwoTenants, store: ObjectStore) -> dict[str, str]:
    """Returns every object of bob's in the store with the SHA-256 of its bytes, and his and the release's resources."""
    found = {
        info.key: sha256_hex(store.get(info.key, max_bytes=1 << 30))
        for folder in FOLDERS
        for info in store.list(f"{folder}{two.bob.namespace}/")
    }
    for where, names in ((two.of(two.bob), KEPT_OBJECTS), (two.release, KEPT_OF_THE_RELEASE)):
        for name in names:
            body = where.get(*name.split("/"))
            kept = {key: value for key, value in body.items() if key not in ("metadata", "status")}
            meta = {key: body["metadata"].get(key) for key in ("uid", "labels", "annotations", "finalizers")}
            status = {key: body.get("status", {}).get(key) for key in ("phase", "digest", "manifestSha256", "stages")}
            found[f"{where.namespace} {name}"] = json.dumps([kept, meta, status], sort_keys=True)
    return found


def starts(two: TwoTenants) -> dict[str, int]:
    """Returns how often each container of the operator's and the store's pods was started, by the pod's UID."""
    return {
        f"{pod['metadata']['uid']}/{each['name']}": each["restartCount"]
        for pod in two.release.items("pods")
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") in ("operator", "minio")
        for each in (*pod["status"].get("containerStatuses", []), *pod["status"].get("initContainerStatuses", []))
    }


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()
