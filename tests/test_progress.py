"""What progress shows, with a clock that is set by hand."""

from samples import Output, Patch

from captioner.progress import progress_bar


def test_plain_lines_come_at_intervals_and_at_the_end(monkeypatch: Patch, capsys: Output) -> None:
    clock = [100.0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    with progress_bar("features", 2025, "images") as progress:
        for _ in range(4):
            clock[0] += 6
            progress.update(300)
        progress.set_postfix_str("done", refresh=False)
        progress.update(825)
    with progress_bar("features", 100, "images", start=80) as progress:  # 80 were done before.
        clock[0] += 5
        progress.update(10)
    with progress_bar("features", 10, shown=False) as progress:
        progress.update(10)
    with progress_bar("features", 0):
        pass
    assert capsys.readouterr().err.splitlines() == [
        "features: 600/2025 images, 50.00 images/s, 00:12 taken, 00:28 left",
        "features: 1200/2025 images, 50.00 images/s, 00:24 taken, 00:16 left",
        "features: 2025/2025 images, 84.38 images/s, 00:24 taken, 00:00 left, done",
        "features: 90/100 images,  2.00 images/s, 00:05 taken, 00:05 left",
    ]
