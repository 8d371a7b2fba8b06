"""What every world of a model test has: pods on nodes, a store, and an operator that may die between two actions."""

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.plan import Plan, RunRecord
from lead_testing.makers import NOW

GRACE = timedelta(seconds=120)  # of every pod
STAYS = timedelta(seconds=60)  # after it, a pod that does not go is waited for no longer


class PodsWorld:
    """API server and kubelets in memory; a subclass says what pods do and what becomes of `_create`."""

    def __init__(self) -> None:
        self.now: datetime = NOW
        self.status: dict[str, Any] = {}
        self.pods: dict[str, ObservedPod] = {}
        self.lost_nodes: dict[str, datetime] = {}
        self.stuck: set[str] = set()  # UIDs of pods that their node cannot stop
        self.meshed = False  # a proxy is added to pods, which goes on when their work has ended
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
        actions: list[Any] = [lambda r=r: self._write_record(r) for r in plan.records]
        actions += [lambda: self._write(plan.status)] if plan.claim_attempt else []
        actions += [lambda d=d: self.delete(d.name, d.uid, d.grace_period_s) for d in plan.deletes]
        actions += [lambda c=c: self._delete_claim(c.name, c.uid) for c in plan.claim_deletes]
        actions += [lambda o=o: self._create(o) for o in plan.creates]
        actions.append(lambda: self._write(plan.status))
        for action in actions[:stop_after]:
            action()
        self.now += timedelta(seconds=1)  # a pass takes its time

    def delete(self, name: str, uid: str, grace_s: int | None) -> None:
        """Deletes a pod by name and UID as the API server does: at once, or when its node has stopped it."""
        pod = self.pods.get(name)
        if pod is None or pod.uid != uid:
            return
        if (pod.terminal and not pod.kept_by_sidecar) or pod.phase == "Pending" or grace_s == 0:
            del self.pods[name]
        else:
            self.pods[name] = replace(pod, deleting=True, grace_ends_at=pod.grace_ends_at or self.now + GRACE)

    def may_write(self, pod: ObservedPod) -> bool:
        """Tells whether a pod must be waited for: it has not ended, and has not outstayed its grace by far."""
        late = pod.grace_ends_at is not None and self.now >= pod.grace_ends_at + STAYS
        return not pod.terminal and not (late and pod.node not in self.lost_nodes)

    def end(self, name: str, code: int) -> None:
        """Ends a pod with an exit code."""
        phase, pod = "Failed" if code else "Succeeded", self.pods[name]
        ended: dict[str, Any] = {
            "phase": phase,
            "exit_code": code,
            "finished_at": self.now,
            "kept_by_sidecar": self.meshed,
        }
        self.pods[name] = replace(pod, ready=False, **ended)

    def finish_deletions(self) -> None:
        """Lets every node that answers stop the pods that are to go."""
        for pod in [p for p in self.pods.values() if p.deleting and p.node not in self.lost_nodes]:
            if pod.terminal or pod.uid not in self.stuck:
                del self.pods[pod.name]

    def lose_or_return(self, node: str) -> None:
        """Takes a node away, or brings it back."""
        if self.lost_nodes.pop(node, None) is None:
            self.lost_nodes[node] = self.now

    def _write(self, status: dict[str, Any]) -> None:
        self.status = copy.deepcopy(status)

    def _write_record(self, record: RunRecord) -> None:
        raise NotImplementedError

    def _create(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def _delete_claim(self, name: str, uid: str) -> None:
        raise NotImplementedError

    def _new_uid(self) -> str:
        self._uids += 1
        return f"uid-{self._uids}"

    def _add_pod(
        self, name: str, rank: int, node: str, *, role: str, stage: str, seed: int, attempt: int, nodes: int = 0
    ) -> None:
        self.pods[name] = ObservedPod(
            name=name, uid=self._new_uid(), role=role, stage=stage, seed=seed, attempt=attempt, rank=rank,
            phase="Pending", node=node, created_at=self.now, nodes=nodes,
        )  # fmt: skip


class PodsMachine(RuleBasedStateMachine):
    """Counts the steps of all its examples together, shrinking included."""

    steps: ClassVar[int] = 0
    world: PodsWorld

    @rule(data=st.data())
    def a_node_cannot_stop_a_pod_any_more(self, data: st.DataObject) -> None:
        """A process hangs in the kernel, a kubelet in its runtime."""
        if running := self.world.names("Running"):
            self.world.stuck.add(self.world.pods[data.draw(st.sampled_from(running))].uid)

    @rule()
    def a_mesh_comes_or_goes(self) -> None:
        self.world.meshed = not self.world.meshed

    @invariant()
    def is_counted(self) -> None:
        type(self).steps += 1


def difference(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Returns the fields in which two statuses differ."""
    return "; ".join(f"{k}: {first.get(k)} != {second.get(k)}" for k in first | second if first.get(k) != second.get(k))
