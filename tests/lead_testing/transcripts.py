"""What kubectl shows of a run in nine situations, each brought about for real: the page "what you will see".

    PYTHONPATH=tests .venv/bin/python -m lead_testing.transcripts [SITUATION ...]

It writes crds/docs/what-you-will-see.md, or parts of it, anew.

API server, object store and operator are the real ones; pods are played (`pod_driver`). Names that a bench makes up,
ages and times are put in order, so that the same operator gives the same page, and a test compares every line.
"""

import re
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench, open_bench, set_node_ready
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit
from lead_testing.situation_texts import INTRODUCTION, TEXTS
from lead_testing.statuses import newest_entry

PAGE = PROJECT_ROOT / "crds" / "docs" / "what-you-will-see.md"
RUN, CACHE = "night-drive", "towns"
UID = "6a1b8f04-52a7-4c1e-9d3b-0f6a7e21c945"
AGE, MOMENT = "5m", "2026-01-01T12:00:00Z"
TIMED = ("AGE", "CKPT", "LAST SEEN")
QUIET = {  # reasons that nobody needs to read
    "Valid", "Readable", "CacheReady", "NoneCorrupt", "Healthy", "NotAsked", "NotSucceeded", "NotFailed",
}  # fmt: skip
STARTING = ("ContainerCreating", "")
UNKNOWN_KEY = (
    "lead: batchsize: unknown key; did you mean batch_size?"  # as the worker's last words are; a test compares
)

Play = Callable[[Bench], None]


@dataclass(frozen=True)
class Situation:
    """One of the nine: how it comes about, and when it is reached."""

    name: str
    play: Play
    phase: str
    reason: str
    event: str = ""  # the event that is written last


def begin(bench: Bench, *, halts_at: int = 12, **spec: Any) -> None:
    """Starts the operator; applies a cache, then a run of 31 epochs that halts at one of them."""
    bench.driver.script.held.add("train")
    bench.driver.script.held_at = halts_at
    bench.operator.start()
    bench.apply(a_dataset_cache(CACHE, "datasets/towns", config={}))
    if "" in bench.driver.script.held:
        wait_for("its shards", lambda: bench.status("dsc", CACHE).get("shards", {}).get("done") == 6, within_s=60)
    else:
        bench.wait_phase("dsc", CACHE, "Ready", within_s=60)
    bench.apply(a_training_run(RUN, CACHE, **{"stages": [{"name": "train", "epochs": 31}], "preset": None, **spec}))


def train(bench: Bench, **spec: Any) -> None:
    """Goes on until the run trains and its second attempt would wait for its containers."""
    begin(bench, **spec)
    wait_for("progress", lambda: newest_entry(bench.status("trun", RUN))["progress"].get("epoch") == 12, within_s=60)
    bench.wait_phase("trun", RUN, "Running")
    wait_for("its checkpoint", lambda: newest_entry(bench.status("trun", RUN))["checkpoint"].get("epoch") == 12)
    bench.driver.script.waiting.update({("train", 2, rank): STARTING for rank in (0, 1)})


def queued(bench: Bench) -> None:
    """Kueue has not admitted the pods: their scheduling is gated."""
    gated = ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
    bench.driver.script.waiting.update({("train", 1, rank): gated for rank in (0, 1)})
    begin(bench, scheduling={"queueName": "gpus"})


def caching(bench: Bench) -> None:
    """The cache is being built."""
    bench.driver.script.held.add("")
    begin(bench)


def killed_for_memory(bench: Bench) -> None:
    """One rank needed more memory than its limit."""
    train(bench)
    bench.driver.script.exits[("train", 1, 1)] = Exit(137, "", "OOMKilled")


def hung(bench: Bench) -> None:
    """No step comes for longer than hangTimeoutSeconds."""
    train(bench, failurePolicy={"hangTimeoutSeconds": 10})


def node_lost(bench: Bench) -> None:
    """A node does not answer any more."""
    train(bench, failurePolicy={"nodeLossSeconds": 1})
    set_node_ready(bench.plane, bench.namespace, ready=False)


def suspended(bench: Bench) -> None:
    """A person suspends the run."""
    train(bench)
    bench.kubectl("patch", "trun", RUN, "--type=merge", "-p", '{"spec":{"suspend":true}}')


def bad_config(bench: Bench) -> None:
    """The spec holds a key that the recipe does not know."""
    bench.driver.script.commit_before_exit = False
    bench.driver.script.reports[1] = b""  # it ends before its first report
    bench.driver.script.exits[("train", 1, 0)] = Exit(64, UNKNOWN_KEY)
    begin(bench, halts_at=0, config={"batchsize": 64})


def succeeded(bench: Bench) -> None:
    """All epochs are trained."""
    train(bench)
    bench.driver.script.held.clear()


SITUATIONS = (
    Situation("queued", queued, "Starting", "SchedulingGated", "SchedulingGated"),
    Situation("caching", caching, "Caching", "CacheBuilding", "CacheBuilding"),
    Situation("running", train, "Running", "Training", "Started"),
    Situation("killed-for-memory", killed_for_memory, "Recovering", "OOMKilled", "Restarting"),
    Situation("hung", hung, "Recovering", "Hung", "Restarting"),
    Situation("node-lost", node_lost, "Recovering", "NodeLost", "Restarting"),
    Situation("suspended", suspended, "Suspended", "Suspended", "Suspended"),
    Situation("bad-config", bad_config, "Failed", "BadConfig", "Failed"),
    Situation("succeeded", succeeded, "Succeeded", "AllStagesDone", "Succeeded"),
)


