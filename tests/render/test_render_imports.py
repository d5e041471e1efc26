from __future__ import annotations

import subprocess
import sys


def test_room_loads_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys, captioner.render; "
        "print([name for name in ('torch', 'matplotlib', 'torchvision') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
