"""Damages photos and models at random, and counts what the package makes of it.

Each is to be read, or refused in one sentence. Faults are another exception (`traces`), and a good
photo beside a damaged one that is not captioned or damaged weights that load (`lost`). A crash, or
20 seconds without an answer, ends the campaign with the stacks of all threads.

  python scripts/fault_campaign.py --seconds 60 --seed 0

Cases follow from the seed, their number from the time. The exit code is 1 after a fault.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from PIL import Image

from captioner.caption import (
    Captioner,
    DecoderConfig,
    Failed,
    ShowAttendTellDecoder,
    load_model,
    save_model,
)
from captioner.demo import DEMO_PHOTO
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "JPEG2000")
FAULTS = ("traces", "lost")
PATIENCE = 20
"""Seconds."""


def prepare(folder: Path) -> None:
    """Write a photo in every format and a model of random weights."""
    with Image.open(DEMO_PHOTO) as image:
        photo = image.convert("RGB").resize((64, 48))
    photo.save(folder / "good.png")
    for kind in FORMATS:
        photo.save(folder / f"photo.{kind}", kind)
    vocabulary = Vocabulary(["a", "dog", "man", "runs"])
    decoder = DecoderConfig(embedding_size=4, hidden_size=4, attention_size=4)
    model = Captioner(
        VGGEncoder(VGGConfig(name="vgg11_bn", width=0.02)),
        ShowAttendTellDecoder(decoder, len(vocabulary)),
        vocabulary,
        Preprocessing(size=32, resize="squash"),
    )
    save_model(model, folder / "model")


def damaged(content: bytes, draw: random.Random) -> bytes:
    """A file after one to four changes: bytes that go, are drawn, are zeros, or come 50 times."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(changed) + 1)
        stop = min(len(changed), start + draw.choice((1, 8, 64, 4_096)))
        new = (b"", draw.randbytes(stop - start), bytes(stop - start), changed[start:stop] * 50)
        changed[start : draw.choice((stop, stop, stop, len(changed)))] = draw.choice(new)
    return bytes(changed)


def caption_photos(folder: Path, draw: random.Random) -> str:
    """A damaged photo beside a good one, which must be captioned."""
    photo = folder / f"photo.{draw.choice(FORMATS)}"
    (folder / "photo.damaged").write_bytes(damaged(photo.read_bytes(), draw))
    model, good = load_model(folder / "model"), folder / "good.png"
    first, second = model.caption([good, folder / "photo.damaged"], on_error="skip")
    if isinstance(first, Failed):
        return "lost"
    return "refused" if isinstance(second, Failed) else "read"


def load_captioner(folder: Path, draw: random.Random) -> str:
    """A model with one damaged file; damaged weights must be refused."""
    copy = folder / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder / "model", copy)
    file = draw.choice(sorted(copy.iterdir()))
    file.write_bytes(damaged(content := file.read_bytes(), draw))
    load_model(copy).caption([folder / "good.png"])
    are_other_weights = file.name == "model.safetensors" and file.read_bytes() != content
    return "lost" if are_other_weights else "read"


KINDS = {"photos": caption_photos, "models": load_captioner}


def outcome_of(kind: str, folder: Path, draw: random.Random) -> tuple[str, str]:
    """What the package makes of a damaged file."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    try:
        return KINDS[kind](folder, draw), ""
    except UserError as error:
        return ("traces" if "\n" in str(error) else "refused"), str(error)
    except Exception:
        return "traces", traceback.format_exc()
    finally:
        faulthandler.cancel_dump_traceback_later()


def main() -> int:
    """Run the campaign and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="a kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    arguments = parser.parse_args()
    faulthandler.enable()
    faults = 0
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        print(f"{'':<10}" + "".join(f"{each:>10}" for each in ("tried", "read", *FAULTS)))
        for kind in KINDS:
            counts: Counter[str] = Counter()
            draw = random.Random(f"{arguments.seed} {kind}")
            end = time.monotonic() + arguments.seconds
            while time.monotonic() < end:
                outcome, text = outcome_of(kind, Path(name), draw)
                counts[outcome] += 1
                if outcome in FAULTS:
                    print(f"case {counts.total()}, {outcome}: {text}", file=sys.stderr)
            row = (counts.total(), *(counts[outcome] for outcome in ("read", *FAULTS)))
            print(f"{kind:<10}" + "".join(f"{count:>10,}" for count in row), flush=True)
            faults += sum(counts[fault] for fault in FAULTS)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
