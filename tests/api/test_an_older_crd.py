"""Helm does not upgrade CRDs: a newer operator may meet the schema of an older release."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for


@pytest.fixture
def an_older_crd(control_plane: ControlPlane) -> Iterator[None]:
    """The CRD of runs without fields on two levels and in a list."""
    crd = yaml.safe_load((PROJECT_ROOT / "crds/trainingrun.yaml").read_text())
    older = copy.deepcopy(crd)
    status = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["display"]["properties"]["cacheHits"]
    del status["stages"]["items"]["properties"]["progress"]["properties"]["etaSeconds"]
    del status["stages"]["items"]["properties"]["startTime"]
    _install(control_plane, older, knows_the_fields=False)
    yield
    _install(control_plane, crd, knows_the_fields=True)


def _install(plane: ControlPlane, crd: dict[str, Any], *, knows_the_fields: bool) -> None:
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(crd))

    def taken_over() -> bool:
        schema = plane.kubectl("get", "--raw", "/openapi/v3/apis/lead.dev/v1alpha1")
        return ("cacheHits" in schema) == knows_the_fields

    wait_for("the API server to have taken the CRD over", taken_over)


def test_a_run_trains_on_without_the_fields_and_an_event_says_what_to_do(bench: Bench, an_older_crd: None) -> None:
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"]) == ("Succeeded", 0)
    assert "startTime" not in done["stages"][0]

    def told() -> str:
        return bench.kubectl("get", "events", "--field-selector=reason=CustomResourceDefinitionOutdated")

    said = wait_for("the event", lambda: "apply the crds/ of this release" in told() and told())
    assert "status.stages.startTime" in said
