"""The driver's checker against an honest node on a busy machine: no alarm, whatever the seed."""

import os
import subprocess
import sys

import pytest

from node import binary, settings_free

BUSY_LOOPS = 6
SECONDS_MAX = 180


@pytest.fixture
def busy():
    """Processes that leave the driver and the node little of the machine."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def run(seed, seconds):
    command = [binary(), "bench", "run", "ttl-change", "--seconds", str(seconds), "--warm-up", "0", "--seed", str(seed), "--metrics-port", "0"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=settings_free(os.environ)
    )
    assert done.returncode == 0, f"seed {seed}: {done.stdout[-3000:]} {done.stderr[-3000:]}"


def test_a_changed_default_raises_no_alarm(busy):
    run(seed=11, seconds=5)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 51))
def test_a_changed_default_raises_no_alarm_for_any_seed(busy, seed):
    run(seed, seconds=5)
