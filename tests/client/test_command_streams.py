"""Commands and what they read from and write to: pipes that break, streams that are closed, terminals, Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster


def test_a_reader_that_goes_away_is_no_reason_for_a_traceback(files: PeaceFileSystem, home: str) -> None:
    for number in range(2):
        files.write(f"{home}/{number}", b"line\n" * 500_000)
    command = [sys.executable, "-m", "peacefs", "cat", "-c", files.address, f"{home}/0", f"{home}/1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 1


@pytest.mark.parametrize("command", ["ls /", "report", "fsck --json"])
def test_a_closed_standard_output_is_a_fault_in_one_line(environment: dict[str, str], command: str) -> None:
    shell = f'exec "{sys.executable}" -m peacefs {command} >&-'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, env=os.environ | environment, timeout=60)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr.endswith(b"Bad file descriptor\n")


def test_a_closed_standard_input_makes_no_file(
    environment: dict[str, str], files: PeaceFileSystem, home: str
) -> None:
    shell = f'exec "{sys.executable}" -m peacefs put - {home}/none <&-'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, env=os.environ | environment, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"peacefs: Bad file descriptor\n")
    assert not files.exists(f"{home}/none")


def test_ctrl_c_in_the_middle_of_a_put_leaves_no_file(
    environment: dict[str, str], files: PeaceFileSystem, home: str
) -> None:
    command = [sys.executable, "-m", "peacefs", "put", "-", f"{home}/file"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ | environment, **pipes) as process:
        assert process.stdin and process.stderr
        # More than a pipe holds: once it is taken, the command is at work.
        process.stdin.write(bytes(8 * MIB))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""
    assert files.list(home) == []


def test_a_terminal_sees_how_a_transfer_goes(environment: dict[str, str], home: str, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(3 * MIB))
    terminal, other_end = os.openpty()
    command = [sys.executable, "-m", "peacefs", "put", "big", f"{home}/big"]
    seen = b""
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | environment, stdout=subprocess.PIPE, stderr=other_end
    ) as process:
        os.close(other_end)
        # Linux ends the reading of a terminal whose other end is closed with EIO.
        with contextlib.suppress(OSError):
            while piece := os.read(terminal, 65536):
                seen += piece
        assert process.stdout
        assert process.stdout.read() == b""
    os.close(terminal)
    assert process.returncode == 0
    assert b"big" in seen
    assert b"3.0/3.0 MiB" in seen
    assert b"/s" in seen
