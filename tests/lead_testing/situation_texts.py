"""Texts of the page "what you will see": for each situation its title, what happens, and what to do."""

INTRODUCTION = """# What you will see

Nine situations of a run, as kubectl shows them, and what to do in each. The transcripts are real:
`PYTHONPATH=tests .venv/bin/python -m lead_testing.transcripts` produces every situation and writes this page, and a
test compares each line with the operator's current output. Ages and times are normalised, `…` stands for omitted
output of `kubectl describe`, conditions that need no attention (Accepted, StorageAvailable, DatasetReady and the like)
are left out, and events are sorted by reason.

Three commands are enough: `kubectl get trainingruns` for progress, `-o wide` for nodes and REASON, and
`kubectl describe trainingrun NAME` for the message with the remedy. Progress, failures and required actions are also
emitted as events (at most one per reason per minute; repeats increase the count).

| PHASE | What you need to do |
|---|---|
| Pending, Caching, Starting | nothing, unless it lasts: the first condition that is False names what is missing |
| Running | nothing; if there is an Advisory, it suggests an improvement |
| Checkpointing, Suspended | nothing: you requested it |
| Recovering | nothing the first time; if it happens again, Last Failure names what to correct |
| Succeeded | use the checkpoint at its URI |
| Failed | read the condition Failed: it is final, so correct the cause and create a run with another name |
"""

TEXTS = {
    "queued": (
        "Queued",
        "The operator has created the run's pods, and Kueue has not admitted them yet: their scheduling is gated, and "
        "no node is used. Without a queue, the REASON of a run that waits for nodes is Unschedulable, with the "
        "scheduler's message.",
        "nothing, or inspect the queue: `kubectl get localqueue gpus` and `kubectl get workloads`. To give up "
        "automatically after some time, set `pendingDeadlineSeconds`.",
    ),
    "caching": (
        "Caching",
        "The DatasetCache that the run trains on is being built. Meanwhile the run has no pods and uses no GPU; it "
        "starts automatically.",
        "nothing. `kubectl get dsc` shows routes, shards and time left; `kubectl describe dsc towns` shows what a "
        "stalled build waits for.",
    ),
    "running": (
        "Running",
        "All ranks train. CKPT is the age of the newest committed checkpoint, which is the most work that a failure "
        "could cost now. CACHE is the share of reads that the session cache served.",
        "nothing. `kubectl get trainingruns -w` follows the run.",
    ),
    "killed-for-memory": (
        "Restarting after an out-of-memory kill",
        "The kernel killed a rank that exceeded `resources.limits.memory`. The whole group was replaced; the next "
        "attempt starts from the newest checkpoint as soon as its containers run. It counted against `maxRestarts`.",
        "nothing if it happens once. If it happens again, create a run with more memory and name the checkpoint in "
        "`checkpoint.from`, or one with a smaller `batch_size`.",
    ),
    "hung": (
        "Hung",
        "No step was reported for `hangTimeoutSeconds` (10 in this run, 1800 by default), so the group was replaced "
        "and starts from the newest checkpoint. It counted against `maxRestarts`. Before the first step of an "
        "attempt, while it loads and compiles, the limit is at least 1800.",
        "if steps are only slow, raise `failurePolicy.hangTimeoutSeconds`, which can be changed while the run trains. "
        "Otherwise read the last lines of the ranks where your cluster collects logs: the pods of that attempt are "
        "gone.",
    ),
    "node-lost": (
        "Node lost",
        "A node was not ready for `nodeLossSeconds`. Its pods cannot write any more (a newer attempt fences them), and "
        "the group restarts on other nodes from the newest checkpoint. It counted against `maxInfraRestarts`, not "
        "against `maxRestarts`.",
        "nothing for the run; its session cache on that node's disk is recreated. `kubectl describe node` shows the "
        "node's state.",
    ),
    "suspended": (
        "Suspended",
        "You set `spec.suspend`. The pods have committed a checkpoint and are gone; the GPUs are free.",
        '`kubectl patch trainingrun night-drive --type merge -p \'{"spec":{"suspend":false}}\'` '
        "continues from the checkpoint.",
    ),
    "bad-config": (
        "Failed for a bad config",
        "`spec.config` contains a key that the recipe does not have. The pods reported it before they trained, and "
        "nothing was retried, because it would fail again.",
        "correct the key and recreate the run; `spec.config` is immutable, so delete this run or use another name.",
    ),
    "succeeded": (
        "Succeeded",
        "Every stage is trained, and its final checkpoint is committed. None of the run's pods is running any more.",
        "use the checkpoint: its URI is in the condition Checkpointed. It is kept when the run is deleted.",
    ),
}  # fmt: skip
