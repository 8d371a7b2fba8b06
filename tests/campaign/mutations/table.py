"""Known-bad changes, each a mistake somebody will make one day, and the quick test that must turn red over it."""

from dataclasses import dataclass

STORE, ENGINE, OPERATOR = "tests/unit/store", "tests/unit/engine", "tests/unit/operator"
WAITS = f"{OPERATOR}/training_run/test_how_long_a_run_waits.py"
NEXT = f"{OPERATOR}/training_run/test_what_a_run_does_next.py"
ERASED = f"{OPERATOR}/training_run/test_an_erased_status_revives_nothing.py"


@dataclass(frozen=True)
class Mutation:
    """In `file`, `old` (which stands there once) becomes `new`; then `test` must fail."""

    name: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = (
    Mutation(
        "an attempt is not raised",
        "operator/lead_operator/decisions/training_run/plan.py",
        "attempt=state.attempt + 1,",
        "attempt=max(1, state.attempt),",
        f"{NEXT}::test_a_failed_rank_restarts_the_whole_group_from_its_own_budget",
    ),
    Mutation(
        "a fencing object in the bucket is not believed",
        "operator/lead_operator/decisions/training_run/state.py",
        "bucket.highest_attempt > attempt:",
        "bucket.highest_attempt > 10**9:",
        f"{NEXT}::test_the_next_attempt_is_above_status_pods_and_fencing_objects",
    ),
    Mutation(
        "a verdict in the bucket is not believed",
        "operator/lead_operator/decisions/training_run/plan.py",
        "    if ended is not None:",
        "    if False:",
        f"{ERASED}::test_an_erased_run_that_has_failed_shows_its_verdict_again_and_starts_nothing",
    ),
    Mutation(
        "pods of the last attempt are not waited for",
        "operator/lead_operator/decisions/training_run/plan.py",
        "    if view.awaited(view.blocking_pods):\n        waiting",
        "    if False:\n        waiting",
        f"{NEXT}::test_no_pod_of_the_next_attempt_is_made_while_one_of_the_last_may_write",
    ),
    Mutation(
        "pods go before the verdict that rests on them",
        "operator/lead_operator/decisions/training_run/plan.py",
        "deletes=deletes, claim=bool(deletes)",
        "deletes=deletes, claim=False",
        f"{WAITS}::test_a_verdict_is_written_before_the_pods_go_that_it_rests_on",
    ),
    Mutation(
        "a pod counts as stuck while its grace lasts",
        "operator/lead_operator/decisions/observed.py",
        "return now >= self.grace_ends_at + timedelta(seconds=STAYS_S)",
        "return now >= self.grace_ends_at - timedelta(seconds=STAYS_S)",
        f"{WAITS}::test_a_suspended_or_resumed_run_waits_no_longer_for_a_pod_that_does_not_go",
    ),
    Mutation(
        "a claim is given up before its node",
        "operator/lead_operator/decisions/training_run/pod_group.py",
        "since is not None and view.observed.now - since >= limit",
        "since is not None",
        f"{WAITS}::test_a_claim_stays_that_may_be_of_use",
    ),
    Mutation(
        "pods get random names",
        "operator/lead_operator/names.py",
        'return _child(run, f"-{stage}-s{seed}-a{attempt}-{rank}", ',
        "return _child(run, f\"-{stage}-s{seed}-a{attempt}-{rank}-{__import__('secrets').token_hex(3)}\", ",
        f"{OPERATOR}/objects/test_pods_and_services.py::test_the_pod_of_rank_1_of_a_small_run",
    ),
    Mutation(
        "infrastructure failures eat the budget of program errors",
        "operator/lead_operator/decisions/failure_policy.py",
        "counts = ExitClass.STOPPED if pod.exit_code == ExitCode.STOPPED else ExitClass.INFRASTRUCTURE",
        "counts = ExitClass.STOPPED if pod.exit_code == ExitCode.STOPPED else ExitClass.PROGRAM_ERROR",
        f"{NEXT}::test_a_failed_rank_restarts_the_whole_group_from_its_own_budget",
    ),
    Mutation(
        "an impossible report is believed",
        "operator/lead_operator/decisions/training_run/progress.py",
        "if reason := _implausible(report, state, before):",
        "if reason := '':",
        f"{NEXT}::test_a_report_that_cannot_be_true_is_ignored_and_named",
    ),
    Mutation(
        "a condition's time moves with every look",
        "operator/lead_operator/decisions/conditions.py",
        "format_time(now) if changed or before is None else before.last_transition_time",
        "format_time(now)",
        f"{NEXT}::test_a_condition_keeps_its_time_until_its_status_changes",
    ),
    Mutation(
        "a dead watch is ignored",
        "operator/lead_operator/kube/watchdog.py",
        "if silent_s > SILENT_S and now",
        "if silent_s > 10**9 and now",
        f"{OPERATOR}/kube/test_watchdog.py::test_only_silence_without_a_reason_is_deafness",
    ),
    Mutation(
        "two workers get one key",
        "operator/lead_operator/kube/work_queue.py",
        "            if self._lanes.get(key) == lane and key not in self._in_work:",
        "            if self._lanes.get(key) == lane:",
        f"{OPERATOR}/kube/test_work_queue.py::test_a_key_in_work_is_never_given_to_a_second_worker_and_comes_back_if_asked_for",
    ),
    Mutation(
        "every step is a write",
        "operator/lead_operator/controllers/apply.py",
        "if wait_s > 0 and not plan.urgent:",
        "if wait_s > 10**9 and not plan.urgent:",
        f"{OPERATOR}/kube/test_when_a_status_is_written.py"
        "::test_mere_progress_waits_for_ten_seconds_and_then_the_newest_is_written",
    ),
    Mutation(
        "news wait for their turn",
        "operator/lead_operator/controllers/apply.py",
        "if wait_s > 0 and not plan.urgent:",
        "if wait_s > 0:",
        f"{OPERATOR}/kube/test_when_a_status_is_written.py::test_what_a_person_waits_for_is_written_at_once",
    ),
    Mutation(
        "events of one reason go as they come",
        "operator/lead_operator/kube/event_recorder.py",
        "minute_s: float = 60.0",
        "minute_s: float = 0.0",
        f"{OPERATOR}/kube/test_events_are_sent_beside_the_passes.py"
        "::test_of_one_reason_one_is_sent_a_minute_and_others_do_not_wait_for_it",
    ),
    Mutation(
        "data goes before its manifest",
        "operator/lead_operator/bucket/checkpoint_gc.py",
        "    store.delete(removal.manifest_key)\n    memory.removed.add(removal.manifest_key)\n"
        "    for key in (*removal.data_keys, *filter(None, [removal.record_key])):\n        store.delete(key)\n",
        "    for key in (*removal.data_keys, *filter(None, [removal.record_key])):\n        store.delete(key)\n"
        "    store.delete(removal.manifest_key)\n    memory.removed.add(removal.manifest_key)\n",
        f"{STORE}/test_retention_in_a_bucket.py::test_many_old_checkpoints_go_in_portions_manifests_before_their_data",
    ),
    Mutation(
        "a 412 after a lost answer is a defeat",
        "operator/lead_protocol/store/s3.py",
        "return self._verdict_on_taken(request.key, size, sha256, deadline)",
        "return False",
        f"{STORE}/test_conformance.py::test_create_of_the_same_bytes_twice_is_true_twice",
    ),
    Mutation(
        "a download is trusted unhashed",
        "operator/lead_protocol/store/folder.py",
        "if (found, digest.hexdigest()) != (size, sha256):\n                raise ObjectCorrupt(\n"
        '                    f"{self.url}/{key} has',
        'if found < 0:\n                raise ObjectCorrupt(\n                    f"{self.url}/{key} has',
        f"{STORE}/test_conformance.py::test_a_download_with_wrong_size_or_digest_leaves_no_file",
    ),
    Mutation(
        "an object is written in place",
        "operator/lead_protocol/store/folder.py",
        "            part.write(data)\n            target.parent.mkdir(parents=True, exist_ok=True)\n"
        "            part.replace(target)",
        "            target.parent.mkdir(parents=True, exist_ok=True)\n            target.write_bytes(b'')\n"
        "            part.write(data)\n            part.replace(target)",
        f"{STORE}/test_folder.py::test_a_put_that_dies_while_it_writes_leaves_the_old_object",
    ),
    Mutation(
        "an overtaken attempt may commit",
        "trainer/lead_trainer/engine/checkpoints/attempt_fence.py",
        "    if newest > attempt:",
        "    if newest > attempt + 10**9:",
        f"{ENGINE}/test_only_one_attempt_writes.py::test_an_outdated_attempt_is_refused",
    ),
    Mutation(
        "a record's checksum is not looked at",
        "trainer/lead_trainer/data/record.py",
        "    if found != expected:",
        "    if found < 0:",
        "tests/unit/data/test_records_and_shards.py::test_every_cut_and_every_flipped_byte_of_a_shard_is_found",
    ),
    Mutation(
        "something is unpickled",
        "trainer/lead_trainer/data/record.py",
        "import xxhash",
        "import pickle\n\nimport xxhash\n\nUNSAFE = lambda data: pickle.loads(data)",
        "tests/unit/house/test_the_house_is_in_order.py::test_nothing_is_unpickled",
    ),
)
