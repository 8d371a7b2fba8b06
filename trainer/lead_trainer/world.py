"""Which process of which group this is, read from the environment.

The launcher (`lead pod`) and torchrun both set RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, so a worker
does not know which of the two started it. Standard library only: the launcher must not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lead_protocol import environment
from lead_trainer.errors import BadConfig


@dataclass(frozen=True)
class World:
    """The place of one process among all processes of an attempt."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    node_rank: int = 0
    local_world_size: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = environment.DEFAULT_MASTER_PORT

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which alone writes checkpoints and progress."""
        return self.rank == 0


def world_of(environ: Mapping[str, str]) -> World:
    """Returns this process's place; raises BadConfig naming the variable that is no number or out of range."""
    nodes = _count(environ, environment.NNODES, 1)
    node_rank = _count(environ, environment.NODE_RANK, 0)
    local_world_size = _count(environ, "LOCAL_WORLD_SIZE", 1)
    world = World(
        rank=_count(environ, "RANK", node_rank),
        local_rank=_count(environ, "LOCAL_RANK", 0),
        world_size=_count(environ, "WORLD_SIZE", nodes),
        node_rank=_count(environ, "GROUP_RANK", node_rank),
        local_world_size=local_world_size,
        master_addr=environ.get("MASTER_ADDR", environ.get(environment.MASTER_ADDR, "127.0.0.1")),
        master_port=_count(
            environ, "MASTER_PORT", _count(environ, environment.MASTER_PORT, environment.DEFAULT_MASTER_PORT)
        ),
    )
    if not 0 <= world.rank < world.world_size:
        raise BadConfig(f"RANK is {world.rank}, but WORLD_SIZE is {world.world_size}; ranks count from 0")
    return world


def child_environments(environ: Mapping[str, str], processes: int) -> list[dict[str, str]]:
    """Returns the environment of each of a pod's worker processes, by local rank."""
    nodes = _count(environ, environment.NNODES, 1)
    node_rank = _count(environ, environment.NODE_RANK, 0)
    if node_rank >= nodes:
        raise BadConfig(f"{environment.NODE_RANK} is {node_rank}, but {environment.NNODES} is {nodes}")
    port = _count(environ, environment.MASTER_PORT, environment.DEFAULT_MASTER_PORT)
    group = {
        "WORLD_SIZE": str(nodes * processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_RANK": str(node_rank),
        "MASTER_ADDR": environ.get(environment.MASTER_ADDR, "127.0.0.1"),
        "MASTER_PORT": str(port),
    }
    return [
        {**environ, **group, "RANK": str(node_rank * processes + local), "LOCAL_RANK": str(local)}
        for local in range(processes)
    ]


def visible_gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> int:
    """Counts the GPUs this container may use, without importing torch."""
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        listed = environ.get(name)
        if listed in ("none", "void", "-1"):
            return 0
        if listed and listed != "all":
            return len([entry for entry in listed.split(",") if entry.strip()])
    return len([node for node in devices.glob("nvidia*") if node.name.removeprefix("nvidia").isdigit()])


def _count(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise BadConfig(f"environment variable {name} is {text!r}, expected a number from 0")
    return int(text)
