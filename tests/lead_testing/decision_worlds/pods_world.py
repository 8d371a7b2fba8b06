"""What every world of a model test has: pods on nodes, a store, and an operator that may die between two actions."""

import copy
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.plan import Plan
from lead_testing.makers import NOW


class PodsWorld:
    """API server and kubelets in memory; a subclass says what pods do and what becomes of `_create`."""

    def __init__(self) -> None:
        self.now: datetime = NOW
        self.status: dict[str, Any] = {}
        self.pods: dict[str, ObservedPod] = {}
        self.lost_nodes: dict[str, datetime] = {}
        self.store_up = True
        self._uids = 0

    def observed_pods(self) -> tuple[ObservedPod, ...]:
        """Returns the pods as the operator sees them, with the health of their nodes."""

        def with_node(pod: ObservedPod) -> ObservedPod:
            since = self.lost_nodes.get(pod.node)
            return replace(pod, node_ready=since is None, node_not_ready_since=since)

        return tuple(map(with_node, self.pods.values()))

    def names(self, *phases: str) -> list[str]:
        """Returns the names of the pods in these phases."""
        return sorted(name for name, pod in self.pods.items() if pod.phase in phases)

    def apply(self, plan: Plan, stop_after: int | None = None) -> None:
        """Carries out a plan; with `stop_after`, the operator dies after so many actions."""
        actions: list[Any] = [lambda: self._write(plan.status)] if plan.claim_attempt else []
        actions += [lambda d=d: self.delete(d.name, d.uid, d.grace_period_s) for d in plan.deletes]
        actions += [lambda o=o: self._create(o) for o in plan.creates]
        actions.append(lambda: self._write(plan.status))
        for action in actions[:stop_after]:
            action()

    def delete(self, name: str, uid: str, grace_s: int | None) -> None:
        """Deletes a pod by name and UID as the API server does: at once, or when its node has stopped it."""
        pod = self.pods.get(name)
        if pod is None or pod.uid != uid:
            return
        if pod.terminal or pod.phase == "Pending" or grace_s == 0:
            del self.pods[name]
        else:
            self.pods[name] = replace(pod, deleting=True)

    def end(self, name: str, code: int) -> None:
        """Ends a pod with an exit code."""
        phase = "Failed" if code else "Succeeded"
        self.pods[name] = replace(self.pods[name], phase=phase, ready=False, exit_code=code, finished_at=self.now)

    def finish_deletions(self) -> None:
        """Lets every node that answers stop the pods that are to go."""
        for pod in [p for p in self.pods.values() if p.deleting and p.node not in self.lost_nodes]:
            del self.pods[pod.name]

    def lose_or_return(self, node: str) -> None:
        """Takes a node away, or brings it back."""
        if self.lost_nodes.pop(node, None) is None:
            self.lost_nodes[node] = self.now

    def _write(self, status: dict[str, Any]) -> None:
        self.status = copy.deepcopy(status)

    def _create(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def _add_pod(self, name: str, rank: int, *, role: str, stage: str, seed: int, attempt: int) -> None:
        self._uids += 1
        self.pods[name] = ObservedPod(
            name=name, uid=f"uid-{self._uids}", role=role, stage=stage, seed=seed, attempt=attempt, rank=rank,
            phase="Pending", node=f"node-{rank}", created_at=self.now,
        )  # fmt: skip


class CountedMachine(RuleBasedStateMachine):
    """Counts the steps of all its examples together, shrinking included."""

    steps: ClassVar[int] = 0

    @invariant()
    def is_counted(self) -> None:
        type(self).steps += 1


def difference(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Returns the fields in which two statuses differ."""
    return "; ".join(f"{k}: {first.get(k)} != {second.get(k)}" for k in first | second if first.get(k) != second.get(k))
