"""A model test of `decide_dataset_cache`: build pods, nodes, store, spec and operator fail or change in any order."""

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from lead_operator.decisions.dataset_cache.plan import MAX_INFRASTRUCTURE_FAILURES, decide_dataset_cache
from lead_operator.decisions.dataset_cache.state import answers, build_generation
from lead_operator.decisions.observed import BuildReport, ObservedBuild, ObservedCacheManifest, ObservedPod
from lead_operator.decisions.plan import Plan
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.dataset_cache import DatasetCache
from lead_protocol.job import BuildJob, parse_job
from lead_protocol.progress_record import BuildRecord
from lead_testing.decision_worlds.pods_world import PodsMachine, PodsWorld
from lead_testing.makers import SETTINGS, a_cache_body, a_dataset_cache
from lead_testing.parsed_statuses import cache_status

MAX_RETRIES = 2
SHARES = 2
EXIT_CODES = [1, 65, 75, 80, 137]


class CacheWorld(PodsWorld):
    """The world of one cache, built by two pods."""

    def __init__(self) -> None:
        super().__init__()
        self.generation, self.stride = 1, 1
        self.jobs: dict[str, BuildJob] = {}
        self.done: dict[str, set[int]] = {}  # digest -> shares that are complete
        self.results: dict[int, str] = {}  # generation -> digest
        self.manifests: set[str] = set()
        self.refused = ""

    def cache(self) -> DatasetCache:
        build = {"parallelism": SHARES, "maxRetries": MAX_RETRIES}
        return a_dataset_cache(generation=self.generation, config={"stride": self.stride}, build=build)

    def observe(self) -> ObservedBuild:
        pods = self.observed_pods()
        seen: dict[str, Any] = {"store_error": "StoreUnavailable: no answer"}
        if self.store_up:
            digest = self.results.get(build_generation(self.cache(), cache_status(self.status)), "")
            manifest = ObservedCacheManifest(digest, 3, 2, {"crashed": 1}, 40, SHARES, 2048)
            seen = {"result_digest": digest, "manifest": manifest if digest in self.manifests else None}
            running = (p for p in pods if p.phase == "Running")
            seen["reports"] = tuple(BuildReport(p.rank, self._record(p), self.now) for p in running)
        return ObservedBuild(
            now=self.now, pods=pods, previous=copy.deepcopy(self.status), apply_error=self.refused, **seen
        )

    def _record(self, pod: ObservedPod) -> BuildRecord:
        done = len(self.done.get(digest_of(self.jobs[pod.name]), ()))
        return BuildRecord(
            attempt=pod.attempt, seq=1, phase="Building", digest=digest_of(self.jobs[pod.name]), routes_total=3,
            routes_kept=2, samples=40, shards_total=SHARES, shards_done=done, size_bytes=1024 * done,
        )  # fmt: skip

    def _create(self, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        if name in self.pods or self.refused:
            return
        job = parse_job(body["metadata"]["annotations"]["lead.dev/job"])
        assert isinstance(job, BuildJob)
        rivals = [p.name for p in self.pods.values() if self.may_write(p) and p.rank == job.index]
        assert not rivals, f"{name} was made while {rivals} may still write the same share"
        assert job.generation == self.generation
        build = self.status["build"]
        ended = {worker["index"]: worker["endedAttempt"] for worker in build["workers"]}
        assert job.attempt > ended[job.index], f"{name} was made after its end was accounted for"
        self.jobs[name] = job
        self._add_pod(name, job.index, f"node-{job.index}", role="build", stage="", seed=0, attempt=job.attempt)

    # what kubelets and build pods do

    def start(self, name: str) -> None:
        self.pods[name] = replace(self.pods[name], phase="Running", ready=True, started_at=self.now)

    def finish_share(self, name: str) -> None:
        """A pod does its share; the one that completes the last share commits the cache."""
        if not self.store_up:
            self.end(name, 80)
            return
        job, digest = self.jobs[name], digest_of(self.jobs[name])
        done = self.done.setdefault(digest, set())
        done.add(job.index)
        if len(done) == SHARES:
            self.manifests.add(digest)
        if digest in self.manifests:
            self.results.setdefault(job.generation, digest)
        self.end(name, 0)


def digest_of(job: BuildJob) -> str:
    return f"{job.config['stride']:064x}"


class CacheMachine(PodsMachine):
    world: CacheWorld

    @initialize()
    def begin(self) -> None:
        self.world = CacheWorld()

    @rule()
    def reconcile(self) -> None:
        self.observe(None)

    @rule(actions=st.integers(0, 4))
    def reconcile_and_die(self, actions: int) -> None:
        self.observe(actions)

    def observe(self, stop_after: int | None) -> None:
        world, cache, observed = self.world, self.world.cache(), self.world.observe()
        plan = decide_dataset_cache(cache, observed, SETTINGS)
        again = decide_dataset_cache(cache, replace(observed, previous=plan.status), SETTINGS)
        if not plan.claim_attempt and not plan.deletes and plan.status["reason"] != "SourceChanged":
            assert again.status == plan.status
            assert not again.events and not again.claim_attempt
        before = (world.status.get("observedGeneration"), world.status.get("phase"))
        if answers(cache, cache_status(world.status)):  # the newest spec, or one that comes to the same
            before = (world.generation, world.status.get("phase"))
        self.check(plan, before)
        world.apply(plan, stop_after)

    def check(self, plan: Plan, before: tuple[int | None, str | None]) -> None:
        world, status = self.world, plan.status
        fill_defaults({**a_cache_body(), "status": status})
        committed = world.results.get(build_generation(world.cache(), cache_status(world.status))) in world.manifests
        if status["phase"] == "Ready":
            assert committed or (not world.store_up and before == (world.generation, "Ready"))
            assert not plan.creates
        if committed and world.store_up:
            assert status["phase"] == "Ready"
        elif before == (world.generation, "Failed"):
            assert status["phase"] == "Failed"
        for worker in status["build"]["workers"]:
            assert worker["errors"] <= MAX_RETRIES + 1
            assert worker["infrastructureFailures"] <= MAX_INFRASTRUCTURE_FAILURES + 1
            assert worker["endedAttempt"] <= worker["attempt"]

    @rule()
    def all_pods_start(self) -> None:
        for name in self.world.names("Pending"):
            self.world.start(name)

    @precondition(lambda self: self.world.names("Running"))
    @rule(data=st.data())
    def a_share_is_done(self, data: st.DataObject) -> None:
        self.world.finish_share(data.draw(st.sampled_from(self.world.names("Running"))))

    @precondition(lambda self: self.world.names("Running"))
    @rule(data=st.data(), code=st.sampled_from(EXIT_CODES))
    def a_pod_fails(self, data: st.DataObject, code: int) -> None:
        self.world.end(data.draw(st.sampled_from(self.world.names("Running"))), code)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def somebody_deletes_a_pod(self, data: st.DataObject) -> None:
        pod = self.world.pods[data.draw(st.sampled_from(sorted(self.world.pods)))]
        self.world.delete(pod.name, pod.uid, None)

    @rule()
    def deleted_pods_are_gone(self) -> None:
        self.world.finish_deletions()

    @rule(node=st.sampled_from(["node-0", "node-1"]))
    def a_node_goes_or_comes_back(self, node: str) -> None:
        self.world.lose_or_return(node)

    @rule()
    def the_store_goes_or_comes_back(self) -> None:
        self.world.store_up = not self.world.store_up

    @rule()
    def a_quota_comes_or_goes(self) -> None:
        self.world.refused = "" if self.world.refused else "Pod x: exceeded quota: none"

    @rule(stride=st.integers(1, 3))
    def the_spec_changes(self, stride: int) -> None:
        self.world.generation, self.world.stride = self.world.generation + 1, stride

    @rule()
    def the_source_changes(self) -> None:
        """What was read so far is worth nothing: the pods that end now commit nothing."""
        world = self.world
        for digest in set(world.done) - world.manifests:
            world.done[digest].clear()

    @rule()
    def the_bucket_is_emptied(self) -> None:
        self.world.done, self.world.results, self.world.manifests = {}, {}, set()

    @rule()
    def the_status_is_erased(self) -> None:
        self.world.status = {}

    @rule(seconds=st.integers(1, 90))
    def time_goes_on(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    def teardown(self) -> None:
        """When the world is kind again, every build comes to an end and then to rest."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.store_up, world.lost_nodes, world.refused = True, {}, ""
        for _ in range(60):
            self.observe(None)
            world.finish_deletions()
            self.all_pods_start()
            for name in world.names("Running"):
                if not world.pods[name].deleting:
                    world.finish_share(name)
            world.now += timedelta(seconds=30)
            if world.status.get("observedGeneration") == world.generation and world.status["phase"] in (
                "Ready",
                "Failed",
            ):
                break
        assert world.status["phase"] in ("Ready", "Failed"), world.status
        for _ in range(3):
            self.observe(None)
            world.finish_deletions()
        plan = decide_dataset_cache(world.cache(), world.observe(), SETTINGS)
        assert plan.status == world.status
        assert not plan.creates and not plan.deletes and not plan.events
        assert not any(pod.kept_by_sidecar for pod in world.pods.values())
