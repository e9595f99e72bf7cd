"""Measure this machine: descriptors, the disks of directories, Spark and its settings."""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import peacefs
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import KIB, MIB

from .facts import Directory, Machine, Spark, WantedSetting
from .spark_settings import parse_defaults

doctor_settings_bytes_max: Final = 1 * MIB
# A disk is measured by appending and syncing this many records of this size, then writing this many bytes.
doctor_fsyncs: Final = 32
doctor_fsync_record_bytes: Final = 4 * KIB
doctor_write_bytes: Final = 32 * MIB


_MIB = 1 << 20


def measure_machine() -> Machine:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(version=peacefs.__version__, descriptors_soft=soft, descriptors_hard=hard)


def measure_directory(path: Path) -> Directory:
    """Measure appends with fsync, then a larger write, in a temporary file that is removed."""
    try:
        where = path.resolve(strict=True)
        with tempfile.TemporaryFile(dir=where, prefix=".peacefs-doctor-") as file:
            fsyncs = sorted(_append(file.fileno()) for _ in range(doctor_fsyncs))
            rate = _write(file.fileno())
        room = os.statvfs(where)
        return Directory(
            path=str(path),
            file_system=file_system_of(where, Path("/proc/self/mounts").read_text()),
            fsync_median_s=statistics.median(fsyncs),
            fsync_longest_s=fsyncs[-1],
            write_bytes_per_second=rate,
            available_bytes=room.f_bavail * room.f_frsize,
        )
    except OSError as fault:
        return Directory(path=str(path), fault=fault.strerror or str(fault))


def file_system_of(path: Path, mounts: str) -> str:
    """Return the type of a path's file system, from the text of /proc/self/mounts; empty if unknown."""
    found, longest = "", -1
    for line in mounts.splitlines():
        _device, place, kind, *_rest = line.split(" ")
        mounted = Path(place.encode().decode("unicode_escape"))
        if path.is_relative_to(mounted) and len(mounted.parts) >= longest:
            found, longest = kind, len(mounted.parts)
    return found


def _append(file: int) -> float:
    began_s = time.perf_counter()
    os.write(file, bytes(doctor_fsync_record_bytes))
    os.fsync(file)
    return time.perf_counter() - began_s


def _write(file: int) -> float:
    """Return the bytes per second of a write that ends with an fsync."""
    piece = os.urandom(_MIB)
    began_s = time.perf_counter()
    for _ in range(doctor_write_bytes // _MIB):
        os.write(file, piece)
    os.fsync(file)
    return doctor_write_bytes / (time.perf_counter() - began_s)


def find_spark(coordinator: str, settings_file: Path | None, environment: Mapping[str, str]) -> Spark | None:
    """Return what is known of the installed Spark; None without Spark and without a named file."""
    from peacefs.spark_connector.java import find_java
    from peacefs.spark_connector.session import installed_spark, settings

    version = installed_spark()
    if version is None and settings_file is None:
        return None
    file = settings_file or _defaults_file(environment)
    wanted, wanted_fault = [], ""
    try:
        for each in settings(coordinator, spark_version=version):
            wanted.append(WantedSetting(each.key, each.value, each.reason))
    except PeacefsError as mistake:
        wanted_fault = mistake.message
    java_version, java_fault = None, ""
    try:
        java_version = find_java(environment).version
    except PeacefsError as mistake:
        java_fault = mistake.message
    return Spark(
        version=version or "not in this Python",
        java_version=java_version,
        java_fault=java_fault,
        wanted=wanted,
        wanted_fault=wanted_fault,
        file=str(file),
        found=_defaults(file),
    )


def _defaults_file(environment: Mapping[str, str]) -> Path:
    """Return the file that Spark reads its defaults from."""
    if directory := environment.get("SPARK_CONF_DIR"):
        return Path(directory) / "spark-defaults.conf"
    home = environment.get("SPARK_HOME")
    if not home:
        from importlib.util import find_spec

        spec = find_spec("pyspark")
        home = str(Path(spec.origin).parent) if spec is not None and spec.origin else "/opt/spark"
    return Path(home) / "conf" / "spark-defaults.conf"


def _defaults(file: Path) -> dict[str, str] | None:
    try:
        with file.open("rb") as opened:
            return parse_defaults(opened.read(doctor_settings_bytes_max).decode(errors="replace"))
    except FileNotFoundError:
        return None
