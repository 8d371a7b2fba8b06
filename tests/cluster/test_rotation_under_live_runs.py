"""Every key of the embedded store, its certificate and its authority are rotated, and the STS is away, under live runs.

What is done is what `charts/lead/operating.md` tells an administrator, while two equal runs train. One has credentials
of an hour, which root's new password ends at once; the other's last seconds, through a relay, so that an outage takes
several lives of them.
"""

import base64
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from lead_protocol.environment import STORE_URL
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.open_store import open_store
from lead_testing.figures import stay
from lead_testing.installed import Installed, conditions, fresh_namespace, helm, uninstall, upload_tree
from lead_testing.live_runs import newest_manifest
from lead_testing.local_cluster import Cluster
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.statuses import newest_entry
from lead_testing.store_tls import authorities, authority, certificate, is_served_by, trusted, wait_until_mounted
from lead_testing.sts_relay_pod import PROFILE, hand_out_key, install_relay, relayed_profile, sts_away
from lead_trainer.example_worlds.lead.tree import write_example_tree

LIFE_S, LIVES = 10.0, 4  # of the relayed run's credentials; how many of them the STS is away
EPOCHS = 40  # so many that the relayed run still trains after the outage
FEWER_EPOCHS = 24  # so many that both runs still train when the old authority is trusted no more
STAGE = "pretrain"
RUNS = {"hourly": "default", PROFILE: PROFILE}  # by name: the storage profile


