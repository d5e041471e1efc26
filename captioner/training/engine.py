"""The processes that train together, on Lightning Fabric: one, or as many as torchrun starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from captioner.errors import UserError

Value = TypeVar("Value")

_FAILURES = "captioner/failures"
"""In the store of the processes: how many have failed in work that ends at once."""


class Engine:
    """The processes of a run, seen from one of them; each has a device of its own.

    Alone, this process on the device it is given. Under `torchrun`, which says so in the
    environment, one of several, of this machine or of many: the processes find each other when an
    engine is made, and part when it is left as a context manager. On GPUs each takes the one of
    its number on its machine. Whatever is said here to concern all processes must be called by all
    of them, in the same order.

    rank: this process's number, from 0. size: how many there are. local_size: how many on this
    machine. device: this process's.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        """Join the other processes.

        Raises `UserError` for a device that several processes cannot have, and when there are more
        of them on this machine than GPUs.
        """
        device = torch.device(device)
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if self.size > 1 else 1
        if self.size > 1:
            _check_shared(device, self.local_size)

        # Imported here: it costs a second, and only those who train have use for it.
        from lightning_fabric import Fabric
        from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
        from lightning_fabric.plugins.environments.lightning import LightningEnvironment
        from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

        environment: ClusterEnvironment = LightningEnvironment()
        devices: int | list[int] = 1
        if self.size > 1:
            environment, devices = TorchElasticEnvironment(), self.local_size
        elif device.type == "cuda":
            devices = [device.index or 0]
        self._fabric = Fabric(
            accelerator=device.type,
            devices=devices,
            num_nodes=self.size // self.local_size,
            strategy="ddp" if self.size > 1 else "auto",
            plugins=[environment],
        )
        self._fabric.launch()
        self.rank = self._fabric.global_rank
        self.device = self._fabric.device
        self._host_group: Any = None
        self._store: Any = None
        self._known: UserError | None = None
        if self.size > 1:
            # The one way to say something to processes that wait for each other.
            self._store = torch.distributed.distributed_c10d._get_default_store()
        if self.size > 1 and self.device.type != "cpu":
            # What is said between the processes must not wait for what their GPUs work at.
            self._host_group = torch.distributed.new_group(backend="gloo")

    @property
    def main(self) -> bool:
        """Whether this is the one process that prints, logs and writes."""
        return self.rank == 0

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.size > 1:
            torch.distributed.destroy_process_group()
            self._store = None

    def wrap(self, module: nn.Module) -> nn.Module:
        """A module whose gradients are the means over all processes, of which each calls it.

        The parameters are those of the module itself, on its device; those of process 0 become
        everybody's.
        """
        if self.size == 1:
            return module
        wrapped: nn.Module = self._fabric.setup_module(module, move_to_device=False)
        return wrapped

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss that a wrapped module gave."""
        if self.size == 1:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self._fabric.backward(loss)

    def gradients_to_come(self, wrapped: nn.Module, enabled: bool) -> AbstractContextManager[Any]:
        """While entered, if enabled, gradients are added up here and not yet between processes."""
        if self.size == 1 or not enabled:
            return nullcontext()
        context: AbstractContextManager[Any] = self._fabric.no_backward_sync(wrapped)  # type: ignore[arg-type]
        return context

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes, to all."""
        if self.size > 1:
            tensor = tensor.clone()
            torch.distributed.all_reduce(tensor)
        return tensor

    def maximum(self, *numbers: int) -> list[int]:
        """The highest of each number over all processes, to all, without regard to the GPUs."""
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers)
        torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX, group=self._host_group)
        return [int(number) for number in tensor]

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes in the order of their ranks, to all."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(found, value, group=self._host_group)
        return found

    def first(self, value: Value) -> Value:
        """The value of process 0, to all."""
        if self.size == 1:
            return value
        found: list[Any] = [value]
        torch.distributed.broadcast_object_list(found, group=self._host_group)
        first: Value = found[0]
        return first

    def share_buffers(self, module: nn.Module) -> None:
        """Give all processes the buffers of process 0: the running means of batch normalisation."""
        if self.size > 1:
            for buffer in module.buffers():
                torch.distributed.broadcast(buffer, 0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Work in which no process waits for another; all leave it, or none.

        Where one of them meets a `UserError`, it raises it, and the others end with exit code 2
        without a word, in place of waiting for it for ever. They hear of it when they are done.
        """
        failure: UserError | None = None
        try:
            yield
        except UserError as error:
            failure = error
        self.share_failure(failure)

    def share_failure(self, failure: UserError | None) -> None:
        """As `together`, for a failure that was met before; None where there was none."""
        if self.size == 1:
            if failure is not None:
                raise failure
            return
        failed = self.gather(failure is not None)
        if not any(failed):
            return
        if failure is not None and failed.index(True) == self.rank:
            self._known = failure
            raise failure
        raise SystemExit(2)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Work, as long as it may be, in which processes may wait for each other at any place.

        Where one of them meets a `UserError`, it raises it without a word to the others, and has no
        more use for the engine. These end with exit code 2, without a word to the person, as soon
        as they miss it: their connections to it break, or `torchrun`, which sees it end, tells them
        to. Of several that meet one at the same time the first raises it.
        """
        if self.size == 1:
            yield
            return
        try:
            yield
        except UserError as error:
            if error is not self._known and not self._is_first():
                raise SystemExit(2) from None
            self._known = error
            raise
        except (RuntimeError, KeyboardInterrupt):
            if self._one_has_failed():
                raise SystemExit(2) from None
            raise

    def _is_first(self) -> bool:
        """Whether this process is the first to say that it failed."""
        try:
            return bool(self._store.add(_FAILURES, 1) == 1)
        except RuntimeError:  # It has gone with the process that kept it.
            return False

    def _one_has_failed(self) -> bool:
        try:
            return bool(self._store.add(_FAILURES, 0) > 0)
        except RuntimeError:
            return True


def _check_shared(device: torch.device, processes: int) -> None:
    """Raise `UserError` where so many processes of a machine cannot share this kind of device."""
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"several processes train on cpu or cuda, not on {device.type}")
    if device.index is not None:
        raise UserError(
            f"device {str(device)!r} is one GPU, and there are several processes: give cuda, of "
            "which each takes its own"
        )
    if device.type == "cuda" and processes > torch.cuda.device_count():
        raise UserError(
            f"there are {processes} processes on this machine and {torch.cuda.device_count()} "
            "GPUs; each process needs one of its own"
        )
