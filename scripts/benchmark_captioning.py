"""How long captioning takes on this machine, and how many captions the fast ways change.

  python scripts/benchmark_captioning.py photos/ --count 500

encoder: photos through the packaged encoder as it is saved, 16 at once; folded and in chunks, in
float32; the same in bfloat16. All in turn, batch by batch. Captions are compared with the first's.
large: photos enlarged to 12 megapixels, from a JPEG file to a caption, decoded whole and reduced.
waiting: the command `captioner caption` with 16 photos, by OMP_WAIT_POLICY, alone and beside a
process that multiplies matrices on every core; medians of --repeat times.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import torch
from benchmark_machine import described
from PIL import Image

import captioner
from captioner import cpu
from captioner.caption import load_model
from captioner.cli.program import run_program
from captioner.model_folders import model_folder
from captioner.vision.find_images import find_images
from captioner.vision.images import load_image

BATCH = 16
LARGE = (4000, 3000)
BUSY = "import torch\nfactors = torch.randn(2, 1024, 1024)\nwhile True: factors[0] @ factors[1]"

Given = TypeVar("Given")


def timed(work: Callable[..., Given], *arguments: object) -> tuple[float, Given]:
    """Seconds of a piece of work, and what it gives."""
    begin = time.perf_counter()
    given = work(*arguments)
    return time.perf_counter() - begin, given


def time_encoders(photos: list[Path]) -> None:
    """Print milliseconds a photo and changed captions, by precision."""
    ways = {
        "as saved": (load_model(model_folder()), "0"),
        "float32": (captioner.load(precision="float32"), "1"),
        "bfloat16": (captioner.load(precision="bfloat16"), "1"),
    }
    encoding = dict.fromkeys(ways, 0.0)
    searching = dict.fromkeys(ways, 0.0)
    texts: dict[str, list[str]] = {name: [] for name in ways}
    for first in range(0, len(photos), BATCH):
        images = [load_image(path) for path in photos[first : first + BATCH]]
        pixels = torch.stack([ways["as saved"][0].preprocessing(image) for image in images])
        for name, (model, switch) in ways.items():
            if first == 0:
                model.encode(pixels)  # To warm up.
            with patch.dict(os.environ, {cpu.SWITCH: switch}):
                taken, annotations = timed(model.encode, pixels)
            encoding[name] += taken
            taken, captions = timed(model.caption_annotations, annotations)
            searching[name] += taken
            texts[name] += [caption.text for caption in captions]
    print(f"{'encoder':<12}{'ms a photo':>12}{'search, ms':>12}{'captions changed':>20}")
    for name in ways:
        changed = sum(one != two for one, two in zip(texts[name], texts["as saved"], strict=True))
        each = 1000 * encoding[name] / len(photos), 1000 * searching[name] / len(photos)
        print(f"{name:<12}{each[0]:>12.1f}{each[1]:>12.1f}{changed:>12} of {len(photos)}")


def time_large_photos(photos: list[Path]) -> None:
    """Print milliseconds from a file of 12 megapixels to a caption, and changed captions."""
    model = captioner.load()
    times: dict[str, list[float]] = {"whole": [], "reduced": []}
    changed = 0
    for path in photos:
        file = io.BytesIO()
        load_image(path).resize(LARGE, Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        content = file.getvalue()
        if path == photos[0]:
            model.caption([content])  # To warm up.
        taken, (whole,) = timed(lambda file: model.caption([load_image(file)]), content)
        times["whole"].append(taken)
        taken, (reduced,) = timed(model.caption, [content])
        times["reduced"].append(taken)
        changed += whole.text != reduced.text
    for name, found in times.items():
        print(f"12 megapixels, {name:<10}{1000 * statistics.median(found):>8.0f} ms")
    print(f"captions changed: {changed} of {len(photos)}")


def time_waiting(photos: list[Path], repeat: int) -> None:
    """Print seconds of `captioner caption`, by OMP_WAIT_POLICY, alone and beside a busy process."""
    policies = ("PASSIVE", "")  # An empty one is as if none was set: threads spin for a while.
    times: dict[tuple[str, bool], list[float]] = {}
    command = [sys.executable, "-m", "captioner", "caption", *map(str, photos[:BATCH])]

    def caption(policy: str) -> None:
        environment = {**os.environ, "OMP_WAIT_POLICY": policy}
        subprocess.run(command, env=environment, capture_output=True, check=True)

    for _ in range(repeat):
        for is_busy in (False, True):
            busy = subprocess.Popen([sys.executable, "-c", BUSY]) if is_busy else None
            try:
                for policy in policies:
                    times.setdefault((policy, is_busy), []).append(timed(caption, policy)[0])
            finally:
                if busy is not None:
                    busy.kill()
                    busy.wait()
    print(f"{'OMP_WAIT_POLICY':<18}{'alone, s':>10}{'busy, s':>10}{'ratio':>8}")
    for policy in policies:
        alone, beside = (statistics.median(times[policy, is_busy]) for is_busy in (False, True))
        print(f"{policy or 'none':<18}{alone:>10.2f}{beside:>10.2f}{beside / alone:>8.1f}")


def main() -> None:
    """Time all three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", nargs="+", help="photos and folders of photos")
    parser.add_argument("--count", type=int, default=500, help="photos (default: %(default)s)")
    parser.add_argument(
        "--large", type=int, default=100, help="photos to enlarge (default: %(default)s)"
    )
    parser.add_argument("--repeat", type=int, default=5, help="times (default: %(default)s)")
    arguments = parser.parse_args()
    photos = list(find_images(arguments.photos))[: arguments.count]
    precision = str(cpu.choose_precision("auto", torch.device("cpu"))).removeprefix("torch.")
    print(f"{described(torch.device('cpu'))}; the faster precision is {precision}", flush=True)
    time_encoders(photos)
    time_large_photos(photos[: arguments.large])
    time_waiting(photos, arguments.repeat)


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark_captioning"))
