"""The name of rank 0 appears in DNS once its pod has an address: until then a rank waits, and not for ever."""

import multiprocessing
import os
import socket
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import torch

from lead_testing.ports import free_port
from lead_testing.toy_jobs import run_together
from lead_trainer.engine.group import ddp
from lead_trainer.engine.group.ddp import Group
from lead_trainer.errors import LostPeer
from lead_trainer.world import World

HOST = "localhost"
SECONDS = 300
TOLD = {"step": 7}


def fail_to_resolve(host: str, times: int) -> list[str]:
    """Makes the resolver not know a host so many times; returns the names that were asked for, as they are asked."""
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def late(name: Any, *rest: Any, **more: Any) -> Any:
        asked.append(name)
        if name == host and asked.count(host) <= times:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(name, *rest, **more)

    socket.getaddrinfo = late
    return asked


def join(rank: int, port: int, times: int) -> None:
    asked = fail_to_resolve(HOST, times)
    group = Group(World(rank, rank, 2, 0, 1, HOST, port), torch.device("cpu"))
    heard = group.from_first(TOLD if rank == 0 else None)
    group.close()
    os._exit(0 if heard == TOLD and asked.count(HOST) > times else 1)


def test_a_group_forms_when_the_address_of_rank_0_comes_late() -> None:
    context, port = multiprocessing.get_context("forkserver"), free_port()
    context.set_forkserver_preload(["lead_trainer.engine.group.ddp"])
    ranks: list[BaseProcess] = [
        context.Process(target=join, args=(rank, port, times)) for rank, times in ((0, 0), (1, 2))
    ]
    assert run_together(ranks, SECONDS) == [0, 0]


def test_an_address_that_never_comes_ends_the_rank_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    host = "drive-pretrain-s0-a1-0.drive-ranks"
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)  # put back afterwards
    monkeypatch.setattr(ddp, "RENDEZVOUS_TIMEOUT_S", 0.5)
    asked = fail_to_resolve(host, 10**9)
    with pytest.raises(LostPeer, match=f"the address of rank 0, {host}, was not known within"):
        Group(World(1, 1, 2, 1, 2, host, 29500), torch.device("cpu"))
    assert len(asked) >= 2
