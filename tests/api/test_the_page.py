"""The page shows to each visitor what the API server lets them see, and nothing to nobody."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from lead_protocol.object_keys import InstanceKeys
from lead_protocol.progress_record import ProgressRecord, to_bytes
from lead_testing.api_bench import Bench, kubeconfig_of
from lead_testing.browser import browser_at
from lead_testing.charts import rendered
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER
from lead_testing.operator_process import wait_for
from lead_testing.page_process import Answer, PageProcess
from lead_testing.shown_pages import PAYLOADS, faults_of, shown
from lead_trainer.report.tensorboard import EventFile
from lead_ui.web.headers import POLICY

READ = [
    {"apiGroups": ["lead.dev"], "resources": ["trainingruns", "datasetcaches"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]
NOW = "2026-01-02T03:04:05Z"
TABS = ("", "/timeline", "/pictures", "/checkpoints", "/conditions", "/config", "/logs", "/spark.svg",
        "/curves.json?tag=loss&marks=true")  # fmt: skip


@dataclass
class Served:
    """Two namespaces with a run and a cache each, a page over both, and visitors with rights on one of them."""

    bench: Bench
    page: PageProcess
    first: str
    second: str
    tokens: dict[str, str]

    def get(self, path: str, who: str = "", **more: Any) -> Answer:
        return self.page.get(path, self.tokens.get(who, who), **more)


@pytest.fixture
def served(bench: Bench, tmp_path: Path) -> Iterator[Served]:
    first, second = f"{bench.namespace}-a", f"{bench.namespace}-b"
    for namespace in (first, second):
        bench.plane.kubectl("create", "namespace", namespace)
    values = {"ui__enabled": "true", "runs__namespaces": json.dumps([first, second])}
    kubectl(bench, rendered("ui/rbac", namespace=bench.namespace, **values))
    for namespace, secret in ((first, "open"), (second, "secret")):
        make_run(bench, namespace, f"{secret}-run", tmp_path / secret)
        kubectl(bench, [in_namespace(a_dataset_cache(f"{secret}-cache", "datasets/town"), namespace)])
    tokens = {}
    for name, namespace, rules in (("alice", first, READ), ("bob", second, READ), ("narrow", first, READ[:1]),
                                   ("nobody", first, [])):  # fmt: skip
        bench.kubectl("create", "serviceaccount", name)
        tokens[name] = bench.kubectl("create", "token", name).strip()
        user = {"kind": "ServiceAccount", "name": name, "namespace": bench.namespace}
        if rules:
            kubectl(bench, [a_role(name, namespace, rules), a_binding(name, namespace, user)])
    kubeconfig = kubeconfig_of(bench, "lead-ui", tmp_path / "kubeconfig")
    with ExitStack() as stack:
        page = PageProcess(kubeconfig, tmp_path / "page", (first, second), bench.minio.endpoint, bench.namespace)
        stack.enter_context(page)
        found = Served(bench, page, first, second, tokens)
        wait_for("rights to be known", lambda: "open-run" in found.get("/runs", "alice").text)
        wait_for("rights to be known", lambda: "secret-run" in found.get("/runs", "bob").text)
        yield found


def kubectl(bench: Bench, items: list[dict[str, Any]]) -> None:
    bench.plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def in_namespace(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "namespace": namespace}}


def a_role(name: str, namespace: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}


def a_binding(name: str, namespace: str, subject: dict[str, str]) -> dict[str, Any]:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": role,
            "metadata": {"name": name, "namespace": namespace}, "subjects": [subject]}  # fmt: skip


def make_run(bench: Bench, namespace: str, name: str, folder: Path, texts: tuple[str, ...] = ()) -> str:
    """Makes a run with a status, a pod, an event, and in the bucket a report, curves and pictures; returns its UID."""
    config = {"lr": 0.1, **{f"key{at}": {text: text} for at, text in enumerate(texts)}}
    kubectl(bench, [in_namespace(a_training_run(name, "town", config=config), namespace)])
    uid = bench.plane.kubectl("-n", namespace, "get", "trun", name, "-o", "jsonpath={.metadata.uid}")
    condition = {"type": "Progressing", "status": "True", "lastTransitionTime": NOW, "reason": "Training"}
    words = " ".join(texts)[:2000] or f"sentence about {name}"
    status = {"phase": "Running", "reason": "Training", "conditions": [{**condition, "message": words}],
              "display": {"stage": "pretrain", "epoch": "1/2", "loss": "0.5"}}  # fmt: skip
    patch(bench, namespace, name, status)
    owner = {"apiVersion": "lead.dev/v1alpha1", "kind": "TrainingRun", "name": name, "uid": uid, "controller": True}
    labels = {"lead.dev/owner-uid": uid, "lead.dev/role": "train", "lead.dev/stage": "pretrain", "lead.dev/seed": "0",
              "lead.dev/attempt": "1", "lead.dev/rank": "0"}  # fmt: skip
    metadata = {"name": f"{name}-pod", "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    pod = {"containers": [{"name": "lead", "image": "image"}], "automountServiceAccountToken": False}
    events = [
        {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.{at}", "namespace": namespace},
         "involvedObject": {"kind": "TrainingRun", "name": name, "namespace": namespace, "uid": uid},
         "type": "Warning", "reason": "Why", "message": text[:1000], "lastTimestamp": NOW, "count": 1}
        for at, text in enumerate(texts or (f"event of {name}",))
    ]  # fmt: skip
    kubectl(bench, [{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}, *events])
    keys = InstanceKeys(namespace, uid, "pretrain", 0)
    report = {"attempt": 1, "seq": 1, "phase": "Training", "epoch": 1, "epochs": 2, "step": 3, "steps": 6,
              "message": words[:200]}  # fmt: skip
    bench.store.put(keys.progress(1), to_bytes(ProgressRecord.model_validate(report)))
    written = EventFile(folder, bench.store, keys.tensorboard_prefix, attempt=1, first_step=0, on=True)
    for step in (1, 2, 3):
        written.scalars({"loss": 1.0 / step, **{text[:200]: 1.0 for text in texts}}, step)
    written.picture("prediction", np.zeros((4, 4, 3), np.uint8), 3)
    written.close()
    return uid


def patch(bench: Bench, namespace: str, name: str, status: dict[str, Any]) -> None:
    wanted = json.dumps({"status": status})
    bench.plane.kubectl("-n", namespace, "patch", "trun", name, "--subresource=status", "--type=merge", "-p", wanted)


def paths_of(namespace: str, kind: str) -> list[str]:
    run, pod = f"/runs/{namespace}/{kind}-run", f"{kind}-run-pod"
    picture = f"{run}/picture?instance=pretrain-s0&tag=prediction&step=3"
    named = f"run={namespace}/{kind}-run"
    return [*(f"{run}{tab}" for tab in TABS), picture, f"{run}/logs?pod={pod}", f"/compare?{named}",
            f"/compare/curves.json?{named}&tag=loss", f"/caches/{namespace}/{kind}-cache"]  # fmt: skip


def test_nothing_is_shown_without_a_token(served: Served) -> None:
    """Audit: page-token"""
    paths = ["/", "/runs", "/compare", "/caches", "/space", *paths_of(served.first, "open")]
    for token in ("", "no-token", f"{served.tokens['alice']}x", "x" * 20_000):
        for path in paths[1:]:
            answer = served.get(path, token)
            assert answer.status == 401, path
            assert "sentence about" not in answer.text and "pretrain" not in answer.text, path
            assert answer.headers["content-security-policy"] == POLICY
    assert served.get("/healthz").body == b"ok"


def test_a_visitor_sees_one_namespace_and_no_url_shows_the_other(served: Served) -> None:
    """By name, by another's picture, log, curve or comparison, by a path that climbs, or by a filter.

    Audit: page-tenants
    """
    shows = {"/logs"}  # no kubelet is here to read a log from: 503 is an answer to somebody who may ask
    for who, own, other in (("alice", "open", "secret"), ("bob", "secret", "open")):
        namespaces = {"open": served.first, "secret": served.second}
        for path in paths_of(namespaces[own], own):
            answer = served.get(path, who)
            assert answer.status == 200 or (answer.status == 503 and any(f"run{tab}" in path for tab in shows)), path
        absent = served.get(f"/runs/{namespaces[other]}/absent", who)
        for path in paths_of(namespaces[other], other):
            answer = served.get(path, who)
            assert answer.status == 404, path
            assert f"{other}-run" not in answer.text and f"{other}-cache" not in answer.text
            if path.startswith("/runs/") and path.count("/") == 3 and "?" not in path:
                assert answer.text == absent.text  # whether it exists is not shown either
        for path in ("/runs", f"/runs?namespace={namespaces[other]}", "/runs?q=run", "/caches", "/space", "/compare"):
            answer = served.get(path, who)
            assert answer.status == 200 and f"{other}-" not in answer.text, path
        assert f"{own}-run" in served.get("/runs", who).text
        assert f"{own}-cache" in served.get("/caches", who).text
        assert f"{own}-run" in served.get("/space", who).text
        mixed = f"/compare/curves.json?run={namespaces[own]}/{own}-run&run={namespaces[other]}/{other}-run&tag=loss"
        assert served.get(mixed, who).status == 404
        climbing = (
            f"/runs/{namespaces[own]}/..%2F..%2F{namespaces[other]}%2F{other}-run",
            f"/runs/{namespaces[own]}/{own}-run/../../{namespaces[other]}/{other}-run",
            f"/compare?run={namespaces[own]}%2F..%2F{namespaces[other]}%2F{other}-run",
            f"/runs/{namespaces[own]}/{own}-run/logs?pod={other}-run-pod",
            f"/runs/{namespaces[own]}/{own}-run/picture?instance=..%2F..%2F{other}&tag=prediction&step=3",
            f"/runs/{namespaces[own]}%00/{own}-run",
            f"/runs//{other}-run",
        )
        for path in climbing:
            answer = served.get(path, who)
            assert answer.status in (400, 404), path
            assert f"sentence about {other}" not in answer.text


def test_a_visitor_without_the_right_to_pods_events_and_logs_sees_none_of_them(served: Served) -> None:
    run = f"/runs/{served.first}/open-run"
    whole, narrow = (served.get(f"{run}/conditions", who).text for who in ("alice", "narrow"))
    assert "event of open-run" in whole and "event of open-run" not in narrow and "sentence about open-run" in narrow
    whole, narrow = (served.get(f"{run}/timeline", who).text for who in ("alice", "narrow"))
    assert "open-run-pod" in whole and "open-run-pod" not in narrow
    assert served.get(f"{run}/logs", "narrow").status == 404
    assert "open-run" not in served.get("/runs", "nobody").text
    assert served.get(run, "nobody").status == 404


def test_a_right_that_is_taken_away_is_gone_from_the_page(served: Served) -> None:
    run = f"/runs/{served.first}/open-run"
    assert served.get(run, "alice").status == 200
    served.bench.plane.kubectl("-n", served.first, "delete", "rolebinding", "alice")
    wait_for("the right to be gone", lambda: served.get(run, "alice").status == 404)
    assert "open-run" not in served.get("/runs", "alice").text


def test_the_form_keeps_the_token_in_a_cookie_that_no_script_and_no_other_site_uses(served: Served) -> None:
    """Audit: page-cookie"""
    body = f"token={served.tokens['alice']}&next=/runs/{served.first}/open-run"
    answer = served.page.get("/login", method="POST", body=body)
    assert (answer.status, answer.headers["location"]) == (303, f"/runs/{served.first}/open-run")
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie.lower() for part in ("httponly", "samesite=strict", "path=/"))
    secure = served.page.get("/login", method="POST", body=body, X_Forwarded_Proto="https").headers["set-cookie"]
    assert secure.startswith("__Host-") and "secure" in secure.lower()
    value = cookie.partition(";")[0]
    assert "open-run" in served.page.get("/runs", Cookie=value).text
    assert served.page.get("/runs", Cookie=f"{value}x").status == 401
    for headers in ({"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert served.page.get("/login", method="POST", body=body, **headers).status == 403
        assert served.page.get("/logout", method="POST", body="x=1", Cookie=value, **headers).status == 403
    wrong = served.page.get("/login", method="POST", body="token=wrong&next=//evil.example/")
    assert wrong.status == 401 and "set-cookie" not in wrong.headers and "evil.example" not in wrong.text
    gone = served.page.get("/logout", method="POST", body="x=1", Cookie=value).headers["set-cookie"]
    assert "lead-token" in gone and ("max-age=0" in gone.lower() or "1970" in gone)


def test_a_person_signs_in_and_out_in_a_browser(served: Served) -> None:
    """Audit: page-cookie"""
    run = f"/runs/{served.first}/open-run"
    with browser_at(f"http://127.0.0.1:{served.page.port}") as browser:
        browser.open(run)
        assert "Sign in" in browser.text() and "open-run" not in browser.text()
        browser.errors()  # of the answer 401
        browser.driver.find_element(By.ID, "token").send_keys(served.tokens["alice"])
        browser.driver.find_element(By.XPATH, "//button[text()='Sign in']").click()
        browser.wait("the run", lambda: "sentence about open-run" in browser.text())
        assert browser.driver.current_url.endswith(run) and browser.run("return document.cookie") == ""
        browser.wait("a chart", lambda: browser.run("return document.querySelectorAll('.chart canvas').length"))
        assert browser.errors() == [] and browser.faults_for_people() == []
        browser.open(f"/runs/{served.second}/secret-run")
        assert "secret" not in browser.text()
        browser.open("/runs")
        browser.driver.find_element(By.XPATH, "//button[text()='Sign out']").click()
        browser.wait("the form", lambda: "Kubernetes token" in browser.text())
        browser.open(run)
        assert "open-run" not in browser.text()


def test_no_key_of_the_store_reaches_a_browser_and_the_page_may_change_nothing(served: Served) -> None:
    """Audit: page-keys"""
    for path in ["/runs", "/caches", "/space", "/compare", *paths_of(served.first, "open")]:
        answer = served.get(path, "alice")
        everything = f"{answer.text} {answer.headers}"
        assert ROOT_USER not in everything and ROOT_PASSWORD not in everything, path
        assert list(faults_of(answer.text)) == [] or "text/html" not in answer.headers["content-type"]
    account = f"system:serviceaccount:{served.bench.namespace}:lead-ui"
    for namespace in (served.first, served.second):
        for verb in ("create", "update", "patch", "delete", "deletecollection"):
            for kind in ("trainingruns", "trainingruns/status", "datasetcaches", "pods", "events", "secrets"):
                assert not allowed(served.bench, account, verb, kind, namespace), f"{verb} {kind}"
        assert not allowed(served.bench, account, "get", "secrets", namespace)
        assert allowed(served.bench, account, "list", "pods", namespace)
    for method in ("PUT", "PATCH", "DELETE", "POST"):
        assert served.get("/runs", "alice", method=method).status == 405


def allowed(bench: Bench, account: str, verb: str, kind: str, namespace: str) -> bool:
    resource, _, subresource = kind.partition("/")
    group = "lead.dev" if resource in ("trainingruns", "datasetcaches") else ""
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": account, "groups": ["system:serviceaccounts", "system:authenticated"],
                     "resourceAttributes": attributes}}  # fmt: skip
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(bench.driver.api.call("POST", path, body)["status"]["allowed"])


def test_hostile_texts_of_runs_pods_and_events_stay_text(served: Served, tmp_path: Path) -> None:
    """Audit: page-text"""
    make_run(served.bench, served.first, "hostile", tmp_path / "hostile", PAYLOADS)
    run = f"/runs/{served.first}/hostile"
    wait_for("the run", lambda: served.get(run, "alice").status == 200)
    for path in ("/runs", "/compare", *(f"{run}{tab}" for tab in TABS[:6]), f"/compare?run={served.first}/hostile"):
        answer = served.get(path, "alice")
        assert answer.status == 200 and list(faults_of(answer.text)) == [], path
        assert answer.headers["content-security-policy"] == POLICY
    events = "".join(shown(served.get(f"{run}/conditions", "alice").text).text.split())
    assert [text for text in PAYLOADS if "".join(text.split()) not in events] == []
    tags = shown(served.get(run, "alice").text).values("figure", "data-tag")
    assert set(PAYLOADS) <= set(tags)
    for text in PAYLOADS:
        answer = served.get(f"{run}/curves.json?tag={quote(text, safe='')}", "alice")
        assert answer.headers["content-type"] == "application/json" and answer.headers["x-content-type-options"]


def test_a_change_of_a_status_is_on_the_page_within_five_seconds(served: Served) -> None:
    patch(served.bench, served.first, "open-run", {"phase": "Failed", "reason": "OutOfMemory"})
    start = time.monotonic()
    run = f"/runs/{served.first}/open-run"
    wait_for("the end", lambda: "OutOfMemory" in served.get(run, "alice", HX_Request="true").text, within_s=60)
    assert time.monotonic() - start < 5, "a page that is open asks every two seconds"
    assert "OutOfMemory" in served.get("/runs", "alice", HX_Request="true").text


def test_a_proxy_names_the_user_only_beside_the_secret(served: Served, tmp_path: Path) -> None:
    """Audit: page-proxy"""
    secret = "a-secret-of-the-proxy"
    (tmp_path / "proxy-secret").write_text(secret)
    user = {"kind": "User", "name": "carol@example.com", "apiGroup": "rbac.authorization.k8s.io"}
    kubectl(served.bench, [a_role("carol", served.first, READ), a_binding("carol", served.first, user)])
    environment = {"LEAD_UI_PROXY_USER_HEADER": "X-Forwarded-User", "LEAD_UI_PROXY_GROUPS_HEADER": "X-Forwarded-Groups",
                   "LEAD_UI_PROXY_SECRET_HEADER": "X-Proxy-Secret",
                   "LEAD_UI_PROXY_SECRET_FILE": str(tmp_path / "proxy-secret")}  # fmt: skip
    kubeconfig = served.page.kubeconfig
    with PageProcess(kubeconfig, tmp_path / "proxied", (served.first, served.second), served.page.endpoint,
                     served.page.bucket, environment) as page:  # fmt: skip
        named = {"X_Forwarded_User": "carol@example.com"}
        wait_for("her rights", lambda: "open-run" in page.get("/runs", X_Proxy_Secret=secret, **named).text)
        assert "secret-run" not in page.get("/runs", X_Proxy_Secret=secret, **named).text
        for headers in (named, {**named, "X_Proxy_Secret": "wrong"}, {**named, "X_Proxy_Secret": ""}):
            assert page.get("/runs", **headers).status == 401
        admins = {"X_Forwarded_Groups": "system:masters", "X_Forwarded_User": "mallory", "X_Proxy_Secret": secret}
        assert "-run" not in shown(page.get("/runs", **admins).text).text.replace("kubectl apply -f run.yaml", "")
        assert page.get("/runs", X_Forwarded_User="system:admin", X_Proxy_Secret=secret).status == 401
        assert "open-run" in page.get("/runs", served.tokens["alice"]).text  # a token works beside it
    assert served.page.get("/runs", X_Proxy_Secret=secret, **named).status == 401  # off by default
