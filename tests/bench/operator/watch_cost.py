"""What the watch of TrainingRuns costs and misses, by kopf and by our informer: `python -m bench.operator.watch_cost`.

A fake API server, a process of its own, holds some runs and changes them; the reader under test is another process and
does nothing but keep its copies. Three measures of each reader, by turns: CPU an event; what its copies lack at the
end where connections break under the events and the server forgets old versions; and after how many seconds a
delete is known that happened while the watch had gone silent.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import kopf
import structlog
from aiohttp import web

from lead_operator import names
from lead_operator.handlers import startup
from lead_operator.handlers.bounded_session import with_bounded_session
from lead_operator.handlers.handlers import register_kinds
from lead_operator.kube import client as client_module
from lead_operator.kube.client import KubeClient
from lead_operator.kube.informer import Informer
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import TRAINING_RUN
from lead_operator.settings import Settings
from lead_testing.ports import free_port

NAMESPACE = "bench"
COLLECTION = TRAINING_RUN.path(NAMESPACE)
RUNS = 200
PER_S = 500.0  # events, so that readers wait for them as in a cluster
KEPT = 400  # events that the server still knows, where it forgets
SILENT_AFTER_S = 5.0  # what a reader allows the server beyond the agreed end of a watch; shipped: 15
WATCH_S = 5.0  # shipped: 60


class Server:
    """Runs, their changes, and the faults that the way to the reader has."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.version = 1000
        self.changes: list[tuple[int, bytes]] = []
        self.changed = asyncio.Event()
        self.kept = 1_000_000
        self.silent = False  # watches that were begun send nothing more
        self.connections: set[web.StreamResponse] = set()
        for number in range(RUNS):
            self.change("ADDED", f"run{number}")

    def change(self, kind: str, name: str) -> None:
        self.version += 1
        body = self.runs.pop(name, None) or a_run(name)
        body["metadata"]["resourceVersion"] = str(self.version)
        body["status"]["progress"]["seq"] = self.version
        if kind != "DELETED":
            self.runs[name] = body
        line = json.dumps({"type": kind, "object": body}, separators=(",", ":")).encode() + b"\n"
        self.changes.append((self.version, line))
        self.changed.set()
        self.changed = asyncio.Event()

    async def collection(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        items = list(self.runs.values())[: int(request.query["limit"])]
        metadata = {"resourceVersion": str(self.version)}
        page = {"apiVersion": TRAINING_RUN.api_version, "items": items, "kind": "TrainingRunList", "metadata": metadata}
        return web.json_response(page, dumps=lambda found: json.dumps(found, separators=(",", ":")))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since, until = int(request.query["resourceVersion"]), time.monotonic() + int(request.query["timeoutSeconds"])
        silent_here = False
        self.connections.add(response)
        try:
            while (left_s := until - time.monotonic()) > 0 or silent_here or self.silent:
                silent_here = silent_here or self.silent
                if silent_here:
                    await asyncio.sleep(3600)
                if since < self.version - self.kept:
                    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
                    await response.write(json.dumps(gone).encode() + b"\n")
                    break
                waiting = self.changed
                first = len(self.changes) - (self.version - since)
                for version, line in self.changes[first:]:
                    await response.write(line)
                    since = version
                with suppress(TimeoutError):
                    await asyncio.wait_for(waiting.wait(), min(left_s, 1.0))
        except ConnectionResetError:
            return response  # `break_connections` has cut it: its client begins another watch
        finally:
            self.connections.discard(response)
        return response

    def break_connections(self) -> None:
        for response in list(self.connections):
            if response._req is not None and response._req.transport is not None:
                response._req.transport.abort()

    async def serve(self, port: int) -> None:
        application = web.Application()
        version = f"/apis/{names.GROUP}/{names.VERSION}"
        group = {"name": names.GROUP, "versions": [{"version": names.VERSION}],
                 "preferredVersion": {"version": names.VERSION}}  # fmt: skip
        kind = {"name": TRAINING_RUN.plural, "kind": TRAINING_RUN.kind, "singularName": "trainingrun",
                "namespaced": True, "verbs": ["get", "list", "watch", "patch"]}  # fmt: skip
        # kopf watches nothing before it has seen that there are namespaces.
        space = {"name": "namespaces", "kind": "Namespace", "singularName": "", "namespaced": False, "verbs": ["list"]}
        old = {"/api": {"versions": ["v1"]}, "/api/v1": {"resources": [space]}}
        answers: dict[str, Any] = {**old, "/apis": {"groups": [group]}, version: {"resources": [kind]}}
        for path, answer in answers.items():
            application.router.add_get(path, lambda _, answer=answer: _json(answer))
        application.router.add_get(COLLECTION, self.collection)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()


async def _json(answer: Any) -> web.Response:
    return web.json_response(answer)


def a_run(name: str) -> dict[str, Any]:
    """Returns a run of the size that one has in the middle of its life, 5.8 kB."""
    condition = {
        "status": "True", "reason": "Training", "observedGeneration": 1, "lastTransitionTime": "2026-11-25T00:00:00Z",
        "message": "epoch 3 of 50 is being trained " * 4,
    }  # fmt: skip
    return {
        "apiVersion": TRAINING_RUN.api_version,
        "kind": TRAINING_RUN.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}-{random.random()}", "generation": 1,
                     "creationTimestamp": "2026-11-25T00:00:00Z", "resourceVersion": "1",
                     "managedFields": [{"manager": "lead-operator", "fields": "f" * 1500}]},
        "spec": {"recipe": "lead", "nodes": 2, "stages": [{"name": "pretrain", "epochs": 50}],
                 "config": {f"key{number}": number for number in range(60)}},
        "status": {"phase": "Running", "conditions": [{**condition, "type": f"C{n}"} for n in range(9)],
                   "progress": {"seq": 1, "step": 100}},
    }  # fmt: skip


