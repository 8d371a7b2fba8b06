"""Faults of the object store: its process, who answers in its place, links to it, and what lies in the bucket."""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from campaign.live import host
from campaign.live.impostor import Reply, Request, forwarded, impostor
from campaign.live.on_the_run import kill_rank
from campaign.live.scene import LiveRun, insist, secret_of
from lead_protocol.store.object_store import ObjectStore
from lead_testing.local_cluster import addresses

SHORT_S, LONG_S = 10.0, 75.0  # a call gives up after 60 s
SERVICE, PORT = "lead-minio", 9000
_PAGE = b"<html><head><title>Sign in</title></head><body>Please sign in.</body></html>"
_FULL = (  # MinIO's own answer below its free drive threshold
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>XMinioStorageFull</Code><Message>Storage backend has '
    b"reached its minimum free drive threshold. Please delete a few objects to proceed.</Message></Error>"
)


def delete_pod(run: LiveRun) -> None:
    run.release_do("delete", "pod", "lead-minio-0", "--grace-period=1", "--wait=false")


def kill(run: LiveRun) -> None:
    host.send(_processes(run, b"server"), signal.SIGKILL)


def kill_relay(run: LiveRun) -> None:
    host.send(_processes(run, b"token-keys"), signal.SIGKILL)


def pause(run: LiveRun) -> None:
    with host.stopped(_processes(run, b"server")):
        time.sleep(SHORT_S)


def pause_long(run: LiveRun) -> None:
    with host.stopped(_processes(run, b"server")):
        time.sleep(LONG_S)


def _processes(run: LiveRun, word: bytes) -> list[int]:
    pod = insist(lambda: run.scene.release.get("pod", "lead-minio-0"))
    return [pid for pid, _, command in host.processes_of(pod["metadata"]["uid"]) if word in command]


def _address(run: LiveRun) -> str:
    return str(insist(lambda: run.scene.release.get("pod", "lead-minio-0"))["status"]["podIP"])


def cut_pod(run: LiveRun) -> None:
    _cut(run, 2 * SHORT_S)


def cut_pod_long(run: LiveRun) -> None:
    _cut(run, LONG_S)


def _cut(run: LiveRun, seconds: float) -> None:
    pod, store = run.a_pod()["status"]["podIP"], _address(run)
    with host.refused(f"-s {pod} -d {store} -j DROP"):
        time.sleep(seconds)


def answered_404(run: LiveRun) -> None:
    with _answered(run, _always(404, b"", "text/plain")):
        time.sleep(2 * SHORT_S)


def answered_503(run: LiveRun) -> None:
    with _answered(run, _always(503, b"upstream connect error", "text/plain")):
        time.sleep(2 * SHORT_S)


def answered_page(run: LiveRun) -> None:
    with _answered(run, _always(200, _PAGE, "text/html")):
        time.sleep(2 * SHORT_S)


def answered_at_a_kill(run: LiveRun) -> None:
    kill_rank(run)
    with _answered(run, _always(404, b"", "text/plain")):
        time.sleep(4 * SHORT_S)


def full(run: LiveRun) -> None:
    store = _address(run)

    def answer(request: Request) -> Reply:
        if request.command != "PUT":
            return forwarded(request, store, PORT)
        request.content  # noqa: B018 - whoever sends it reads no answer before it is sent
        return Reply(507, _FULL, (("Content-Type", "application/xml"),))

    with _answered(run, answer):
        time.sleep(2 * SHORT_S)


def _always(code: int, body: bytes, kind: str) -> Callable[[Request], Reply]:
    return lambda _: Reply(code, body, (("Content-Type", kind),))


