"""A pull that fails is one short sentence with image, cause and remedy, however much a container runtime says."""

import pytest

from lead_operator.decisions.remedies import explain_waiting, what_it_waits_for
from lead_testing.makers import a_pod

IMAGE = "registry.example/team/lead-trainer:v9"
REMEDY = (
    "check the trainer image in the chart's values and the pull secrets of the namespace; kubectl describe pod p shows "
    "all of the message"
)
MISSING = (
    f'rpc error: code = NotFound desc = failed to pull and unpack image "{IMAGE}": failed to resolve reference '
    f'"{IMAGE}": {IMAGE}: not found'
)
REFUSED = (
    f'failed to pull image "{IMAGE}": failed to pull and unpack image "{IMAGE}": failed to resolve reference '
    f'"{IMAGE}": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to '
    "https://registry.example/token?scope=repository%3Ateam: 401 Unauthorized"
)
NO_HOST = (
    f'failed to pull image "{IMAGE}": failed to do request: Head "https://registry.example/v2/team/lead-trainer/'
    'manifests/v9": dial tcp: lookup registry.example on 10.96.0.10:53: no such host'
)


@pytest.mark.parametrize(
    ("reason", "said", "cause"),
    [
        ("ErrImagePull", MISSING, f": {IMAGE}: not found"),
        ("ErrImagePull", REFUSED, "401 Unauthorized"),
        ("ErrImagePull", NO_HOST, ": lookup registry.example on 10.96.0.10:53: no such host"),
        ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {MISSING}', f": {IMAGE}: not found"),
        ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"', " is not there yet; the kubelet waits before it"),
    ],
)
def test_the_sentence_names_image_cause_and_remedy(reason: str, said: str, cause: str) -> None:
    told = explain_waiting(a_pod(1, name="p", phase="Pending", waiting_reason=reason, waiting_message=said))
    assert told.startswith(f"pod p waits: {reason}: image {IMAGE}") and told.endswith(REMEDY)
    assert cause in told and len(told) < 420 and "rpc error" not in told


def test_whatever_a_runtime_says_is_cut_at_a_bound() -> None:
    for said in ("x" * 5000, f'image "{"i" * 3000}": {"c" * 3000}', "a: " * 2000, "line\n\n  and line\n" * 500, ":"):
        for reason in ("ErrImagePull", "ImagePullBackOff", "CreateContainerError"):
            pod = a_pod(1, name="p", phase="Pending", waiting_reason=reason, waiting_message=said)
            assert len(what_it_waits_for(pod)) < 600 and "\n" not in what_it_waits_for(pod)


def test_what_is_short_is_shown_as_it_is() -> None:
    pod = a_pod(1, name="p", phase="Pending", waiting_reason="Unschedulable", waiting_message="0/3 nodes are available")
    assert what_it_waits_for(pod) == "Unschedulable: 0/3 nodes are available"