# --- the reader, a process of its own --------------------------------------------------------------------------------


class Reader:
    """Keeps copies by one of the two ways, and counts what it was told."""

    def __init__(self) -> None:
        self.events = 0
        self.copies: Any = None

    def _on_change(self, before: Any, after: Any) -> None:
        self.events += 1

    async def informer(self, client: KubeClient) -> None:
        self.copies = Informer(client, TRAINING_RUN, NAMESPACE, watch_s=WATCH_S, on_change=self._on_change)
        await self.copies.run()

    async def kopf(self, client: KubeClient) -> None:
        settings = Settings(trainer_image="none", resync_s=WATCH_S)
        informers = Informers(client, (NAMESPACE,), settings, lambda key: None, lambda key: None)
        self.copies = informers.fed(TRAINING_RUN, NAMESPACE)
        assert self.copies is not None
        self.copies._on_change = self._on_change
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator]
        async def login(**_: Any) -> kopf.AiohttpSession:
            info = kopf.ConnectionInfo(server=client._api.configuration.host)
            return with_bounded_session(info, informers.fed_at)

        register_kinds(registry, informers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.copies.run())
            tasks.create_task(kopf.operator(registry=registry, settings=startup.thin_settings(WATCH_S), standalone=True,
                                            namespaces=(NAMESPACE,)))  # fmt: skip