@contextlib.contextmanager
def _answered(run: LiveRun, answer: Callable[[Request], Reply]) -> Iterator[None]:
    """Lets somebody else answer at the store's Service; connections that are open to the store are reset."""
    release, tls = run.scene.release, secret_of(run.scene.release, "lead-minio-tls")
    selector = insist(lambda: release.get("service", SERVICE))["spec"]["selector"]
    store = _address(run)
    with impostor(answer, tls["tls.crt"], tls["tls.key"]) as port:
        elsewhere: dict[str, Any] = {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "lead-impostor", "labels": {"kubernetes.io/service-name": SERVICE}},
            "ports": [{"name": "s3", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [addresses.NODE_ADDRESS], "conditions": {"ready": True}}],
        }  # fmt: skip
        try:
            _select(run, {"app.kubernetes.io/component": "impostor"})
            run.release_do("apply", "-f", "-", stdin=json.dumps(elsewhere))
            with host.refused(f"-p tcp -d {store} --dport {PORT} -j REJECT --reject-with tcp-reset"):
                yield
        finally:
            _select(run, selector)
            run.release_do("delete", "endpointslice", "lead-impostor", "--ignore-not-found")


def _select(run: LiveRun, selector: dict[str, str]) -> None:
    patch = json.dumps([{"op": "replace", "path": "/spec/selector", "value": selector}])
    run.release_do("patch", "service", SERVICE, "--type=json", "-p", patch)


def flip_newest(run: LiveRun) -> None:
    _spoil(run, lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])


def cut_newest(run: LiveRun) -> None:
    _spoil(run, lambda data: data[: len(data) // 2])


def delete_newest(run: LiveRun) -> None:
    _spoil(run, None)


def flip_all(run: LiveRun) -> None:
    _spoil(run, lambda data: bytes([data[0] ^ 1]) + data[1:], newest=False)


def delete_manifests(run: LiveRun) -> None:
    def act(store: ObjectStore) -> None:
        for info in list(store.list(run.keys().manifests_prefix)):
            store.delete(info.key)

    _until_killed(run, act)


def delete_manifest(run: LiveRun) -> None:
    _until_killed(run, lambda store: store.delete(_manifests(run, store)[-1]))


def garble_manifest(run: LiveRun) -> None:
    _until_killed(run, lambda store: store.put(_manifests(run, store)[-1], b'{"version": 1, "files": '))


def cut_progress(run: LiveRun) -> None:
    def act(store: ObjectStore) -> None:
        key = max(info.key for info in store.list(run.keys().progress_prefix))
        store.put(key, store.get(key, max_bytes=2**20)[:40])

    run.scene.in_the_bucket(act)


def forge_fence(run: LiveRun) -> None:
    """An attempt that nobody has started stops the pods until it is removed."""
    key = run.keys().attempt(900)
    run.scene.in_the_bucket(lambda store: store.put(key, b'{"attempt": 900}'))
    try:
        time.sleep(SHORT_S)
    finally:
        run.scene.in_the_bucket(lambda store: store.delete(key))


def _manifests(run: LiveRun, store: ObjectStore) -> list[str]:
    found = sorted(info.key for info in store.list(run.keys().manifests_prefix))
    if len(found) < 2:
        raise LookupError(f"{run.name} has no second checkpoint yet")  # the loss of the only one ends a run
    return found


def _spoil(run: LiveRun, change: Callable[[bytes], bytes] | None, *, newest: bool = True) -> None:
    """Changes (or deletes, without a change) weights of the newest checkpoint, or of all; then a rank dies."""

    def act(store: ObjectStore) -> None:
        for manifest in _manifests(run, store)[-1:] if newest else _manifests(run, store):
            files = json.loads(store.get(manifest, max_bytes=2**20))["files"]
            key = next(file["key"] for name, file in files.items() if name.startswith("model_"))
            if change is None:
                store.delete(key)
            else:
                store.put(key, change(store.get(key, max_bytes=2**28)))

    _until_killed(run, act)


def _until_killed(run: LiveRun, act: Callable[[ObjectStore], None]) -> None:
    """Lets the ranks stand still while the bucket is changed, so that no newer checkpoint comes; then one dies."""
    pids = [pid for pod in run.pods() for pid, _, _ in host.processes_of(pod["metadata"]["uid"])]
    with host.stopped(pids):
        run.scene.in_the_bucket(act)
        kill_rank(run)
