"""Executes `peacefs fsck --temporary`: lists files that a writer left before renaming them, by name and age."""

from __future__ import annotations

import time

import msgspec

from peacefs.protocol.values.temporary_names import wanted_name

from .listing import print_line
from .session import Session


def list_temporary(session: Session, text: str, older_than_hours: float, *, as_json: bool) -> None:
    """Print the temporary files of a tree that have been unchanged for this time, and their total size."""
    place = session.place(text)
    now_s = time.time()
    count = size = 0
    for _directory, _directories, files in place.files.walk(place.path):
        for file in files:
            age_s = now_s - file.modified_ms / 1000
            if wanted_name(file.name) is None or age_s < older_than_hours * 3600:
                continue
            count += 1
            size += file.length
            if as_json:
                found = {"type": "temporary", "path": file.path, "length": file.length, "age_s": round(age_s)}
                print_line(msgspec.json.encode(found).decode())
            else:
                print_line(f"{file.path} {file.length} bytes, {age_s / 3600:.1f} hours old")
    if as_json:
        summary = {"type": "summary", "path": place.path, "temporary_files": count, "bytes": size}
        print_line(msgspec.json.encode(summary).decode())
    else:
        print_line(
            f"{count} temporary files with {size} bytes that have not changed for {older_than_hours:g} hours"
        )
