"""A group that cannot form says where and why, and ends: the next attempt has pods, addresses and ports of its own."""

import socket

import pytest
import torch

from lead_trainer.engine.group.ddp import Group
from lead_trainer.errors import LostPeer
from lead_trainer.world import World


def test_a_rendezvous_port_that_is_taken_ends_rank_0_at_once() -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LostPeer, match=f"rank 0 could not join the group at 127.0.0.1:{port}.*in use"):
            Group(World(0, 0, 2, 0, 1, "127.0.0.1", port), torch.device("cpu"))
