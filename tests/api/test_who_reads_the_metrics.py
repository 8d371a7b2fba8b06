"""The operator's pages: a word for kubelet, the whole by TLS for accounts that the API server lets get them."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing.api_bench import Bench, kubeconfig_of
from lead_testing.charts import rendered
from lead_testing.local_cluster.pki import Authority, Identity
from lead_testing.operator_process import OperatorProcess, wait_for
from lead_testing.ports import free_port


class Guarded:
    """An operator that asks for tokens, with the rights that the chart gives it."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._port = free_port()
        keys = Authority(folder / "keys")
        keys.issue(Identity("tls", "operator-metrics", hosts=("IP:127.0.0.1",)))
        self._trust = ssl.create_default_context(cafile=str(keys.certificate("ca")))
        kubeconfig = kubeconfig_of(bench, "lead-operator", folder / "kubeconfig")
        self.process = OperatorProcess(
            kubeconfig, folder / "guarded", bench.namespace, bench.minio.endpoint, bench.namespace
        )
        self.process.start(
            LEAD_METRICS_AUTHENTICATION="TokenReview",
            LEAD_METRICS_PORT=str(self._port),
            LEAD_METRICS_CERTIFICATES_DIR=str(keys.folder),
        )

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        """Returns status and text; (0, "") while nobody listens."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://127.0.0.1:{self._port}{path}", headers=headers)
        try:
            handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._trust))
            with urllib.request.build_opener(*handlers).open(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


@pytest.fixture
def guarded(bench: Bench, tmp_path: Path) -> Iterator[Guarded]:
    readers = json.dumps([{"namespace": bench.namespace, "serviceAccountName": "prometheus"}])
    parts = ("operator/rbac", "operator/serviceaccount", "operator/metrics-access")
    items = rendered(*parts, namespace=bench.namespace, operator__metrics__readers=readers)
    bench.plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for account in ("prometheus", "somebody"):
        bench.kubectl("create", "serviceaccount", account)
    found = Guarded(bench, tmp_path)
    with found.process:
        wait_for("the pages to be served", lambda: found.get("/metrics")[0] == 401)
        yield found


def test_metrics_are_read_with_the_token_of_an_account_that_may_and_with_no_other(
    bench: Bench, guarded: Guarded
) -> None:
    """No pod reads the numbers, namespaces and reasons of all teams by reaching a port.

    Audit: minor-metrics
    """
    reader, stranger = (bench.kubectl("create", "token", name).strip() for name in ("prometheus", "somebody"))
    wait_for("the reader's right", lambda: guarded.get("/metrics", reader)[0] == 200)
    assert "lead_watch_age_seconds" in guarded.get("/metrics", reader)[1]
    for token in ("", "no-token", f"{reader}x"):
        status, said = guarded.get("/metrics", token)
        assert (status, "lead_" in said) == (401, False)
    status, said = guarded.get("/metrics", stranger)
    assert status == 403 and "operator.metrics.readers" in said
    assert (guarded.get("/readyz", reader)[0], guarded.get("/readyz", stranger)[0]) == (200, 403)


def test_kubelets_port_says_one_word_and_no_number(guarded: Guarded) -> None:
    """Audit: minor-metrics"""
    wait_for("it to be ready", lambda: guarded.process.page("readyz") == (200, "ok"))
    assert guarded.process.page("healthz") == (200, "ok")
    assert guarded.process.page("metrics")[0] == 404
