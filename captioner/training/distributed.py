"""The processes that train together: one, or as many as torchrun starts."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from captioner.devices import fast_device
from captioner.errors import UserError, refuse_errors

Value = TypeVar("Value")


def process_rank() -> int:
    """This process's rank among those that torchrun started; alone 0, also if RANK is set."""
    return int(os.environ["RANK"]) if int(os.environ.get("WORLD_SIZE", 1)) > 1 else 0


class Processes:
    """The processes of a run, seen from one of them, and its device.

    Without torchrun, this process alone, on the given device. Under torchrun, processes connect
    when it is made and disconnect when it is left; each takes the GPU of its local rank.
    All must call the collective methods, in the same order.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.rank, self.local_world_size = 0, 1
        self.world_size = int(os.environ.get("WORLD_SIZE", 1))
        is_alone = self.world_size == 1
        if not (is_alone or f"{device}" in ("cpu", "cuda")):
            raise UserError(f"several processes train on cpu or cuda, not on {self.device}")
        fast_device(self.device)
        if is_alone:
            return
        fault = f"this is one of {self.world_size} processes, which torchrun should start"
        with refuse_errors(f"{fault}, no more than there are GPUs"):
            self.rank = process_rank()
            local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
            self.local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size))
            if self.device.type == "cuda":
                self.device = torch.device("cuda", local_rank)
                torch.cuda.set_device(self.device)
            # Objects and CPU tensors go through gloo and do not wait for the GPUs.
            backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
            # It may wait a day for a slower one; a process that ended is noticed at once.
            distributed.init_process_group(backend, timeout=timedelta(days=1))

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that prints, logs and writes."""
        return self.rank == 0

    def __enter__(self) -> "Processes":
        """Silence the standard output of all processes but the first."""
        self._output = redirect_stdout(sys.stdout if self.is_main else None)
        self._output.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Disconnect; a process that waited for one that failed exits with code 2."""
        self._output.__exit__(None, None, None)
        if self.world_size == 1:
            return
        distributed.destroy_process_group()
        # gloo's threads outlive it where a module was wrapped. They need the interpreter to free
        # the tensors of their last work; if it ends before, the process aborts.
        time.sleep(0.2)
        # gloo raises `RuntimeError` itself.
        if isinstance(error, distributed.DistError) or "gloo" in str(error):
            raise SystemExit(2) from None

    def wrap(self, module: nn.Module) -> nn.Module:
        """A module whose gradients are averaged over all processes, each of which calls it."""
        return module if self.world_size == 1 else DistributedDataParallel(module)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world_size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes, in the order of their ranks."""
        if self.world_size == 1:
            return [value]
        values = [value] * self.world_size
        distributed.all_gather_object(values, value)
        return values

    def broadcast_buffers(self, module: nn.Module) -> None:
        """Set the buffers (running means of batch normalisation) to those of process 0."""
        if self.world_size > 1:
            for buffer in module.buffers():
                distributed.broadcast(buffer, 0)

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """If one process fails in this block, which does not communicate, all stop at its end.

        The first process with a `UserError` raises it; the others exit silently with code 2.
        """
        failure: UserError | None = None
        try:
            yield
        except UserError as error:
            failure = error
        failed = self.gather(failure is not None)
        if failure is not None and failed.index(True) == self.rank:
            raise failure
        if any(failed):
            raise SystemExit(2)