def transcribe(situation: Situation, bench: Bench) -> str:
    """Brings a situation about and returns its part of the page."""
    situation.play(bench)
    wait_for(
        f"{situation.phase} {situation.reason}",
        lambda: _reached(bench, situation),
        within_s=90,
        poll_s=0.3,
    )
    shown = [
        ("kubectl get trainingruns", _table(bench.kubectl("get", "trainingruns"))),
        ("kubectl get trainingruns -o wide", _table(bench.kubectl("get", "trainingruns", "-o", "wide"))),
    ]
    if situation.phase == "Caching":
        shown.append(("kubectl get datasetcaches", _table(bench.kubectl("get", "datasetcaches"))))
    shown += [
        (f"kubectl describe trainingrun {RUN}", _description(bench.kubectl("describe", "trainingrun", RUN))),
        ("kubectl get events", _table(_sorted_rows(bench.kubectl("get", "events")))),
    ]
    title, meaning, remedy = TEXTS[situation.name]
    text = "\n\n".join(f"$ {command}\n{answer}" for command, answer in shown)
    prose = "\n\n".join(textwrap.fill(text, 119, break_on_hyphens=False) for text in (meaning, f"**Do:** {remedy}"))
    return f"## {title}\n\n{prose}\n\n```\n{_ordered(text, bench)}\n```\n"


def section(page: str, situation: Situation) -> str:
    """Returns a situation's part of the page."""
    title = TEXTS[situation.name][0]
    return f"## {title}\n" + page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0].rstrip("\n") + "\n"


def main() -> int:
    """Writes the page; what is not asked for stays as it was."""
    asked = set(sys.argv[1:]) or {situation.name for situation in SITUATIONS}
    if unknown := asked - TEXTS.keys():
        print(f"no situation is called {', '.join(sorted(unknown))}; known are {', '.join(TEXTS)}", file=sys.stderr)
        return 2
    parts = [INTRODUCTION]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ControlPlane(folder / "plane") as plane, MinioServer(minio_program(), folder / "minio") as minio:
            crds = [str(PROJECT_ROOT / "crds" / f"{kind}.yaml") for kind in ("trainingrun", "datasetcache")]
            plane.kubectl("apply", "--server-side", "-f", crds[0], "-f", crds[1])
            plane.kubectl(
                "wait", "--for=condition=Established", "crd/trainingruns.lead.dev", "crd/datasetcaches.lead.dev"
            )
            for situation in SITUATIONS:
                if situation.name not in asked:
                    parts.append(section(PAGE.read_text(), situation))
                    continue
                print(situation.name, file=sys.stderr, flush=True)
                with open_bench(plane, minio, folder / situation.name) as bench:
                    parts.append(transcribe(situation, bench))
    PAGE.write_text("\n".join(parts))
    return 0


def _reached(bench: Bench, situation: Situation) -> bool:
    status = bench.status("trun", RUN)
    if (status.get("phase"), status.get("reason")) != (situation.phase, situation.reason):
        return False
    return f" {situation.event} " in bench.kubectl("get", "events")


def _table(text: str) -> str:
    """Returns a table of kubectl with equal ages, and its columns as wide as they need to be."""
    lines = text.rstrip("\n").splitlines()
    heads = list(re.finditer(r"\S+(?: \S+)*", lines[0]))
    ends = [head.start() for head in heads[1:]] + [None]
    rows = [[line[head.start() : end].strip() for head, end in zip(heads, ends, strict=True)] for line in lines]
    for row in rows[1:]:
        row[:] = [AGE if row[i] and head in TIMED else row[i] for i, head in enumerate(rows[0])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    return "\n".join("   ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _sorted_rows(text: str) -> str:
    """Returns the events of the run alone, sorted: their times are whole seconds and order nothing."""
    header, *rows = text.rstrip("\n").splitlines()
    return "\n".join([header, *sorted({row for row in rows if f"/{RUN} " in row}, key=lambda row: row.split()[2])])


def _description(text: str) -> str:
    """Returns what `kubectl describe` says of conditions and the last failure, without what is in order."""
    status = text.split("\nStatus:\n", 1)[1].split("\nEvents:", 1)[0].splitlines()
    told = ["…", "Status:", "  Conditions:"]
    for entry in _entries(_block(status, "  Conditions:")):
        reason = next(line.split(":", 1)[1].strip() for line in entry if line.strip().startswith("Reason:"))
        if reason not in QUIET:
            told += [
                line for line in entry if "Last Transition Time:" not in line and "Observed Generation:" not in line
            ]
    if failure := _block(status, "  Last Failure:"):
        told += ["  Last Failure:", *(line for line in failure if not line.strip().startswith("Time:"))]
    return "\n".join([*told, "…"])


def _block(lines: list[str], head: str) -> list[str]:
    if head not in lines:
        return []
    below = lines[lines.index(head) + 1 :]
    end = next((i for i, line in enumerate(below) if not line.startswith("    ")), len(below))
    return below[:end]


def _entries(lines: list[str]) -> list[list[str]]:
    """Returns the entries of a list, each of which kubectl begins with its first key in order of the alphabet."""
    starts = [i for i, line in enumerate(lines) if line.strip().startswith("Last Transition Time:")]
    return [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def _ordered(text: str, bench: Bench) -> str:
    """Returns the text with names as a team would give them."""
    name, uid = bench.namespace, bench.get("trun", RUN)["metadata"]["uid"]
    text = text.replace(uid, UID).replace(f"s3://{name}/", "s3://lead/").replace("-nonce/", "-7c1e90ab42d3/")
    text = re.sub(rf"{name}/", "team-a/", text)
    text = re.sub(rf"(pod {RUN}-\S+-)\d( waits: )", r"\g<1>0\2", text)  # which pod is seen to wait first is chance
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", MOMENT, text)
    return text.replace(name, "node-1")


if __name__ == "__main__":
    raise SystemExit(main())
