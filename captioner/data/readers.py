"""The reader of each format of captioned photos."""

from __future__ import annotations

from collections.abc import Callable

from captioner.data.coco import read_coco
from captioner.data.flickr8k import read_flickr8k
from captioner.data.karpathy import read_karpathy
from captioner.data.records import CaptionSet
from captioner.data.table import read_table

READERS: dict[str, Callable[..., CaptionSet]] = {
    "coco": read_coco,
    "karpathy": read_karpathy,
    "flickr8k": read_flickr8k,
    "table": read_table,
}
"""By format name; all take annotations, images, split and on_problem, in this order."""
