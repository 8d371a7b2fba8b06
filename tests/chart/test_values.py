"""The schema of the values: complete, described, and refusing what does not exist; the CRDs are those of crds/."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from lead_operator.settings import TAKEN_VARIABLE, VARIABLE
from lead_protocol.store.address_rules import ADDRESSINGS, BUCKET, ENDPOINT
from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster.binaries import ensure_programs
from lead_testing.local_cluster.errors import CannotRun
from lead_testing.local_cluster.home import Home

CHART = PROJECT_ROOT / "charts/lead"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
FREE_FORM = {
    "/global",
    "/networkPolicy/extraEgress/[]",
    "/operator/extraEnv/[]",
    "/runs/limitRange/[]",
}  # Helm's own; what the API server checks


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}/{name}")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}/*")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}/[]")


def keys(values: Any, path: str = "") -> Iterator[str]:
    if isinstance(values, dict):
        for name, child in values.items():
            yield f"{path}/{name}"
            yield from keys(child, f"{path}/{name}")


def test_every_key_of_the_schema_is_described() -> None:
    assert [path for path, node in nodes(SCHEMA) if not node.get("description", "").endswith(".")] == []


def test_every_object_of_the_schema_refuses_unknown_keys() -> None:
    open_objects = [
        path for path, node in nodes(SCHEMA) if node.get("type") == "object" and "additionalProperties" not in node
    ]
    assert set(open_objects) == FREE_FORM


def test_every_default_is_in_the_schema_and_every_key_of_the_schema_has_a_default() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(DEFAULTS, SCHEMA)
    described = {path for path, _ in nodes(SCHEMA) if path and "*" not in path and "[]" not in path} - {"/global"}
    free = (
        "/requests",
        "/limits",
        "/nodeSelector",
        "/tolerations",
        "/affinity",
        "/serviceMonitor/labels",
        "/alerts/labels",
        "/dashboard/labels",
        "/dashboard/annotations",
    )
    given = {path for path in keys(DEFAULTS) if not any(f"{key}/" in path for key in free)}
    assert described == given


def test_an_address_of_a_store_is_checked_as_operator_and_pods_check_it() -> None:
    profiles = SCHEMA["properties"]["storage"]["properties"]["profiles"]
    for profile in (profiles["additionalProperties"], profiles["properties"]["default"]):
        assert profile["properties"]["endpoint"]["pattern"] == f"^({ENDPOINT})?$"  # empty: the embedded store
        assert profile["properties"]["bucket"]["pattern"] == f"^{BUCKET}$"
        assert profile["properties"]["addressing"]["enum"] == list(ADDRESSINGS)


def test_variables_of_pods_are_checked_as_the_operator_checks_them() -> None:
    names = SCHEMA["properties"]["runs"]["properties"]["environment"]["propertyNames"]
    assert names == {"pattern": f"^{VARIABLE}$", "not": {"pattern": f"^({TAKEN_VARIABLE})$"}}


@pytest.mark.parametrize(
    "setting, named",
    [
        ("minoi.enabled=false", "minoi"),
        ("operator.logLevl=DEBUG", "logLevl"),
        ("operator.logLevel=debug", "/operator/logLevel"),
        ("minio.persistence.siz=1Gi", "siz"),
        ("storage.profiles.default.endpont=x", "endpont"),
        ("storage.profiles.default.endpoint=http://x", "/storage/profiles/default/endpoint"),
        ("storage.profiles.default.endpoint=minio.svc.:9000", "/storage/profiles/default/endpoint"),
        ("storage.profiles.default.bucket=UPPER", "/storage/profiles/default/bucket"),
        ("storage.profiles.default.prefix=../x", "/storage/profiles/default/prefix"),
        ("storage.profiles.default.existingSecret=kube-root", "/storage/profiles/default/existingSecret"),
        ("storage.profiles.default.addressing=virtual", "/storage/profiles/default/addressing"),
        ("storage.profiles.other.endpoint=x", "/storage/profiles/other"),
        ("storage.profiles.default.credentials=none", "/storage/profiles/default/credentials"),
        ("storage.profiles.default.stsEndpoint=sts.example.com", "/storage/profiles/default/stsEndpoint"),
        ("storage.profiles.default.shared={runs/team-a}", "/storage/profiles/default/shared/0"),
        ("storage.profiles.default.caConfigMap=kube-root-ca.crt", "/storage/profiles/default/caConfigMap"),
        ("minio.tls.generation=0", "/minio/tls/generation"),
        ("runs.namespaces={Team_A}", "/runs/namespaces/0"),
        ("runs.environment.NCCL_NTHREADS=2", "/runs/environment/NCCL_NTHREADS"),  # a number; --set-string makes it text
        ("runs.environment.nccl_debug=INFO", "nccl_debug"),
        ("runs.environment.PET_NNODES=two", "PET_NNODES"),
        ("operator.replicas=many", "/operator/replicas"),
        ("operator.workers=0", "/operator/workers"),
        ("operator.api.inFlight=1000", "/operator/api/inFlight"),
        ("operator.api.callsPerSecond=5", "/operator/api/callsPerSecond"),
        ("operator.serviceMonitor.enabld=true", "enabld"),
        ("networkPolicy.apiServerPorts={0}", "/networkPolicy/apiServerPorts/0"),
        ("images.operator.tag=", "/images/operator/tag"),
        ("policy.allowedPriorityClasses={system-node-critical}", "/policy/allowedPriorityClasses/0"),
        ("policy.allowedLables={team}", "allowedLables"),
        ("policy.maxNodes=0", "/policy/maxNodes"),
        ("runs.disk.scratch=much", "/runs/disk/scratch"),
        ("networkPolicy.storeCidrs={store}", "/networkPolicy/storeCidrs/0"),
        ("storage.profiles.default.shared={runs/x}", "/storage/profiles/default/shared/0"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_name(helm: Any, setting: str, named: str) -> None:
    done = helm("template", "lead", str(CHART), "--kube-version", "1.34.4", "--set", setting)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize(
    "settings, said",
    [
        ("minio.enabled=false", "set the endpoint"),
        ("storage.profiles.default.existingSecret=lead-s3-x", "drop existingSecret"),
        ("storage.profiles.default.secure=true,minio.tls.enabled=false", "set minio.tls.enabled to true"),
        ("storage.profiles.default.credentials=static", "gives pods no lasting keys; drop credentials"),
        ("storage.profiles.default.roleArn=arn:aws:iam::1:role/lead", "set the endpoint or drop them"),
        ("storage.profiles.default.endpoint=s3.example.com,storage.profiles.default.credentials=webIdentity",
         "create a Secret with the operator's access-key"),
        ("storage.profiles.default.addressing=virtualHost", "which has no host name for each bucket; set the endpoint"),
        ("storage.profiles.default.addressing=virtualHost,storage.profiles.default.endpoint=10.0.0.9:9000",
         "its endpoint 10.0.0.9:9000 is an IP address"),
        ("storage.profiles.default.addressing=virtualHost,storage.profiles.default.endpoint=[fd00::1]:9000",
         "is an IP address, below which there are no host names; name the host"),
        ("storage.profiles.default.addressing=virtualHost,storage.profiles.default.endpoint=s3.example.com:443,"
         "storage.profiles.default.bucket=my.data,storage.profiles.default.secure=true",
         "a certificate for *.s3.example.com is none for my.data.s3.example.com; set addressing to path"),
        ("storage.profiles.default.namespaces={other}", "the namespaces for runs are default"),
        ("runs.buildServiceAccountName=lead-run", "give them two names"),
        ("storage.profiles.default.endpoint=s3.example.com", "no existingSecret; create a Secret"),
        ("exampleData.enabled=true,exampleData.profile=other", "the storage profiles are default"),
        ("exampleData.enabled=true,exampleData.prefix=raw", "which no cache of namespace default may read"),
        ("exampleData.enabled=true,runs.namespaces={a,b}", "set it to datasets/a/carla_demo"),
        ("ui.enabled=true,ui.proxy.userHeader=X-User", "everyone who reaches the page could name themselves"),
        ("storage.profiles.default.uiSecret=lead-s3-page", "set the endpoint or drop them"),
        ("admissionPolicies.imagesByDigest=true", "set images.trainer.digest"),
        ("images.minio.tag=0.1.0@sha256:" + "0" * 64 + ",images.minio.digest=sha256:" + "1" * 64, "keep one of them"),
        ("exampleData.enabled=true,exampleData.namespace=other", "the namespaces for runs are default"),
        ("exampleData.enabled=true,runs.namespaces={a,b},storage.profiles.default.namespaces={b},exampleData.namespace=a",
         "which may not use the profile default; its namespaces are b"),
    ],
)  # fmt: skip
def test_a_contradiction_is_refused_with_a_remedy(helm: Any, settings: str, said: str) -> None:
    done = helm("template", "lead", str(CHART), "--kube-version", "1.34.4", "--set", settings)
    assert done.returncode != 0
    assert said in done.stderr


def test_helm_lint_finds_nothing(helm: Any) -> None:
    done = helm("lint", "--strict", str(CHART), "--kube-version", "1.34.4")
    assert done.returncode == 0, done.stdout


def test_the_charts_crds_are_copies_of_those_in_crds() -> None:
    # Links would say the same once, but archives and some checkouts turn them into text files.
    copies = {path.name: path.read_bytes() for path in (CHART / "crds").iterdir()}
    originals = {path.name: path.read_bytes() for path in (PROJECT_ROOT / "crds").glob("*.yaml")}
    assert copies == originals, "copy them anew: cp crds/*.yaml charts/lead/crds/"


def test_helm_brings_the_crds(helm: Any) -> None:
    done = helm("template", "lead", str(CHART), "--kube-version", "1.34.4", "--include-crds")
    assert done.returncode == 0, done.stderr
    shown = [found for found in yaml.safe_load_all(done.stdout) if found["kind"] == "CustomResourceDefinition"]
    written = [yaml.safe_load(path.read_text()) for path in sorted((PROJECT_ROOT / "crds").glob("*.yaml"))]
    assert sorted(shown, key=lambda crd: str(crd["metadata"]["name"])) == sorted(
        written, key=lambda crd: str(crd["metadata"]["name"])
    )


def test_the_helm_of_the_local_cluster_renders_without_being_told_a_version() -> None:
    """Built without its own flags it takes Kubernetes 1.20, which the chart refuses."""
    try:
        helm = ensure_programs(Home.from_environment(), ["helm"])["helm"]
    except CannotRun as reason:
        pytest.skip(f"helm cannot be built: {reason}")
    done = subprocess.run([helm, "template", "lead", CHART], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
