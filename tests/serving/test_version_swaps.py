"""The benchmark of swapped versions and killed clients, with few requests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# 800 requests at 100 per second take at least 8 s on any machine: several swaps and a kill.
ARGUMENTS = ["--requests", "800", "--rate", "100", "--items", "5"]
ARGUMENTS += ["--swap-seconds", "2", "--kill-seconds", "5"]


@pytest.mark.slow
def test_no_request_is_lost_or_wrong_while_versions_change_and_the_client_is_killed(
    repository: Path, tmp_path: Path
):
    script = repository / "benchmarks" / "version_swaps.py"
    actual = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, str(script), *ARGUMENTS, "--json", str(actual)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(actual.read_text())
    assert (result["lost"], result["failed"], result["wrong"]) == (0, 0, 0)
    assert result["versions"] > 1
    assert result["kills"] > 0
