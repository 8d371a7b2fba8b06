"""`make demo`: from nothing to a finished two-pod, two-stage training, in front of the user's eyes.

Standard library only: it runs with the machine's own python3. Each step is what a user would type, is printed before it
runs, and can be repeated; an interrupted demo goes on where it was.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lead_testing.local_cluster import CannotRun, Cluster, build_images, ensure_up, expected_work
from lead_testing.local_cluster.images import repository_and_tag
from lead_testing.local_cluster.progress import duration, expect, finish, percent, say
from lead_testing.statuses import newest_entry

PROJECT_ROOT = Path(__file__).resolve().parents[2]
MANIFEST = "crds/examples/lead-demo.yaml"
RUN = "lead-demo"
CACHE = "carla-demo"
OWN_RELEASE = "lead.dev/demo"  # a label that helm, from 3.13 on, keeps on the release
INSTALL_DEADLINE_S = 900
TRAIN_DEADLINE_S = 1800
EXPECTED_S = {"install": 45.0, "train": 100.0}  # on two cores, when programs and images are there


class DemoFailed(Exception):
    """A step did not reach its end; the message says which, and what to look at."""


def main() -> int:
    """Runs the demo; returns the exit status."""
    started = time.monotonic()
    try:
        work = {**expected_work(), **EXPECTED_S}
        expect(work)
        say(f"this takes about {duration(sum(work.values()))} on two cores; interrupted, it goes on where it was")
        cluster = ensure_up(for_images=True)
        if cluster.kind == "current":
            refuse_release_of_others(cluster)
        images = build_images(cluster)
        install(cluster, images)
        finish("install")
        train(cluster)
        finish("train")
        show(cluster)
    except (CannotRun, DemoFailed) as error:
        print(f"\nmake demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nmake demo: interrupted; run it again, it goes on where it was", file=sys.stderr)
        return 130
    print(f"\nDone in {(time.monotonic() - started) / 60:.1f} min.")
    return 0


def install(cluster: Cluster, images: dict[str, str]) -> None:
    """Installs or upgrades the chart with the example data switched on, and waits until it is ready."""
    step("install the chart: operator, object store, example data")
    settings = ["exampleData.enabled=true", "operator.progressSeconds=2"]  # a short run, looked at more often
    for name, reference in images.items():
        repository, tag = repository_and_tag(reference)
        settings += [f"images.{name}.repository={repository}", f"images.{name}.tag={tag}"]
    call(
        cluster,
        [
            "kubectl",
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "crds/trainingrun.yaml",
            "-f",
            "crds/datasetcache.yaml",
        ],
    )
    forget_interrupted_install(cluster)
    words = ["--labels", f"{OWN_RELEASE}=true", "--set", ",".join(settings)]
    words += ["--wait", "--wait-for-jobs", "--timeout", f"{INSTALL_DEADLINE_S}s"]
    call(cluster, ["helm", "upgrade", "--install", "lead", "charts/lead", *words])


def refuse_release_of_others(cluster: Cluster) -> None:
    """Raises DemoFailed where somebody else installed `lead`, in any namespace: CRDs and cluster roles are shared."""
    if found := releases(cluster, "--all-namespaces", "--selector", f"{OWN_RELEASE}!=true"):
        namespace = found[0]["namespace"]
        raise DemoFailed(
            f"namespace {namespace} of the current context's cluster holds a release `lead` that is not marked as the "
            "demo's own, and whose values, CRDs and roles it would replace. If an older demo installed it, which set "
            f"no mark, make room by `helm uninstall lead -n {namespace}`; else use another cluster, or see the example "
            f"on that release by `helm upgrade lead charts/lead -n {namespace} --reuse-values "
            "--set exampleData.enabled=true --wait --wait-for-jobs` and, in its first namespace for runs, "
            f"`kubectl apply -f {MANIFEST}`"
        )


def forget_interrupted_install(cluster: Cluster) -> None:
    """Removes a release that was cut off in the middle: helm refuses to go on with one; volumes and Secrets stay."""
    if any(found["status"].startswith("pending-") for found in releases(cluster)):
        call(cluster, ["helm", "uninstall", "lead", "--wait"])


def releases(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    """Returns name, namespace and status of the releases named `lead`, by default in the context's namespace."""
    listing = ["helm", "list", "--all", "--filter", "^lead$", "-o", "json", *words]
    answer = subprocess.run(
        command(cluster, listing), env=cluster.environment(), capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise DemoFailed(f"`{' '.join(listing)}` ended with {answer.returncode}: {answer.stderr.strip()}")
    return list(json.loads(answer.stdout))


def train(cluster: Cluster) -> None:
    """Applies the example manifest and follows it until it has succeeded."""
    step("apply the manifest: a dataset cache, then two pods training two stages")
    for kind, name, again in (("datasetcache", CACHE, ("Failed",)), ("trainingrun", RUN, ("Succeeded", "Failed"))):
        phase = phase_of(cluster, kind, name)
        if phase in again:
            print(f"an earlier {kind} {name} is {phase}: deleting it to start again")
            call(cluster, ["kubectl", "delete", kind, name, "--wait"])
    call(cluster, ["kubectl", "apply", "-f", MANIFEST])
    step("follow it")
    watch = subprocess.Popen(
        command(cluster, ["kubectl", "get", "trainingruns", RUN, "--watch"]), env=cluster.environment()
    )
    try:
        follow(cluster)
    finally:
        watch.terminate()
        watch.wait()


def follow(cluster: Cluster) -> None:
    """Waits until the run is Succeeded; raises DemoFailed when it or its cache is Failed, or after a long while."""
    deadline = time.monotonic() + TRAIN_DEADLINE_S
    while time.monotonic() < deadline:
        if phase_of(cluster, "trainingrun", RUN) == "Succeeded":
            return
        for kind, name in (("datasetcache", CACHE), ("trainingrun", RUN)):
            if phase_of(cluster, kind, name) == "Failed":
                call(cluster, ["kubectl", "describe", kind, name])
                raise DemoFailed(f"{kind} {name} is Failed; its conditions above say why")
        time.sleep(2)
    call(cluster, ["kubectl", "describe", "datasetcache", CACHE])
    call(cluster, ["kubectl", "describe", "trainingrun", RUN])
    raise DemoFailed(f"TrainingRun {RUN} did not end within {TRAIN_DEADLINE_S // 60} minutes; see its conditions above")


def show(cluster: Cluster) -> None:
    """Prints the resources, the last checkpoint, and what to try next."""
    step("what there is now")
    call(cluster, ["kubectl", "get", "datasetcaches,trainingruns"])
    status = resource(cluster, "trainingrun", RUN).get("status", {})
    print(f"the last checkpoint is {newest_entry(status)['checkpoint'].get('uri')}")
    step("try next")
    print(f"  {cluster.export_line()}")
    print("  kubectl get trainingruns                  # the columns")
    print(f"  kubectl describe trainingrun {RUN}    # the story: conditions and events")
    print(f"  kubectl logs -l lead.dev/run={RUN} --tail=20")
    print(f"  kubectl delete trainingrun {RUN} && kubectl apply -f {MANIFEST}   # the cache is kept")
    print("  make cluster-down                         # leaves nothing behind")


def phase_of(cluster: Cluster, kind: str, name: str) -> str:
    """Returns a resource's phase, empty when there is none yet."""
    found = resource(cluster, kind, name)
    return str(found.get("status", {}).get("phase", "")) if found else ""


def resource(cluster: Cluster, kind: str, name: str) -> dict[str, Any]:
    """Returns a custom resource, or an empty dict when it does not exist."""
    answer = subprocess.run(
        command(cluster, ["kubectl", "get", kind, name, "-o", "json", "--ignore-not-found"]),
        env=cluster.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(answer.stdout) if answer.returncode == 0 and answer.stdout.strip() else {}


def step(title: str) -> None:
    """Prints a heading."""
    share = percent()
    print(f"\n── {title}{'' if share is None else f' ({share} %)'} ──", flush=True)


def call(cluster: Cluster, arguments: Sequence[str]) -> None:
    """Prints and runs one command; raises DemoFailed when it fails."""
    print(f"$ {' '.join(arguments)}", flush=True)
    status = subprocess.run(
        command(cluster, arguments), cwd=PROJECT_ROOT, env=cluster.environment(), check=False
    ).returncode
    if status != 0:
        raise DemoFailed(f"`{' '.join(arguments)}` ended with exit status {status}")


def command(cluster: Cluster, arguments: Sequence[str]) -> list[str]:
    """Returns the command with the cluster's own binary where it has one."""
    own = cluster.bin_dir / arguments[0]
    return [str(own) if own.exists() else arguments[0], *arguments[1:]]


if __name__ == "__main__":
    sys.exit(main())
