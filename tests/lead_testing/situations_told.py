"""The words of the page "what you will see": of each situation its title, what happens, and what to do."""

INTRODUCTION = """# What you will see

Nine situations of a run, as kubectl shows them, and what to do in each. The transcripts are real:
`PYTHONPATH=tests .venv/bin/python -m lead_testing.transcripts` brings every situation about and writes this page, and a
test compares each line with what the operator says today. Ages and times are made equal, `…` stands for what
`kubectl describe` says besides, conditions that are in order (Accepted, StorageAvailable, DatasetReady and the like)
are left out, and events are sorted by reason.

The three looks that suffice: `kubectl get trainingruns` for how far it is, `-o wide` for where and the REASON, and
`kubectl describe trainingrun NAME` for the sentence with the remedy. What is reached, what went wrong and what asks
something of you is an event too, when its reason changes: of each reason one a minute at most, and what stays true is
counted.

| PHASE | What it asks of you |
|---|---|
| Pending, Caching, Starting | nothing, unless it lasts: the first condition that is False says what is missing |
| Running | nothing; an Advisory, where there is one, says what could be better |
| Checkpointing, Suspended | nothing: you asked for it |
| Recovering | nothing the first time; Last Failure says what to correct if it comes again |
| Succeeded | take the checkpoint at its URI |
| Failed | read the condition Failed: it is final, so correct the cause and create a run of another name |
"""

TOLD = {
    "queued": (
        "Queued",
        "The run has made its pods, and Kueue has not admitted them yet: their scheduling is gated, no node is taken. "
        "Without a queue, the REASON of a run that waits for room is Unschedulable, with the scheduler's own words.",
        "nothing, or look at the queue: `kubectl get localqueue gpus` and `kubectl get workloads`. To give up after a "
        "while by itself, set `pendingDeadlineSeconds`.",
    ),
    "caching": (
        "Caching",
        "The DatasetCache that the run trains on is being built. The run has no pods and takes no GPU meanwhile; it "
        "begins by itself.",
        "nothing. `kubectl get dsc` tells routes, shards and time left; `kubectl describe dsc towns` tells what a "
        "build that does not advance waits for.",
    ),
    "running": (
        "Running",
        "All ranks train. CKPT is the age of the newest committed checkpoint: what a failure now would cost at most. "
        "CACHE is the share of reads that the session cache answered.",
        "nothing. `kubectl get trainingruns -w` follows.",
    ),
    "killed-for-memory": (
        "Restarting after an out-of-memory kill",
        "The kernel killed a rank that went above `resources.limits.memory`. The whole group was replaced; the "
        "next attempt begins from the newest checkpoint as soon as its containers are there. It counted against "
        "`maxRestarts`.",
        "nothing if it happens once. If it comes again, create a run with more memory and name the checkpoint in "
        "`checkpoint.from`, or one with a smaller `batch_size`.",
    ),
    "hung": (
        "Hung",
        "No step came for `hangTimeoutSeconds` (10 in this run, 1800 unless you say otherwise), so the group was "
        "replaced and begins from the newest checkpoint. It counted against `maxRestarts`. Before the first step of an "
        "attempt, while it loads and compiles, the limit is never below 1800.",
        "if steps are only slow, raise `failurePolicy.hangTimeoutSeconds`, which may be changed while the run trains; "
        "if not, read the last lines of the ranks where your cluster collects logs: the pods of that attempt are gone.",
    ),
    "node-lost": (
        "Node lost",
        "A node has not been ready for `nodeLossSeconds`. Its pods cannot write any more (a newer attempt fences "
        "them), and the group begins elsewhere from the newest checkpoint. It counted against `maxInfraRestarts`, "
        "not against `maxRestarts`.",
        "nothing for the run; a session cache of its own on that node's disk is made anew. `kubectl describe node` "
        "tells about the node.",
    ),
    "suspended": (
        "Suspended",
        "You set `spec.suspend`. The pods have committed a checkpoint and are gone; the GPUs are free.",
        '`kubectl patch trainingrun night-drive --type merge -p \'{"spec":{"suspend":false}}\'` '
        "goes on from the checkpoint.",
    ),
    "bad-config": (
        "Failed for a bad config",
        "A key in `spec.config` is not one of the recipe's. The pods said so before they trained, and nothing was "
        "tried again: it would fail again.",
        "correct the key and create the run anew; `spec.config` is fixed after creation, so delete this run or take "
        "another name.",
    ),
    "succeeded": (
        "Succeeded",
        "Every stage is trained, and its final checkpoint is committed. The run has no pods that run any more.",
        "take the checkpoint: its URI stands in the condition Checkpointed. It stays when the run is deleted.",
    ),
}  # fmt: skip