async def read(way: str) -> None:
    """Answers each line of stdin with one line about the reader: CPU seconds, events, versions of the copies."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    client_module.WATCH_GRACE_S = startup.WATCH_GRACE_S = SILENT_AFTER_S
    reader, client = Reader(), await KubeClient.connect()
    task = asyncio.create_task(getattr(reader, way)(client))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        if task.done():
            await task
        copies = {each["metadata"]["name"]: int(each["metadata"]["resourceVersion"]) for each in reader.copies.all()}
        print(json.dumps({"cpu_s": time.process_time(), "events": reader.events, "copies": copies}), flush=True)
    os._exit(0)


# --- what is measured ------------------------------------------------------------------------------------------------


class Bench:
    """One reader process against one server."""

    def __init__(self, server: Server, folder: Path, way: str, port: int) -> None:
        self.server = server
        kubeconfig = folder / f"kubeconfig-{port}"
        context = {"name": "b", "context": {"cluster": "b", "user": "b", "namespace": NAMESPACE}}
        cluster = {"name": "b", "cluster": {"server": f"http://127.0.0.1:{port}"}}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "b", "contexts": [context],
                  "clusters": [cluster], "users": [{"name": "b", "user": {}}]}  # fmt: skip
        kubeconfig.write_text(json.dumps(config))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.operator.watch_cost", "--read", way], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=(folder / f"{way}.log").open("ab"),
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "KUBERNETES_SERVICE_HOST": ""},
        )  # fmt: skip

    async def ask(self) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(await asyncio.to_thread(self._process.stdout.readline))
        return answer

    def truth(self) -> dict[str, int]:
        return {name: int(body["metadata"]["resourceVersion"]) for name, body in self.server.runs.items()}

    async def agree(self, within_s: float) -> float:
        """Returns after how many seconds the copies say what the server does; raises TimeoutError."""
        began = time.monotonic()
        while (await self.ask())["copies"] != self.truth():
            if time.monotonic() - began > within_s:
                raise TimeoutError(f"the copies differ still after {within_s:.0f} s")
            await asyncio.sleep(0.1)
        return time.monotonic() - began

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


async def measure(way: str, count: int, folder: Path) -> dict[str, float]:
    """Returns the figures of one reader in one round."""
    server, port = Server(), free_port()
    await server.serve(port)
    bench = Bench(server, folder, way, port)
    try:
        await bench.agree(60)
        while not server.connections:
            await asyncio.sleep(0.1)
        before = await bench.ask()
        await change(server, count)
        await bench.agree(60)
        after = await bench.ask()
        found = {"cpu_ms": 1000 * (after["cpu_s"] - before["cpu_s"]) / count,
                 "not_told": count - (after["events"] - before["events"])}  # fmt: skip
        server.kept = KEPT
        await change(server, count, broken=True)
        found["right_after_breaks_s"] = await bench.agree(60)
        server.kept = 1_000_000
        server.silent = True
        await asyncio.sleep(0.5)
        server.change("DELETED", "run7")
        await asyncio.sleep(1.0)
        server.silent = False
        found["right_after_silence_s"] = 1.0 + await bench.agree(120)
        return found
    finally:
        bench.stop()


async def change(server: Server, count: int, *, broken: bool = False) -> None:
    """Changes runs at an even pace; with breaks, runs also go and come, and each watch is cut every now and then."""
    began = time.monotonic()
    for number in range(count):
        name = f"run{number % RUNS}"
        if broken and number % 50 == 25:
            server.change("DELETED", name)
            server.change("ADDED", name)
        else:
            server.change("MODIFIED", name)
        if broken and number % 300 == 299:
            server.break_connections()
        await asyncio.sleep(max(0.0, began + number / PER_S - time.monotonic()))


async def compare(ways: list[str], count: int, rounds: int, folder: Path) -> None:
    """Prints the figures of the readers, the medians of all rounds."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in found if number % 2 == 0 else reversed(found):
            found[way].append(await measure(way, count, folder))
            print(f"round {number + 1}, {way}, load {os.getloadavg()[0]:.1f}: {found[way][-1]}", flush=True)
    for way, figures in found.items():
        medians = {key: round(statistics.median(each[key] for each in figures), 3) for key in figures[0]}
        print(f"{way}: {medians}")


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("outputs/bench-watch"))
    parser.add_argument("--ways", nargs="+", default=["informer", "kopf"], choices=("informer", "kopf"))
    parser.add_argument("--read", choices=("informer", "kopf"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        asyncio.run(read(options.read))
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        asyncio.run(compare(options.ways, options.events, options.rounds, options.out))


if __name__ == "__main__":
    main()
