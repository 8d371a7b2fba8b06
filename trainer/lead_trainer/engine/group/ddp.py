"""The process group: who else trains, and what all ranks must agree on.

Gradients travel by NCCL on GPUs and by gloo on CPUs. Decisions (stop, which checkpoint, did the commit succeed) always
travel by gloo with a long deadline, because rank 0 may wait for the store while the others wait for rank 0. Values are
exchanged as JSON, never as pickles. With one process every method answers at once.
"""

import copy
import inspect
import json
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save

from lead_trainer.blocks.fp32_norms import synchronise_norms
from lead_trainer.errors import BadConfig, LostPeer
from lead_trainer.world import World

RENDEZVOUS_TIMEOUT_S = 900.0  # the slowest pod may still pull its image
GRADIENT_TIMEOUT_S = 600.0  # the first steps of NCCL and a slow loader fit; a dead peer does not
DECISION_TIMEOUT_S = 2700.0  # longer than a commit waits for the store
_PEER_SIGNS = ("gloo", "connection closed", "connection reset", "nccl", "timed out waiting", "broken pipe", "store->")


def _buffers_key() -> str:
    """Names the argument that shares buffers before a forward pass; torch renamed it, and warns of the old name."""
    known = inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters
    return "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"


class Group:
    """All ranks of one attempt, as seen by one of them."""

    def __init__(self, world: World, device: torch.device) -> None:
        """Joins the group; blocks until every rank is there; raises LostPeer when one does not come in time."""
        self.world, self.device = world, device
        self._decisions: dist.ProcessGroup | None = None
        if world.world_size == 1:
            return
        _wait_for_address(world.master_addr, RENDEZVOUS_TIMEOUT_S)
        nccl = device.type == "cuda"
        try:
            rendezvous = dist.TCPStore(  # type: ignore[attr-defined]
                world.master_addr,
                world.master_port,
                world.world_size,
                is_master=world.is_first,
                timeout=timedelta(seconds=RENDEZVOUS_TIMEOUT_S),
            )
            dist.init_process_group(
                "nccl" if nccl else "gloo",
                store=rendezvous,
                rank=world.rank,
                world_size=world.world_size,
                timeout=timedelta(seconds=GRADIENT_TIMEOUT_S),
                device_id=device if nccl else None,
            )
            decisions: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=DECISION_TIMEOUT_S))
            self._decisions = decisions
        except (dist.DistError, RuntimeError) as error:
            address = f"{world.master_addr}:{world.master_port}"
            raise LostPeer(f"rank {world.rank} could not join the group at {address}: {error}") from error

    def beside(self) -> "Group":
        """Returns the same ranks with a connection of their own, for the decisions of a thread beside the steps."""
        twin = copy.copy(self)
        if self._decisions is not None:
            decisions: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=DECISION_TIMEOUT_S))
            twin._decisions = decisions
        return twin

    def close(self) -> None:
        """Leaves the group after the last collective; a process that ends without it may abort."""
        if self._decisions is not None:
            self.wait()
            dist.destroy_process_group()
            self._decisions = None

    def wrap(self, model: torch.nn.Module, *, sync_batchnorm: bool, repeatable: bool) -> torch.nn.Module:
        """Returns `model` with gradients averaged over ranks; raises BadConfig for shared batch norms off GPUs.

        `repeatable` keeps the order in which gradients are summed: DDP re-orders its buckets once after the first
        backward pass of a process, so a resumed run of three or more ranks would add in another order than an
        uninterrupted one; searching for unused parameters switches the re-ordering off. Two ranks need no such care.
        """
        if self._decisions is None:
            return model
        if sync_batchnorm:
            if self.device.type != "cuda":
                raise BadConfig("sync_batchnorm: found true, but batch norms share their statistics on GPUs only; "
                                "set it to false on a CPU")  # fmt: skip
            model = synchronise_norms(model)
        buffers: dict[str, Any] = {_buffers_key(): not sync_batchnorm}
        return torch.nn.parallel.DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            find_unused_parameters=repeatable and self.world.world_size > 2,
            **buffers,
        )

    def any(self, flag: bool) -> bool:
        """Returns whether the value is true on any rank; every rank gets the same result."""
        if self._decisions is None:
            return flag
        vote = torch.tensor([int(flag)], dtype=torch.int32)
        dist.all_reduce(vote, op=dist.ReduceOp.MAX, group=self._decisions)
        return bool(vote.item())

    def sums(self, values: Sequence[float]) -> list[float]:
        """Returns the sum over the ranks of each of a few numbers, exact for whole ones; the same on every rank."""
        if self._decisions is None:
            return list(values)
        totals = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(totals, group=self._decisions)
        return [float(total) for total in totals.tolist()]

    def wait(self) -> None:
        """Returns when every rank has come to this point."""
        if self._decisions is not None:
            dist.barrier(group=self._decisions)

    def from_first(self, value: Any) -> Any:
        """Returns rank 0's JSON value on every rank; the others' argument is ignored."""
        if self._decisions is None:
            return value
        payload = json.dumps(value).encode() if self.world.is_first else b""
        size = torch.tensor([len(payload)], dtype=torch.int64)
        dist.broadcast(size, src=0, group=self._decisions)
        data = torch.zeros(int(size.item()), dtype=torch.uint8)
        if self.world.is_first:
            data = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        dist.broadcast(data, src=0, group=self._decisions)
        return json.loads(data.numpy().tobytes())

    def gather(self, value: Any) -> list[Any]:
        """Returns every rank's JSON value, by rank; every rank gets the same list."""
        if self._decisions is None:
            return [value]
        return [json.loads(data) for data in self._gathered(json.dumps(value).encode())]

    def gather_tensors(self, tensors: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        """Returns every rank's tensors by name, by rank, in host memory; ranks may have others and of other shapes."""
        held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        if self._decisions is None:
            return [held]
        return [load(data) for data in self._gathered(save(held))]

    def _gathered(self, data: bytes) -> list[bytes]:
        payload = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world.world_size)]
        dist.all_gather(sizes, torch.tensor([len(payload)], dtype=torch.int64), group=self._decisions)
        longest = max(int(size.item()) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(payload)] = payload
        received = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
        dist.all_gather(received, padded, group=self._decisions)
        return [found[: int(size.item())].numpy().tobytes() for found, size in zip(received, sizes, strict=True)]

    def average_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Averages gradients over the ranks, for models that DDP does not wrap; a missing one is 0."""
        if self._decisions is None:
            return
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        for parameter in learning:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in learning if parameter.grad is not None]
        whole = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(whole)
        whole /= self.world.world_size
        at = 0
        for gradient in gradients:
            gradient.copy_(whole[at : at + gradient.numel()].view_as(gradient))
            at += gradient.numel()

    def share_buffers(self, model: torch.nn.Module) -> None:
        """Gives every rank the buffers of rank 0 (batch-norm statistics), as the next forward pass would."""
        if self._decisions is not None:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)


def lost_peer_behind(error: BaseException, world: World) -> LostPeer | None:
    """Returns the LostPeer that a failed collective stands for, or None when `error` is something else."""
    if world.world_size == 1 or not isinstance(error, RuntimeError):
        return None
    text = str(error).lower()
    if isinstance(error, dist.DistError) or any(sign in text for sign in _PEER_SIGNS):
        cause = str(error).splitlines()[0][:200]
        return LostPeer(f"rank {world.rank} lost another rank of {world.world_size}: {cause}")
    return None


def _wait_for_address(host: str, timeout_s: float) -> None:
    # A headless service's name appears only once the pod behind it has an address; torch does not retry that.
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.getaddrinfo(host, None)
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LostPeer(f"the address of rank 0, {host}, was not known within {timeout_s:.0f} s") from error
            time.sleep(1.0)
