"""Run as one of two processes, this makes an engine and prints, as JSON, which one it is.

With the argument `cuda`, the first process sees one GPU and the second two, which are not there.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from torch import distributed

from captioner.errors import UserError
from captioner.training import Engine


def main(device: str) -> None:
    if device == "cuda":
        rank = int(os.environ["RANK"])
        connect: Any = distributed.init_process_group

        def with_gloo(backend: str, **options: Any) -> None:
            assert backend == "cpu:gloo,cuda:nccl"
            connect("gloo", **options)

        distributed.init_process_group = with_gloo
        torch.cuda.device_count = lambda: 1 + rank
        torch.cuda.set_device = lambda device: None
    try:
        with Engine(device) as engine:
            numbers = [engine.rank, engine.size, engine.local_size]
            print(json.dumps([*numbers, str(engine.device), engine.gather(engine.rank)]))
    except UserError as error:
        print(json.dumps(str(error)))


if __name__ == "__main__":
    main(sys.argv[1])
