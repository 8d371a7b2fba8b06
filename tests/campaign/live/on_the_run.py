"""Faults of one run: its processes, its pods, its objects and its status."""

import json
import signal
import time
from collections.abc import Mapping

from campaign.live import host
from campaign.live.scene import BUSY_S, PATIENT, STORIES, LiveRun, insist
from lead_protocol.environment import SESSION_CACHE_DIR

MOMENT_S, HANG_S, LOADS_S = 12.0, 25, 120.0
_MANAGED_BY = "app.kubernetes.io/managed-by"
_WIPE = f"import shutil, os; [shutil.rmtree(e.path) for e in os.scandir({SESSION_CACHE_DIR!r}) if e.is_dir()]"


def signal_pod(run: LiveRun, what: signal.Signals, *, main: bool = False) -> None:
    """Sends a signal to the newest process of one of the run's live pods, or to its main one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [entry for entry in host.processes_of(run.a_pod()["metadata"]["uid"]) if (entry[1] == 1) == main]
        trainers = [entry for entry in found if b"lead" in entry[2]]
        if trainers and host.send([max(trainers, key=lambda entry: entry[1])[0]], what):
            return
        time.sleep(0.5)
    raise LookupError(f"{run.name} has no process to signal")


def kill_rank(run: LiveRun) -> None:
    signal_pod(run, signal.SIGKILL)


def kill_main(run: LiveRun) -> None:
    signal_pod(run, signal.SIGKILL, main=True)


def term_rank(run: LiveRun) -> None:
    signal_pod(run, signal.SIGTERM)


def term_main(run: LiveRun) -> None:
    signal_pod(run, signal.SIGTERM, main=True)


def delete_pod(run: LiveRun) -> None:
    run.do("delete", "pod", run.a_pod()["metadata"]["name"], "--wait=false", "--ignore-not-found")


def force_pod(run: LiveRun) -> None:
    run.do("delete", "pod", run.a_pod()["metadata"]["name"], "--grace-period=0", "--force", "--ignore-not-found")


def delete_all_pods(run: LiveRun) -> None:
    run.do("delete", "pods", "-l", f"lead.dev/run={run.name}", "--wait=false")


def evict_pod(run: LiveRun) -> None:
    victim = run.a_pod()["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": victim}}
    path = f"/api/v1/namespaces/{run.home.namespace}/pods/{victim}/eviction"
    run.do("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def hold_pod(run: LiveRun) -> None:
    """A pod that is deleted stays for half a minute after it has stopped."""
    victim = run.a_pod()["metadata"]["name"]
    run.do("patch", "pod", victim, "--type=merge", "-p", '{"metadata":{"finalizers":["lead.test/held"]}}')
    try:
        run.do("delete", "pod", victim, "--wait=false")
        time.sleep(30)
    finally:
        run.do("patch", "pod", victim, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


def unlabel_pod(run: LiveRun) -> None:
    """Somebody removes the labels by which operator and policies know a pod: the API server refuses."""
    victim = run.a_pod()["metadata"]["name"]
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            run.home.kubectl("--request-timeout=60s", "label", "pod", victim, f"{_MANAGED_BY}-", "lead.dev/run-")
        except AssertionError as error:
            if _MANAGED_BY in str(error).partition("Forbidden")[2]:
                return
            if "NotFound" in str(error):
                raise LookupError(f"pod {victim} of {run.name} has just ended") from error
            if time.monotonic() > deadline:
                raise
            time.sleep(2)
        else:
            raise ValueError(f"pod {victim} has lost its labels, expected the API server to refuse that")


def pause_rank(run: LiveRun) -> None:
    pod = run.a_pod()["metadata"]["uid"]
    with host.stopped([pid for pid, _, _ in host.processes_of(pod)]):
        time.sleep(MOMENT_S)


def hang_rank(run: LiveRun) -> None:
    """A rank stands still until the group is replaced; only one that has stepped hangs, before that it loads."""
    policy = STORIES[run.plan.story].get("failurePolicy", PATIENT)
    if not run.wait(lambda it: it.over or it.status.get("phase") == "Running", LOADS_S) or run.over:
        raise LookupError(f"{run.name} does not train")
    before = newest_attempt(run)
    patch = json.dumps({"spec": {"failurePolicy": {**policy, "hangTimeoutSeconds": HANG_S}}})
    run.do("patch", "trainingrun", run.name, "--type=merge", "-p", patch)
    try:
        signal_pod(run, signal.SIGSTOP)
        if not run.wait(lambda it: newest_attempt(it) > before or it.over, 180):
            host.send([pid for pid, _, _ in host.processes_of(run.a_pod()["metadata"]["uid"])], signal.SIGCONT)
            raise AssertionError(f"{run.name} hung for 180 s and was not replaced")
    finally:
        seconds = policy.get("hangTimeoutSeconds", 1800)
        patch = json.dumps({"spec": {"failurePolicy": {**policy, "hangTimeoutSeconds": seconds}}})
        run.do("patch", "trainingrun", run.name, "--type=merge", "-p", patch)


def newest_attempt(run: LiveRun) -> int:
    """Returns the sum of the attempts of all stages: it grows with each."""
    return sum(int(entry.get("attempt") or 0) for entry in run.status.get("stages") or [])


def cut_ranks(run: LiveRun) -> None:
    addresses = [pod["status"]["podIP"] for pod in run.pods() if pod["status"].get("podIP")]
    if len(addresses) < 2:
        raise LookupError(f"{run.name} has fewer than two pods")
    with host.refused(*(f"-s {a} -d {b} -j DROP" for a in addresses for b in addresses if a != b)):
        time.sleep(MOMENT_S)


def wipe_cache(run: LiveRun) -> None:
    name = run.a_pod()["metadata"]["name"]
    run.home.run("kubectl", "exec", name, "--", "python3", "-c", _WIPE)


def delete_claim(run: LiveRun) -> None:
    run.do("delete", "pvc", f"{run.name}-cache-0", "--wait=false", "--ignore-not-found")
    kill_rank(run)


def suspend_briefly(run: LiveRun) -> None:
    _suspend(run, True)
    time.sleep(run.rng.choice((0, 2, 10)))
    _suspend(run, False)


def toggle_suspend(run: LiveRun) -> None:
    for _ in range(5):
        _suspend(run, True)
        _suspend(run, False)


def _suspend(run: LiveRun, value: bool) -> None:
    run.do("patch", "trainingrun", run.name, "--type=merge", "-p", json.dumps({"spec": {"suspend": value}}))


def delete_service(run: LiveRun) -> None:
    run.do("delete", "service", "-l", f"lead.dev/owner-uid={run.story.uid}")


def erase_status(run: LiveRun) -> None:
    run.do("patch", "trainingrun", run.name, "--subresource=status", "--type=json", "-p",
           '[{"op":"remove","path":"/status"}]')  # fmt: skip


def forge_success(run: LiveRun) -> None:
    _forge(run, "Succeeded", "AllStagesDone")


def forge_failure(run: LiveRun) -> None:
    _forge(run, "Failed", "BadConfig")


def _forge(run: LiveRun, phase: str, reason: str) -> None:
    stages = insist(lambda: run.home.status("trainingrun", run.name)).get("stages", [])
    conditions = [
        {"type": phase, "status": "True", "reason": reason, "message": "forged", "observedGeneration": 1,
         "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]  # fmt: skip
    forged = {"phase": phase, "conditions": conditions, "stages": [{**each, "phase": phase} for each in stages]}
    _patch_status(run, forged)


def forge_restart_state(run: LiveRun) -> None:
    stages = insist(lambda: run.home.status("trainingrun", run.name)).get("stages", [])
    forged = {"endedAttempt": 0, "created": False, "atStep": 3, "errorsAtStep": 9, "endsAtStep": 9, "failedAttempt": 1}
    entries = [{**each, "restartState": forged} for each in stages]
    _patch_status(run, {"stages": entries, "lastFailure": {"reason": "Forged"}})


def _patch_status(run: LiveRun, status: Mapping[str, object]) -> None:
    words = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    run.do("patch", "trainingrun", run.name, *words)
