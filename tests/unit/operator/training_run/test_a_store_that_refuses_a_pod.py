"""A run that its store refuses ends with the Secret, ConfigMap or profile in which a person corrects that."""

from dataclasses import replace

import pytest

from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.remedies import correct_pods_access
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.settings import StorageProfile
from lead_testing.makers import NOW, PROFILE, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

SPLIT = replace(PROFILE, build_secret_name="lead-s3-builds", ca_config_map="lead-store-ca-mine")
TOKENS = replace(PROFILE, credentials="webIdentity", secret_name="")


def test_a_run_with_a_refused_key_names_its_secret() -> None:
    run, status = a_training_run(), {}
    for pods in ((), (a_pod(0), a_pod(1)), (a_pod(0), a_failed_pod(1, 77, message="TLS failed"))):
        seen = ObservedRun(now=NOW, previous=status, caches=(a_ready_cache(),), service_exists=True, pods=pods)
        status = decide_training_run(run, seen, SETTINGS).status
    told = next(c["message"] for c in status["conditions"] if c["type"] == "Failed")
    assert told == (
        "TLS failed; correct the key in Secret lead-s3-default of namespace team-a, what the store lets it do, or "
        "ca.crt in it (storage profile default); then recreate the run"
    )


@pytest.mark.parametrize(
    ("profile", "build", "said"),
    [
        (
            SPLIT,
            True,
            "Secret lead-s3-builds of namespace team-b, what the store lets it do, or ca.crt in ConfigMap l",
        ),
        (SPLIT, False, "Secret lead-s3-default of namespace team-b"),
        (TOKENS, True, "ask the administrator what the store of profile default lets pods of namespace team-b do"),
        (None, True, "ask the administrator for the storage profile"),
    ],
)
def test_what_to_correct_follows_the_profile(profile: StorageProfile | None, build: bool, said: str) -> None:
    assert said in correct_pods_access(profile, "team-b", build=build)
