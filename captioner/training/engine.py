"""The processes that train together, on torch.distributed: one, or as many as a launcher starts."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from captioner.errors import UserError

Value = TypeVar("Value")

_FAILURES = "captioner/failures"
"""Key in the processes' store: the number of processes that left with a `UserError`."""


class Engine:
    """The processes of a run, seen from one of them; each has its own device.

    Without a launcher, this process alone, on the given device. Under `torchrun`, `srun` or another
    launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, one of several, on one machine
    or many: they connect when an engine is made, and disconnect when it is left as a context
    manager. On GPUs each process takes the GPU of its local rank, and products in float32 use TF32.
    All processes must call the collective methods, in the same order.

    rank: number of this process, from 0. size: number of processes. local_size: those on this
    machine. device: the device of this process.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        """Connect to the other processes.

        Raises `UserError` for a device that several processes cannot share, where the launcher
        does not say how they connect, and, in one process, for more processes on a machine than
        GPUs.
        """
        self.device = torch.device(device)
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high")
        self.rank, self.local_size = 0, 1
        self.size = int(_first_set("WORLD_SIZE", "SLURM_STEP_NUM_TASKS") or 1)
        self._raised: UserError | None = None  # By this process alone, in `share_failure`.
        if self.size == 1:
            return
        _check_device(self.device)
        self.rank = _rank_of_launcher(self.size)
        # The store works while the processes wait in a collective call.
        self._store, *_ = next(distributed.rendezvous("env://", self.rank, self.size))  # type: ignore[attr-defined]
        distributed.init_process_group(
            # Objects and CPU tensors go through gloo and do not wait for the GPUs.
            "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo",
            store=self._store,
            rank=self.rank,
            world_size=self.size,
        )
        local_rank, self.local_size = _place(self.gather(socket.gethostname()), self.rank)
        if self.device.type == "cuda":
            try:
                with self.fail_together():
                    _check_gpus(self.local_size)
            except BaseException:
                distributed.destroy_process_group()
                raise
            self.device = torch.device("cuda", local_rank)
            torch.cuda.set_device(self.device)

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that prints, logs and writes."""
        return self.rank == 0

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Disconnect, which ends the others where they wait for this process.

        Of several processes with an error only the first with a `UserError` raises it; the others
        exit silently with code 2.
        """
        if self.size == 1:
            return
        is_after_another = error is not self._raised and self._has_another_failed(error)
        distributed.destroy_process_group()
        # gloo's threads outlive it where a module was wrapped. They need the interpreter to free
        # the tensors of their last work; if it ends before, the process aborts.
        time.sleep(0.2)
        if is_after_another:
            raise SystemExit(2) from None

    def _has_another_failed(self, error: BaseException | None) -> bool:
        """Whether another process has left with a `UserError` before; counts this one."""
        is_counted = isinstance(error, UserError)
        try:
            return bool(self._store.add(_FAILURES, is_counted) > is_counted)
        except RuntimeError:  # The store ended with the process that kept it, which had failed.
            return True

    def wrap(self, module: nn.Module) -> nn.Module:
        """A module whose gradients are averaged over all processes, each of which calls it.

        It shares the parameters of `module`, which take the values of process 0.
        """
        return module if self.size == 1 else DistributedDataParallel(module)

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        """Within it, gradients add up in this process and are not averaged yet."""
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.size > 1:
            tensor = tensor.clone()
            distributed.all_reduce(tensor)
        return tensor

    def maximum(self, *numbers: int) -> list[int]:
        """The maximum of each number over all processes; does not wait for GPUs."""
        tensor = torch.tensor(numbers)
        if self.size > 1:
            distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
        return [int(number) for number in tensor]

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def broadcast(self, value: Value) -> Value:
        """The value of process 0."""
        return self.gather(value if self.is_main else None)[0]  # type: ignore[return-value]

    def broadcast_buffers(self, module: nn.Module) -> None:
        """Set the buffers (running means of batch normalisation) to those of process 0."""
        if self.size > 1:
            for buffer in module.buffers():
                distributed.broadcast(buffer, 0)

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """If one process fails in this block, all processes stop at its end.

        For a block without communication. A process with a `UserError` raises it; the others exit
        silently with code 2.
        """
        failure: UserError | None = None
        try:
            yield
        except UserError as error:
            failure = error
        self.share_failure(failure)

    def share_failure(self, failure: UserError | None) -> None:
        """Stop all processes if one of them passes a failure; see `fail_together`."""
        failed = self.gather(failure is not None)
        if not any(failed):
            return
        if failure is not None and failed.index(True) == self.rank:
            self._raised = failure
            raise failure
        raise SystemExit(2)


def _first_set(*names: str) -> str:
    """The first of these environment variables that is set; "" if none is."""
    return next((value for name in names if (value := os.environ.get(name))), "")


def _rank_of_launcher(size: int) -> int:
    """The rank of this process, one of several. Raises `UserError` for a variable not set."""
    rank = _first_set("RANK", "SLURM_PROCID")
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing or not rank:
        names = " and ".join([*([] if rank else ["RANK"]), *missing])
        raise UserError(
            f"this is one of {size} processes, but {names} of their environment is not set: start "
            "them by torchrun, or set MASTER_ADDR and MASTER_PORT to a host and port of the first"
        )
    return int(rank)


def _place(hosts: Sequence[str], rank: int) -> tuple[int, int]:
    """The local rank of a process and the number of processes on its machine.

    hosts: of all processes. A launcher's LOCAL_RANK and LOCAL_WORLD_SIZE go first: containers on a
    machine may share its name.
    """
    before, size = hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank])
    local_rank = _first_set("LOCAL_RANK", "SLURM_LOCALID")
    return int(local_rank or before), int(_first_set("LOCAL_WORLD_SIZE") or size)


def _check_gpus(processes: int) -> None:
    """Raise `UserError` for more processes on this machine than GPUs."""
    count = torch.cuda.device_count()
    if processes > count:
        raise UserError(
            f"there are {processes} processes on the machine {socket.gethostname()} and {count} "
            "GPUs; each process needs its own: start as many on each machine as it has GPUs, and "
            "show all of them to each process (srun --gpus-per-node, not --gpus-per-task)"
        )


def _check_device(device: torch.device) -> None:
    """Raise `UserError` for a kind of device that several processes cannot share."""
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"several processes train on cpu or cuda, not on {device.type}")
    if device.index is not None:
        raise UserError(
            f"device {str(device)!r} is one GPU, but there are several processes: give cuda, and "
            "each takes its own"
        )
