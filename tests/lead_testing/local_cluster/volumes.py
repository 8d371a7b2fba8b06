"""What lies in the cluster from the start: local volumes with their class, and the DNS server's rights."""

import json
import shutil
from pathlib import Path
from typing import Any

from lead_testing.local_cluster import addresses as at
from lead_testing.local_cluster.commands import read_output

DNS_USER = "lead:coredns"


def build_first_objects(folder: Path) -> dict[str, Any]:
    """Builds the storage class, its volumes, and the role of the DNS server."""
    items = [_storage_class(), *(_volume(folder, number) for number in range(at.VOLUME_COUNT)), *_dns_role()]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def apply_first_objects(kubectl: list[str], folder: Path) -> None:
    """Makes released volumes free again (emptied, made anew) and applies the first objects."""
    for number in range(at.VOLUME_COUNT):
        _folder(folder, number).mkdir(parents=True, exist_ok=True)
        _folder(folder, number).chmod(0o777)
    recycle_released_volumes(kubectl, folder)
    document = json.dumps(build_first_objects(folder))
    read_output([*kubectl, "apply", "--server-side", "--force-conflicts", "-f", "-"], stdin=document)


def recycle_released_volumes(kubectl: list[str], folder: Path) -> None:
    """Empties and re-creates the volumes whose claim is gone, so that the next claim finds a free one."""
    known = json.loads(read_output([*kubectl, "get", "persistentvolumes", "-o", "json"]))["items"]
    released = {
        volume["metadata"]["name"] for volume in known if volume["status"].get("phase") in ("Released", "Failed")
    }
    for number in range(at.VOLUME_COUNT):
        name = _volume(folder, number)["metadata"]["name"]
        if name not in released:
            continue
        read_output([*kubectl, "delete", "persistentvolume", name, "--wait"])
        for entry in _folder(folder, number).iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        read_output([*kubectl, "create", "-f", "-"], stdin=json.dumps(_volume(folder, number)))


def _folder(folder: Path, number: int) -> Path:
    return folder / f"volume-{number}"


def _storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": at.VOLUME_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Retain",
    }


def _volume(folder: Path, number: int) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [at.NODE_NAME]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"lead-local-{number}"},
        "spec": {
            "capacity": {"storage": at.VOLUME_SIZE},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": at.VOLUME_CLASS,
            "local": {"path": str(_folder(folder, number))},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def _dns_role() -> list[dict[str, Any]]:
    reads = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": reads},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": reads},
    ]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": DNS_USER}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": DNS_USER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": DNS_USER},
        "subjects": [{"apiGroup": group, "kind": "User", "name": DNS_USER}],
    }
    return [role, binding]