@pytest.fixture(scope="module")
def release(cluster: Cluster, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release of its own with a raw tree, and a second profile whose STS is the relay."""
    found = fresh_namespace(cluster, f"lead-rotate-{uuid.uuid4().hex[:6]}")
    try:
        helm(found, "install", images)
        hand_out_key(found)
        helm(found, "upgrade", images, relayed_profile(found))
        install_relay(found, images["operator"], LIFE_S)
        tree = tmp_path_factory.mktemp("rotated") / "tree"
        write_example_tree(tree, routes=1, frames=10, seed=1, failed_routes=0)
        with found.store() as store:
            upload_tree(store, tree, "datasets/town")
        yield found
    finally:
        uninstall(found)


def test_rotated_keys_and_an_sts_that_is_away_cost_no_run(release: Installed) -> None:
    """Audit: B3"""
    pods = train(release, EPOCHS)
    before = keys_of_the_store(release)
    assert {name: opens(release, *pair) for name, pair in before.items()} == dict.fromkeys(before, True)
    rotate_all_keys(release)
    for run in RUNS:
        wait_for_a_checkpoint(release, run)
    assert {run: pods_of(release, run) for run in RUNS} == pods
    assert {name: opens(release, *pair) for name, pair in before.items()} == dict.fromkeys(before, False)
    after = keys_of_the_store(release)
    assert {name: opens(release, *pair) for name, pair in after.items()} == dict.fromkeys(before, True)

    with sts_away(release):
        stay("the relayed run's credentials end", 2 * LIFE_S)
        waiting = epoch(release, PROFILE)
        stay("the STS is away", (LIVES - 2) * LIFE_S)
        assert epoch(release, PROFILE) == waiting < EPOCHS  # nothing is written by credentials that have ended
    wait_for_a_checkpoint(release, PROFILE)
    assert pods_of(release, PROFILE) == pods[PROFILE]
    end_alike(release, EPOCHS)


def test_another_certificate_and_another_authority_of_the_store_cost_no_run(release: Installed) -> None:
    """The page's three upgrades; then every connection is made anew, by the new authority alone. Audit: minor-http"""
    while authorities(trusted(release)) > 1:  # a try before this one ended between the upgrades
        upgrade(release)
    pods, serving, first = train(release, FEWER_EPOCHS), pods_of_the_release(release), certificate(release)
    old, generation = trusted(release), int(authority(release, "generation"))

    upgrade(release, "--set", f"minio.tls.generation={generation + 1}")
    both, new = trusted(release), authority(release, "next.crt")
    assert (authorities(both), old in both, new in both) == (2, True, True)
    wait_until_mounted(release, both)
    release.wait_for("another certificate of the old authority", lambda: certificate(release) != first)
    assert is_served_by(release, old)

    upgrade(release)
    assert trusted(release) == both or authorities(trusted(release)) == 2
    wait_until_mounted(release, trusted(release))
    release.wait_for("a certificate of the new authority", lambda: is_served_by(release, new))

    upgrade(release)
    assert trusted(release) == new
    wait_until_mounted(release, new)
    assert pods_of_the_release(release) == serving  # none was restarted by any of this
    assert {run: pods_of(release, run) for run in RUNS} == pods
    trained = {run: epoch(release, run) for run in RUNS}
    assert max(trained.values()) + 1 < FEWER_EPOCHS, f"{trained} of {FEWER_EPOCHS} epochs: too few for this machine"
    release.kubectl("delete", "pod", "lead-minio-0")
    end_alike(release, FEWER_EPOCHS)
    assert not is_served_by(release, old)
    assert pods_of_the_release(release)["operator"] == serving["operator"]


def train(release: Installed, epochs: int) -> dict[str, set[str]]:
    """Starts the runs and waits for a checkpoint of each; returns the UIDs of their pods."""
    for run, profile in RUNS.items():
        apply_cache(release, run, profile)
    for run in RUNS:
        release.wait_for_phase("datasetcache", run, "Ready")
    for run, profile in RUNS.items():
        stages = [{"name": STAGE, "epochs": epochs}]
        release.apply_anew(a_training_run(run, run, nodes=1, stages=stages, storageProfile=profile))
    for run in RUNS:
        release.wait_for(f"a checkpoint of {run}", lambda run=run: reported_epoch(release, run), deadline_s=600)  # type: ignore[misc]
    return {run: pods_of(release, run) for run in RUNS}


def end_alike(release: Installed, epochs: int) -> None:
    """Waits until both runs have Succeeded, as the operator sees it, in their first attempt and by the same weights."""
    ends = {}
    for run in RUNS:
        status = release.wait_for_phase("trainingrun", run, "Succeeded", deadline_s=600)
        assert (status["restarts"]["total"], status["stages"][0]["attempt"]) == (0, 1), conditions(status)
        ends[run] = newest(release, run)
        assert (ends[run]["final"], ends[run]["epoch"], ends[run]["attempt"]) == (True, epochs, 1)
    assert len({end["parameters_sha256"] for end in ends.values()}) == 1


def apply_cache(release: Installed, name: str, profile: str) -> None:
    cache = a_dataset_cache(name, "datasets/town", collections=["full_pretrain"], storageProfile=profile)
    cache["spec"]["build"] |= {"parallelism": 1}
    release.apply(cache)


def rotate_all_keys(release: Installed) -> None:
    """Gives root, the operator and people other keys, as the page says for each."""
    names = ("root-password", "default.operator-secret-key", f"default.{release.namespace}.data-secret-key")
    others = ",".join(f'"{name}":"{uuid.uuid4().hex}"' for name in names)
    release.kubectl("patch", "secret", "lead-minio-credentials", "-p", f'{{"stringData":{{{others}}}}}')
    release.kubectl("delete", "job", "-l", "app.kubernetes.io/component=storage-init")
    upgrade(release)
    hand_out_key(release)
    release.kubectl("delete", "pod", "lead-minio-0")
    release.wait_for("the store to be prepared", lambda: all_jobs_succeeded(release), deadline_s=300)


def upgrade(release: Installed, *settings: str) -> None:
    """Upgrades the release as the page says."""
    done = release.run("helm", "upgrade", "lead", "charts/lead", "--reuse-values", *settings)
    assert done.returncode == 0, done.stderr


def all_jobs_succeeded(release: Installed) -> bool:
    jobs = release.items("jobs", "app.kubernetes.io/component=storage-init")
    return bool(jobs) and all(job["status"].get("succeeded") for job in jobs)


def keys_of_the_store(release: Installed) -> dict[str, tuple[str, str]]:
    """Returns access key and secret key of root, the operator and people, each from the Secret that hands it out."""
    found = {"root": release.root_credentials()}
    for secret in ("lead-operator-s3-default", "lead-data-default"):
        data = release.get("secret", secret)["data"]
        access, key = (base64.b64decode(data[name]).decode() for name in ("access-key", "secret-key"))
        found[secret] = access, key
    return found


def opens(release: Installed, access_key: str, secret_key: str) -> bool:
    """Tells whether the store knows a key."""
    key = {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key}
    with release.store_environment() as environment:
        store = open_store({STORE_URL: "s3://lead", **environment, **key})
        try:
            return next(iter(store.list("datasets/")), None) is not None
        except StoreDenied as error:
            assert error.of_key, error
            return False


def wait_for_a_checkpoint(release: Installed, run: str) -> None:
    """Waits until the run has begun one after now, and committed it."""
    newest = epoch(release, run)
    assert newest + 1 < EPOCHS, f"{run} has trained {newest} of {EPOCHS} epochs: too few for this machine"
    release.wait_for(f"a checkpoint of {run}", lambda: epoch(release, run) > newest + 1)  # one may be under way


def newest(release: Installed, run: str) -> dict[str, Any]:
    """Returns a run's newest manifest."""
    with release.store() as store:
        return newest_manifest(store, release, run, STAGE)


def epoch(release: Installed, run: str) -> int:
    """Returns the epochs of a run's newest checkpoint."""
    return int(newest(release, run)["epoch"])


def reported_epoch(release: Installed, run: str) -> int:
    """Returns the epochs of the newest checkpoint that the operator tells of, 0 before the first."""
    return int(newest_entry(release.status("trainingrun", run))["checkpoint"].get("epoch", 0))


def pods_of(release: Installed, run: str) -> set[str]:
    """Returns the UIDs of a run's pods, of which none has restarted a container."""
    pods = release.items("pods", f"lead.dev/run={run}")
    assert not [s for pod in pods for s in pod["status"].get("containerStatuses", []) if s["restartCount"]]
    return {str(pod["metadata"]["uid"]) for pod in pods}


def pods_of_the_release(release: Installed) -> dict[str, set[tuple[str, int]]]:
    """Returns UIDs and restarts of the pods that serve runs: the operator's and the store's, by component."""
    found: dict[str, set[tuple[str, int]]] = {}
    for pod in release.items("pods", "app.kubernetes.io/component in (operator, minio)"):
        restarts = sum(s["restartCount"] for s in pod["status"].get("containerStatuses", []))
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        found.setdefault(component, set()).add((pod["metadata"]["uid"], restarts))
    return found
