"""The program of docs/scale.md, on a Ray cluster of this machine."""

import os
import re
import signal
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from samples import save_photo

import captioner

ray = pytest.importorskip("ray", reason="ray is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
PROGRAM, PHOTOS, SHARDS = re.findall(r"^```python title=.*?\n(.*?)^```", PAGE, re.M | re.S)

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clusters ask nothing of the network and leave nothing behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # It would write a token to the home folder.
    terminate = signal.getsignal(signal.SIGTERM)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # Short, for names of sockets.
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield
        ray.shutdown()
    signal.signal(signal.SIGTERM, terminate)


def program() -> dict[str, Any]:
    """What the page's program defines, on a new cluster, with two workers from the start."""
    ray.shutdown()
    ray.init(num_cpus=3, include_dashboard=False)
    names: dict[str, Any] = {"__name__": "caption_many"}
    exec(PROGRAM.replace("min_size=1", "min_size=2"), names)
    return names


def rows(folder: str) -> list[dict[str, Any]]:
    """The rows of all Parquet files of a folder, by path."""
    tables = [parquet.read_table(file) for file in sorted(Path(folder).glob("*.parquet"))]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda r: r["path"])


def interrupted(worker: Any, folder: Path) -> Any:
    """A worker whose process is killed at one batch, and that ends the run when it comes again."""

    class Interrupted(worker):
        def __call__(self, photos: Any) -> Any:
            paths = photos["path"].to_pylist()
            with (folder / "begun").open("a+") as file:
                file.seek(0)
                begun = len(file.readlines())
                file.writelines(f"{path}\n" for path in paths)
            killed, ended = folder / "killed", folder / "ended"
            if begun >= 100 and not killed.exists():
                killed.write_text(paths[0])
                os.kill(os.getpid(), signal.SIGKILL)
            if killed.exists() and killed.read_text() == paths[0] and not ended.exists():
                ended.touch()
                deadline = time.monotonic() + 120
                while not list((folder / "captions").glob("*.parquet")):
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
                raise RuntimeError("the run ends here")
            return super().__call__(photos)

    return Interrupted


def test_each_photo_is_written_once_though_a_worker_and_the_run_are_stopped(tmp_path: Path) -> None:
    paths = sorted(str(save_photo(Path(f"photos/{n}.jpg"), n)) for n in range(200))
    Path("photos/50.jpg").write_bytes(b"no photo")
    Path("photos/150.jpg").write_bytes(b"")
    names = program()
    names["Worker"] = interrupted(names["Worker"], tmp_path)
    with pytest.raises(Exception, match="the run ends here"):
        exec(PHOTOS, names)
    names = program()
    before = set(names["written"]("captions"))
    assert 0 < len(before) < 200
    Path("captions/cut_short.parquet").write_bytes(b"PAR1 and half of its rows")
    Path("begun").write_text("")
    names["Worker"] = interrupted(names["Worker"], tmp_path)
    exec(PHOTOS, names)
    assert Path("captions/cut_short.parquet.cut").exists()
    assert {*Path("begun").read_text().splitlines()} == {*paths} - before

    found = rows("captions")
    assert [row["path"] for row in found] == paths
    assert [row["path"] for row in found if row["error"]] == ["photos/150.jpg", "photos/50.jpg"]
    for row in found:
        if row["error"]:
            assert row["error"].startswith(f"{row['path']} is not an image that can be read")
            assert row["caption"] is row["words"] is None
    caption = captioner.load().caption("photos/7.jpg")
    row = next(row for row in found if row["path"] == "photos/7.jpg")
    assert (row["caption"], tuple(row["words"])) == (caption.text, caption.words)
    assert row["confidence"] == pytest.approx(caption.confidence, abs=1e-4)
    assert row["maps"] is None


def test_photos_of_shards_are_captioned_with_maps() -> None:
    Path("shards").mkdir()
    for shard in range(2):
        with tarfile.open(f"shards/{shard}.tar", "w") as tar:
            for number in range(3):  # The keys are the same in both.
                tar.add(save_photo(Path(f"{number}.jpg"), number))
                tar.add("0.jpg", f"{number}.txt")
            tar.add("0.jpg", "3.txt")
    names = program()
    exec(SHARDS.replace("workers=2", "workers=2, maps=True"), names)
    exec(SHARDS, names)  # Nothing is left to be done.
    found = rows("shard_captions")
    assert [row["path"].partition("shards/")[2] for row in found] == [
        f"{shard}.tar/{number}" for shard in range(2) for number in range(4)
    ]
    assert [row["error"] is None for row in found] == [True, True, True, False] * 2
    caption = captioner.load().caption("2.jpg")
    for row in (found[2], found[6]):
        assert row["caption"] == caption.text
        assert numpy.array(row["maps"]) == pytest.approx(caption.attention.numpy(), abs=1e-3)
