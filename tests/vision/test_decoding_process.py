from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from PIL import Image

from captioner.errors import UserError
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.images import load_image, original_size


@pytest.fixture
def pool() -> Iterator[DecodingPool]:
    made = DecodingPool(2, seconds=60.0)
    yield made
    made.close()


def encoded(number: int, kind: str = "PNG", size: tuple[int, int] = (90, 60)) -> bytes:
    pixels = numpy.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), numpy.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def test_photos_are_as_load_image_gives_them(pool: DecodingPool) -> None:
    contents = [encoded(number, kind) for number in range(4) for kind in ("PNG", "JPEG")]

    def load(content: bytes) -> Image.Image:
        return pool.load(content, "a photo", 10_000, 30)

    with ThreadPoolExecutor(4) as threads:
        for content, photo in zip(contents, threads.map(load, contents), strict=True):
            expected = load_image(content, 10_000, sufficient_side=30)
            assert photo.tobytes() == expected.tobytes()
            assert photo.size == expected.size == (45, 30)
            assert original_size(photo) == (90, 60)


def test_what_is_wrong_is_said_as_load_image_says_it(pool: DecodingPool) -> None:
    for content, pixels in ((b"none", 10_000), (encoded(0), 5_399), (encoded(0)[:-500], 10_000)):
        with pytest.raises(UserError) as expected:
            load_image(content, pixels, name="a \udcff.png")
        with pytest.raises(UserError) as found:
            pool.load(content, "a \udcff.png", pixels, 30)
        assert str(found.value) == str(expected.value)
    assert pool.load(encoded(0), "a photo", 5_400, 30).size == (45, 30)


def test_a_decoder_that_takes_too_long_is_replaced() -> None:
    pool = DecodingPool(1, seconds=0.001)
    with pytest.raises(UserError, match=r"^slow\.png cannot be decoded: the decoder took more tha"):
        pool.load(encoded(0), "slow.png", 10_000, 30)
    (process,) = pool._processes
    process._seconds = 60.0
    assert pool.load(encoded(1), "a photo", 10_000, 30).size == (45, 30)
    pool.close()


def test_a_decoder_that_crashes_is_replaced(pool: DecodingPool) -> None:
    for process in pool._processes:
        process._process = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    for _ in pool._processes:
        with pytest.raises(UserError, match=r"bad\.png cannot be decoded: the decoder crashed"):
            pool.load(encoded(0), "bad.png", 10_000, 30)
    for _ in range(2):  # The second time, the system has ended the processes meanwhile.
        for number in range(2):
            assert pool.load(encoded(number), "a photo", 10_000, 30).size == (45, 30)
        for process in pool._processes:
            process._process.kill()
            process._process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_memory_is_limited() -> None:
    program = (
        "from captioner.vision.decoding_process import MEMORY, _limit_memory\n"
        "_limit_memory()\n"
        "try: bytearray(MEMORY)\n"
        "except MemoryError: print('limited')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "limited\n"
