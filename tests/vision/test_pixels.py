"""What decoding may take: long photos, large ones, many scans, time and memory; bands."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from photo_samples import encoded, smooth_photo, turned
from PIL import Image
from refusals import refuses

from captioner.errors import UserError
from captioner.vision import decoding_process, images
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.digest import photo_digest
from captioner.vision.images import load_image, original_size


def bomb(mode: str, width: int, height: int, kind: str = "PNG", **options: Any) -> bytes:
    return encoded(Image.new(mode, (width, height)), kind, **options)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bomb("L", 30_001, 400), "is too long: it is 30001 x 400, and the limit is 30,000 pixels"),
        (bomb("1", 1, 101), "is too long: it is 1 x 101"),
        (bomb("I;16", 9_000, 9_000), "too large: its 9000 x 9000 take 648 MB to decode, and the"),
    ],
)
def test_too_large_photos_are_refused_before_decoding(content: bytes, reason: str) -> None:
    refuses(reason, load_image, content, name="photo", sufficient_side=512)


def test_a_long_jpeg_is_scaled_while_decoding_and_a_panorama_less() -> None:
    long = load_image(bomb("L", 40_000, 4_000, "JPEG"), sufficient_side=512)
    assert (long.size, original_size(long)) == ((5_000, 500), (40_000, 4_000))
    flat = load_image(bomb("L", 20_000, 300), sufficient_side=100)
    assert flat.size == (1_539, 24)


def test_many_scans_are_decoded_elsewhere_and_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each repeated scan costs as much as the first, and holds nearly nothing."""
    content = bomb("L", 2_000, 2_000, "JPEG", progressive=True)
    first = content.index(b"\xff\xda")
    scan = content[first : content.index(b"\xff", first + 2)]
    pool = DecodingPool(1, seconds=0.5)
    monkeypatch.setattr(images, "shared_pool", lambda process_id: pool)
    with pytest.raises(UserError, match=r"^slow\.jpg cannot be decoded: .* 0\.5 s, the limit \(--"):
        load_image(content[:first] + scan * 20_000 + content[first:], name="slow.jpg")
    pool.close()


# The processes that decode

SIGSTOP = int(getattr(signal, "SIGSTOP", 0))
CONTENT = encoded(smooth_photo(90, 60), "PNG")


@pytest.fixture
def pool() -> Iterator[DecodingPool]:
    made = DecodingPool(2, seconds=60.0)
    yield made
    made.close()


def test_photos_and_refusals_are_as_load_image_gives_them(pool: DecodingPool) -> None:
    contents = [encoded(smooth_photo(90, 60 + n), "GIF") for n in range(6)]
    options = {"maximum_pixels": 10_000, "sufficient_side": 30}
    with ThreadPoolExecutor(4) as threads:
        loaded = threads.map(lambda content: pool.load(content, "a photo", **options), contents)
        for content, photo in zip(contents, loaded, strict=True):
            expected = load_image(content, **options)
            assert photo.tobytes() == expected.tobytes()
            assert (photo.size, original_size(photo)) == (expected.size, original_size(expected))
    for content, most in ((b"none", 10_000), (CONTENT, 5_399), (CONTENT[:-20], 10_000)):
        with pytest.raises(UserError) as expected_error:
            load_image(content, most, name="a \udcff.png")
        sentence = f"^{re.escape(str(expected_error.value))}$"
        refuses(sentence, pool.load, content, "a \udcff.png", maximum_pixels=most)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "HEIF"])
def test_a_photo_comes_with_the_digest_of_its_file(
    kind: str, pool: DecodingPool, tmp_path: Path
) -> None:
    """Of one decoding, whatever it is reduced to; the orientation counts, other EXIF does not."""
    pytest.importorskip("pillow_heif").register_heif_opener()
    digests = []
    for number, orientation in enumerate((1, 3, 6)):
        exif = turned(orientation).tobytes()
        content = encoded(smooth_photo(401, 300), kind, exif=exif)
        path = tmp_path / f"{number}.photo"
        path.write_bytes(content)
        photo = pool.load(content, "a photo", sufficient_side=100, has_digest=True)
        assert photo.info["digest"] == photo_digest(str(path))
        digests.append(photo.info["digest"])
    assert len({*digests}) == 3


def test_a_slow_or_crashed_decoder_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = DecodingPool(1, seconds=60.0)
    pool.load(CONTENT, "a photo")
    (decoder,) = pool._decoders
    slow = encoded(smooth_photo(2000, 2000), "PNG")
    pool.seconds = 0.0
    refuses(r"^slow\.png cannot be decoded: the decoder took more tha", pool.load, slow, "slow.png")
    pool.seconds = 60.0
    pool.load(CONTENT, "a photo")
    decoder._process.kill()
    decoder._process.wait()  # Idle, it costs no photo.
    pool.load(CONTENT, "a photo")
    decoder.close()
    with monkeypatch.context() as patch:
        patch.setattr(decoding_process, "_PROGRAM", "print()")
        refuses("^bad cannot be decoded: the decoder crashed", pool.load, CONTENT, "bad")
    assert pool.load(CONTENT, "a photo", sufficient_side=30).size == (45, 30)
    pool.close()
    assert decoder._process is None


@pytest.mark.skipif(not SIGSTOP, reason="no process is stopped on Windows")
@pytest.mark.parametrize("before", ["", "{}\n", '{}\n{"size": [9, 9]}\n'])
def test_a_stopped_decoder_holds_no_photo(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts, is sent the photo, or answers."""
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    monkeypatch.setattr(
        decoding_process, "_PROGRAM", f"print({before!r}, end='', flush=True); {stop}"
    )
    pool = DecodingPool(1, seconds=0.1)
    refuses(r"^a\.png cannot be decoded: .* 0\.1 s", pool.load, bytes(1_000_000), "a.png")
    monkeypatch.undo()
    pool.seconds = 60.0
    pool.load(CONTENT, "a photo")
    pool.close()


def is_running(process: int) -> bool:
    with suppress(FileNotFoundError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"  # Nobody may wait for an orphan.
    return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_a_decoder_without_its_parent_ends_in_time(tmp_path: Path) -> None:
    """Also in C code that lets no other thread run, as the decoder of JPEG 2000."""
    note = "(pathlib.Path('process').write_text(f'{os.getpid()}\\n'), 7 ** 3 ** 18)"
    decoder = decoding_process._PROGRAM.replace(
        "; answer_requests()",
        "; import os, pathlib; import captioner.vision.decoding_process as process"
        f"; process.load_here = lambda *_, **__: {note}; answer_requests()",
    )
    parent = (
        "from captioner.vision import decoding_process as process; "
        f"process._PROGRAM = {decoder!r}; process.DecodingPool(1, 2.0).load(b'', '')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path, env=environment) as process:
        noted = tmp_path / "process"
        while not (noted.exists() and noted.read_text().endswith("\n")):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    end = time.monotonic() + 300
    while is_running(int(noted.read_text())):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_is_limited() -> None:
    program = (
        "from captioner.vision.decoding_process import MEMORY, limit_memory\n"
        "limit_memory()\n"
        "try: bytearray(MEMORY + 2**26)\n"
        "except MemoryError: print('limited')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "limited\n"
