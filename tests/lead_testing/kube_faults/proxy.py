"""A proxy between the operator and the API server that numbers every call and event and carries a plan out.

It runs in a thread with a loop of its own. Towards the operator it speaks plain HTTP, so that both its clients (kopf's
and its own) pass; towards the API server TLS with an administrator's certificate.

    with FaultProxy(plane.kubeconfig, folder, plan) as proxy:
        OperatorProcess(proxy.kubeconfig, …)
"""

import asyncio
import base64
import contextlib
import json
import ssl
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from lead_testing.kube_faults.answers import begin_stream, error_body, hang_up, pass_on, refuse
from lead_testing.kube_faults.call import Call, read_call
from lead_testing.kube_faults.healing import Healing
from lead_testing.kube_faults.journal import Journal
from lead_testing.kube_faults.plan import CALL_FAULTS, EVENT_FAULTS, Fault, Plan

_DROPPED_HEADERS = ("host", "content-length", "transfer-encoding", "connection", "authorization", "accept-encoding")


class FaultProxy:
    """A context manager; `kill` is what a fault calls to end the operator."""

    def __init__(self, kubeconfig: Path, folder: Path, plan: Plan = Plan("")) -> None:  # noqa: B008 - frozen
        self.journal = Journal()
        self.healing = Healing()
        self.kill: Callable[[], None] = lambda: None
        self.kubeconfig = folder / "kubeconfig.through-proxy"
        folder.mkdir(parents=True, exist_ok=True)
        document = yaml.safe_load(kubeconfig.read_text())
        self._upstream = document["clusters"][0]["cluster"]["server"]
        self._trust = _trust(document)
        self._document = document
        self._plan = plan
        self._counts: Counter[int] = Counter()  # fault's position in the plan -> fitting calls or events so far
        self._outage_until = 0.0
        self._silent_until = 0.0
        self._late: set[asyncio.Task[Any]] = set()  # calls that are carried out though nobody waits for them any more
        self._stale_until = 0.0
        self._collections: set[str] = set()  # lists that were asked for
        self._snapshots: list[dict[str, bytes]] = []  # after each write, if the plan needs them
        self._shown: dict[str, bytes] = {}
        self._numbered: dict[tuple[str, str, str], Fault | None] = {}  # event -> what becomes of it
        self._streams: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        document = {**self._document, "users": [{**self._document["users"][0], "user": {"token": "none"}}]}
        cluster = {"server": f"http://127.0.0.1:{port}"}
        document["clusters"] = [{**self._document["clusters"][0], "cluster": cluster}]
        self.kubeconfig.write_text(json.dumps(document))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def outage(self, seconds: float) -> None:
        """Answers everything with 503 for so long, from now on, and ends the watches."""
        self._loop.call_soon_threadsafe(self._begin_outage, seconds)

    # --- the loop's side ---------------------------------------------------------------------------------------------

    async def _start(self) -> int:
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, skip_auto_headers=("Content-Type", "Accept-Encoding")
        )
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port: int = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        return port

    async def _end(self) -> None:
        for task in (*self._streams, *self._late):
            task.cancel()
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        call = read_call(request.method, request.path, request.query)
        if time.monotonic() < self._outage_until:
            self.journal.calls.append((call.site, call.name, 503, "outage"))
            return refuse(503, "ServiceUnavailable", "the API server is out")
        if time.monotonic() < self._silent_until:
            await self._silence()
            return hang_up(request)
        try:
            if call.verb == "watch":
                return await self._watch(request, call)
            return await self._answer(request, call)
        except (aiohttp.ClientError, OSError):
            return hang_up(request)  # the API server itself is away

    async def _answer(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        body = await request.read()
        fault = self._fault_for(call)
        kind = fault.kind if fault else ""
        if call.verb == "list":
            self._collections.add(_collection(request))
            if time.monotonic() < self._stale_until and _collection(request) in self._shown:
                return pass_on(200, self._shown[_collection(request)])
        if fault is not None and (refusal := await self._refusal(request, fault)) is not None:
            self.journal.calls.append((call.site, call.name, 0, kind))
            return refusal
        late_s = fault.seconds if fault is not None and fault.kind == "slow" else 0.0
        carried_out = asyncio.create_task(self._carry_out(request, call, body, kind, late_s))
        self._late.add(carried_out)
        carried_out.add_done_callback(self._late.discard)
        status, content_type, payload = await (asyncio.shield(carried_out) if late_s else carried_out)
        if fault is not None and fault.kind in ("kill", "stale", "lost-answer"):
            self._after(fault)
            return hang_up(request)
        return pass_on(status, payload, content_type)

    async def _carry_out(
        self, request: web.BaseRequest, call: Call, body: bytes, kind: str, late_s: float
    ) -> tuple[int, str, bytes]:
        """Passes a call on; one that comes late is carried out though the operator has given it up meanwhile."""
        await asyncio.sleep(late_s)
        asked = time.monotonic()
        status, content_type, payload = await self._forward(request, body)
        name = call.name or _name_in(payload) if call.verb == "create" else call.name
        self.journal.calls.append((call.site, name, status, kind))
        if call.verb == "list" and status == 200:
            self.healing.listed(call.resource, asked)
        if call.writes and any(f.kind == "stale" for f in self._plan.faults):
            self._snapshots.append(await self._snapshot())
        return status, content_type, payload

    def _after(self, fault: Fault) -> None:
        if fault.kind == "stale":
            self._shown = self._snapshots[max(0, len(self._snapshots) - 1 - fault.back)]
            self._stale_until = time.monotonic() + fault.seconds
            self._end_streams()
        if fault.kind in ("kill", "stale"):
            self.kill()

    async def _refusal(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse | None:
        """Returns the answer of a fault that keeps the call from the API server; None where it is to be carried out."""
        if fault.kind == "conflict":
            reason = "AlreadyExists" if request.method == "POST" else "Conflict"
            return refuse(409, reason, "the object has been modified; please apply your changes to the latest version")
        if fault.kind == "too-many":
            return refuse(429, "TooManyRequests", "slow down", {"Retry-After": "1"})
        if fault.kind == "error":
            return refuse(500, "InternalError", "etcdserver: request timed out")
        if fault.kind == "outage":
            self._begin_outage(fault.seconds)
            return refuse(503, "ServiceUnavailable", "the API server is out")
        if fault.kind == "refused-connection":
            return hang_up(request)
        if fault.kind == "silence":
            self._silent_until = time.monotonic() + fault.seconds
            await self._silence()
            return hang_up(request)
        if fault.kind == "timeout":
            await asyncio.sleep(fault.seconds)
            return hang_up(request)
        return None

    async def _silence(self) -> None:
        await asyncio.sleep(max(0.0, self._silent_until - time.monotonic()))

    async def _forward(self, request: web.BaseRequest, body: bytes) -> tuple[int, str, bytes]:
        url = self._upstream + request.path_qs
        async with self._session.request(request.method, url, data=body or None, headers=_headers(request)) as answer:
            return answer.status, answer.headers.get("Content-Type", "application/json"), await answer.read()

    async def _snapshot(self) -> dict[str, bytes]:
        found = {}
        for path in self._collections:
            async with self._session.get(self._upstream + path) as answer:
                found[path] = await answer.read()
        return found

    # --- watches -----------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        stream = asyncio.create_task(self._stream(request, call))
        self._streams.add(stream)
        try:
            return await stream
        except asyncio.CancelledError:
            if not stream.cancelled():  # the operator is gone, not the stream
                stream.cancel()
                raise
            return hang_up(request)
        finally:
            self._streams.discard(stream)

    async def _stream(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        if (left_s := self._stale_until - time.monotonic()) > 0:
            response = await begin_stream(request)
            await asyncio.sleep(left_s)  # a server that lags behind tells nothing new
            return response
        async with self._session.get(self._upstream + request.path_qs, headers=_headers(request)) as answer:
            if answer.status != 200:
                return pass_on(answer.status, await answer.read())
            response = await begin_stream(request)
            await self._pump(call, answer.content, response)
            return response

    async def _pump(self, call: Call, source: aiohttp.StreamReader, response: web.StreamResponse) -> None:
        rest, late = b"", b""
        async for chunk in source.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                await self._silence()
                event = json.loads(line)
                fault = self._event_fault(call, event)
                kind = fault.kind if fault else ""
                if kind == "hide":
                    continue
                if kind in ("gone", "watch-error", "stall"):
                    self.healing.lost(kind, call.resource, event)
                if kind in ("gone", "watch-error"):
                    code, reason = (410, "Expired") if kind == "gone" else (500, "InternalError")
                    ended = {"type": "ERROR", "object": error_body(code, reason, "the watch has been ended")}
                    await response.write(json.dumps(ended).encode() + b"\n")
                    return
                if kind == "stall":
                    await asyncio.sleep(3600)
                if kind == "reorder" and not late:
                    late = line
                    continue
                told = [line, *([line] if kind == "duplicate" else []), *([late] if late else [])]
                await response.write(b"".join(text + b"\n" for text in told))
                late = b""
                for text in told:
                    self.healing.told(call.resource, json.loads(text))

    def _event_fault(self, call: Call, event: dict[str, Any]) -> Fault | None:
        kind, metadata = event["type"], event["object"].get("metadata", {})
        if kind in ("BOOKMARK", "ERROR"):
            return None
        key = (kind, metadata.get("uid", ""), metadata.get("resourceVersion", ""))
        if key in self._numbered:  # another watch tells it too: what is hidden is hidden from all
            known = self._numbered[key]
            return known if known is not None and known.kind == "hide" else None
        self.journal.events.append((call.resource, kind, metadata.get("name", "")))
        fits = [i for i, f in enumerate(self._plan.faults) if f.kind in EVENT_FAULTS and f.site in ("", call.resource)]
        self._numbered[key] = self._count(fits)
        return self._numbered[key]

    # --- counting ----------------------------------------------------------------------------------------------------

    def _fault_for(self, call: Call) -> Fault | None:
        def fits(fault: Fault) -> bool:
            return fault.kind in CALL_FAULTS and (call.writes if not fault.site else fault.site == call.site)

        return self._count([i for i, fault in enumerate(self._plan.faults) if fits(fault)])

    def _count(self, positions: list[int]) -> Fault | None:
        found: Fault | None = None
        for position in positions:
            self._counts[position] += 1
            fault = self._plan.faults[position]
            if found is None and fault.hits(self._counts[position]):
                found = fault
                self.journal.fired.append(fault)
        return found

    def _begin_outage(self, seconds: float) -> None:
        self._outage_until = time.monotonic() + seconds
        self.healing.away(self._outage_until)
        self._end_streams()

    def _end_streams(self) -> None:
        for stream in list(self._streams):
            stream.cancel()


def _headers(request: web.BaseRequest) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED_HEADERS}


def _collection(request: web.BaseRequest) -> str:
    selector = request.query.get("labelSelector")
    return f"{request.path}?labelSelector={selector}" if selector else request.path


def _name_in(payload: bytes) -> str:
    with contextlib.suppress(ValueError):
        return str(json.loads(payload).get("metadata", {}).get("name", ""))
    return ""


def _trust(document: dict[str, Any]) -> ssl.SSLContext:
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    trust = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pair:  # the ssl module takes a client's certificate from a file only
        pair.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
        pair.write(base64.b64decode(user["client-key-data"]))
        pair.flush()
        trust.load_cert_chain(pair.name)
    return trust
