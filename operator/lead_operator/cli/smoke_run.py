"""`lead-operator smoke-run FILE`: creates a cache and a short run, waits until the run has ended, and removes both.

What `helm test` runs. It goes the way of a user, through the API server alone, with a ServiceAccount of its own that
may do nothing else. Prints what changes in either status, so that the log of a failed test shows the cause.
"""

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from lead_operator.errors import LeadOperatorError
from lead_operator.names import GROUP, VERSION

PLURALS = {"DatasetCache": "datasetcaches", "TrainingRun": "trainingruns"}
POLL_S = 2.0
FAILED_PHASES = ("Failed",)

Manifest = dict[str, Any]


class SmokeRunFailed(LeadOperatorError):
    """The run has failed, or not ended in time."""


@dataclass(frozen=True)
class SmokeRun:
    """The resources of one test, in one namespace, under names of their own."""

    namespace: str
    manifests: Sequence[Manifest]  # the run last

    @classmethod
    def of(cls, text: str, namespace: str) -> "SmokeRun":
        """Reads manifests and gives each name, and each reference to one, a suffix of its own."""
        suffix = uuid.uuid4().hex[:6]
        manifests = [each for each in yaml.safe_load_all(text) if each]
        for manifest in manifests:
            manifest["metadata"]["name"] += f"-{suffix}"
            for dataset in manifest["spec"].get("datasets", []):
                dataset["cacheRef"]["name"] += f"-{suffix}"
        return cls(namespace, manifests)

    def carry_out(
        self, api: client.CustomObjectsApi, deadline_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates everything and waits for the run; raises SmokeRunFailed with the statuses' own messages."""
        ends_at = now() + deadline_s
        with self._created(api):
            shown: dict[str, str] = {}
            while now() < ends_at:
                statuses = {self._title(each): self._status(api, each) for each in self.manifests}
                for title, status in statuses.items():
                    line = f"{title}: {status.get('phase', 'not seen by the operator yet')} {_message(status)}".rstrip()
                    if shown.get(title) != line:
                        shown[title] = line
                        print(line, flush=True)
                if any(status.get("phase") in FAILED_PHASES for status in statuses.values()):
                    raise SmokeRunFailed("; ".join(shown.values()))
                if statuses[self._title(self.manifests[-1])].get("phase") == "Succeeded":
                    return
                time.sleep(POLL_S)
            raise SmokeRunFailed(f"not ended after {deadline_s:g} s; {'; '.join(shown.values())}")

    @contextmanager
    def _created(self, api: client.CustomObjectsApi) -> Iterator[None]:
        try:
            for manifest in self.manifests:
                api.create_namespaced_custom_object(GROUP, VERSION, self.namespace, _plural(manifest), manifest)
            yield
        finally:
            for manifest in reversed(self.manifests):
                with suppress(client.ApiException):  # not created, or gone
                    api.delete_namespaced_custom_object(
                        GROUP, VERSION, self.namespace, _plural(manifest), manifest["metadata"]["name"]
                    )

    def _status(self, api: client.CustomObjectsApi, manifest: Manifest) -> Mapping[str, Any]:
        found = api.get_namespaced_custom_object(
            GROUP, VERSION, self.namespace, _plural(manifest), manifest["metadata"]["name"]
        )
        return dict(found.get("status") or {})

    @staticmethod
    def _title(manifest: Manifest) -> str:
        return f"{manifest['kind']} {manifest['metadata']['name']}"


def smoke_run(file: str, namespace: str, deadline_s: float) -> int:
    """Carries out the manifests of a file from inside the cluster; returns the exit status."""
    try:
        config.load_incluster_config()
    except config.ConfigException as error:
        raise SmokeRunFailed(
            f"smoke-run works in a pod with a ServiceAccount, as helm test makes one: {error}"
        ) from error
    try:
        SmokeRun.of(Path(file).read_text(), namespace).carry_out(client.CustomObjectsApi(), deadline_s)
    except client.ApiException as error:
        raise SmokeRunFailed(
            f"the API server answered {error.status} {error.reason}: {str(error.body)[:300]}"
        ) from error
    except SmokeRunFailed as error:
        print(error, file=sys.stderr)
        return 1
    print("the smoke run has succeeded")
    return 0


def _plural(manifest: Manifest) -> str:
    return PLURALS[manifest["kind"]]


def _message(status: Mapping[str, Any]) -> str:
    """Returns why a resource has failed, or the messages of the conditions that do not hold yet."""
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    ends = [conditions.pop(kind, {}) for kind in ("Succeeded", "Failed")]
    failed = [each for each in ends if each.get("status") == "True" and each["type"] == "Failed"]
    shown = failed or [each for each in conditions.values() if each.get("status") == "False"]
    return " ".join(each["message"] for each in shown if each.get("message"))
