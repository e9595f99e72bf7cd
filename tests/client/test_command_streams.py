"""Commands and their standard streams: broken pipes, closed streams, terminals, Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S, wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.limits import MIB

pytestmark = pytest.mark.cluster
_GOT_BYTES = 64 * MIB


def test_a_reader_that_goes_away_is_no_reason_for_a_traceback(files: PeaceFileSystem, home: str) -> None:
    for number in range(2):
        files.write(f"{home}/{number}", b"line\n" * 500_000)
    command = [sys.executable, "-m", "peacefs", "cat", "-c", files.address, f"{home}/0", f"{home}/1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 141


@pytest.mark.parametrize(
    "command",
    [
        "ls -R /",
        "stat /",
        "du /",
        "count /",
        "report",
        "fsck",
        "fsck --json",
        "schedule",
        "datanodes ls",
        "--help",
    ],
)
def test_with_nobody_to_read_it_a_command_ends_as_coreutils_do(environment: dict[str, str], command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    told = [sys.executable, "-m", "peacefs", *command.split()]
    try:
        done = subprocess.run(
            told, stdout=writing, stderr=subprocess.PIPE, env=os.environ | environment, timeout=PATIENCE_S
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", ["ls /", "report", "fsck --json"])
def test_a_closed_standard_output_is_a_fault_in_one_line(
    environment: dict[str, str], files: PeaceFileSystem, home: str, command: str
) -> None:
    # For an empty root, `ls` prints nothing.
    files.mkdirs(home)
    shell = f'exec "{sys.executable}" -m peacefs {command} >&-'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, env=os.environ | environment, timeout=180)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr == f"peacefs: {command.split()[0]}: standard output: Bad file descriptor\n".encode()


@pytest.mark.parametrize(
    "command",
    ["ls /", "ls / /", "stat /", "du /", "report", "fsck", "cat {home}/file {home}/file", "cat {home}/big"],
)
def test_a_full_standard_output_is_a_fault_in_one_line(
    environment: dict[str, str], files: PeaceFileSystem, home: str, command: str
) -> None:
    files.write(f"{home}/file", b"line\n")
    files.write(f"{home}/big", bytes(3 * MIB))
    told = [sys.executable, "-m", "peacefs", *command.format(home=home).split()]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(told, stdout=full, stderr=subprocess.PIPE, env=os.environ | environment, timeout=180)
    said = f"peacefs: {command.split()[0]}: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said.encode())


def test_target_that_is_no_regular_file_is_not_replaced_by_one(
    environment: dict[str, str], files: PeaceFileSystem, home: str, tmp_path: Path
) -> None:
    files.write(f"{home}/file", b"line\n")
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "peacefs", "get", "-f", f"{home}/file", str(tmp_path / "pipe")]
    done = subprocess.run(command, capture_output=True, env=os.environ | environment, timeout=180)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"Not a regular file" in done.stderr
    assert (tmp_path / "pipe").is_fifo() and [each.name for each in tmp_path.iterdir()] == ["pipe"]


def test_a_closed_standard_input_makes_no_file(
    environment: dict[str, str], files: PeaceFileSystem, home: str
) -> None:
    shell = f'exec "{sys.executable}" -m peacefs put - {home}/none <&-'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, env=os.environ | environment, timeout=180)
    assert (done.returncode, done.stderr) == (1, b"peacefs: put: standard input: Bad file descriptor\n")
    assert not files.exists(f"{home}/none")


def test_ctrl_c_in_the_middle_of_a_put_leaves_no_file(
    environment: dict[str, str], files: PeaceFileSystem, home: str
) -> None:
    command = [sys.executable, "-m", "peacefs", "put", "-", f"{home}/file"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ | environment, **pipes) as process:
        assert process.stdin and process.stderr
        # More than a pipe holds: when it has been read, the command is running.
        process.stdin.write(bytes(8 * MIB))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        assert process.stderr.read() == b""
    assert files.list(home) == []


def test_a_signal_in_the_middle_of_a_get_leaves_nothing_of_it(
    environment: dict[str, str], files: PeaceFileSystem, home: str, tmp_path: Path
) -> None:
    files.write(f"{home}/file", bytes(_GOT_BYTES))
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        assert _get_interrupted(environment, f"{home}/file", tmp_path, number) == (status, b"")
        assert list(tmp_path.iterdir()) == []


def _get_interrupted(
    environment: dict[str, str], source: str, target: Path, number: signal.Signals
) -> tuple[int, bytes]:
    """Interrupt a running get, and return its exit. Try again if it finished before the interrupt."""
    command = [sys.executable, "-m", "peacefs", "get", source, str(target / "copy")]
    for _ in range(20):
        with subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE) as process:
            wait_until(lambda: any(target.iterdir()), "it begins")
            process.send_signal(number)
            _, said = process.communicate(timeout=180)
        copy = target / "copy"
        if not copy.exists() or copy.stat().st_size < _GOT_BYTES:
            break
        copy.unlink()
    return process.returncode, said


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_a_command_is_still_being_imported_shows_no_traceback(
    tmp_path: Path, number: str, status: int
) -> None:
    sends = f"import os, signal; from collections import namedtuple; os.kill(os.getpid(), signal.{number})"
    (tmp_path / "typer.py").write_text(sends)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "peacefs", "ls"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


def test_a_terminal_sees_how_a_transfer_goes(environment: dict[str, str], home: str, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(3 * MIB))
    terminal, other_end = os.openpty()
    command = [sys.executable, "-m", "peacefs", "put", "big", f"{home}/big"]
    seen = b""
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | environment, stdout=subprocess.PIPE, stderr=other_end
    ) as process:
        os.close(other_end)
        # Linux ends reads from a terminal with EIO when its other end is closed.
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
