"""Draw the spans of a request: a line per span, with the tree on the left and bars on a time axis.

Pure, except that it reads files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from peacefs.protocol.errors import BadRequest

_BAR = 40
_TREE = 52
_FULL, _EMPTY = "█", "·"


@dataclass(frozen=True, slots=True)
class DrawnSpan:
    request: str
    id: str
    parent: str
    service: str
    instance: str
    name: str
    begin_s: float
    end_s: float
    attributes: dict[str, Any]


def read_spans(files: Iterable[Path]) -> list[DrawnSpan]:
    """Read spans from files. Raises BadRequest for a line that is no span, OSError."""
    found = []
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            try:
                found.append(_span(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError):
                raise BadRequest(f"{file}: line {number} is no span") from None
    return _with_requests(found)


def _span(told: dict[str, Any]) -> DrawnSpan:
    resource, attributes = told["resource"]["attributes"], told["attributes"] or {}
    return DrawnSpan(
        request=str(attributes.get("request", "")),
        id=told["context"]["span_id"].removeprefix("0x"),
        parent=(told["parent_id"] or "").removeprefix("0x"),
        service=resource["service.name"],
        instance=resource.get("service.instance.id", ""),
        name=told["name"],
        begin_s=datetime.fromisoformat(told["start_time"]).timestamp(),
        end_s=datetime.fromisoformat(told["end_time"]).timestamp(),
        attributes={key: value for key, value in attributes.items() if key != "request"},
    )


def _with_requests(spans: Sequence[DrawnSpan]) -> list[DrawnSpan]:
    """Give phases, which name no request, the request of their parent span."""
    of = {span.id: span.request for span in spans}
    return [
        span if span.request else DrawnSpan(**{**asdict(span), "request": of.get(span.parent, "")})
        for span in spans
    ]


def slowest(spans: Sequence[DrawnSpan]) -> str:
    """Return the id of the slowest request. Raises BadRequest if there are no spans."""
    if not spans:
        raise BadRequest("there is no span")
    return max(spans, key=lambda span: span.end_s - span.begin_s).request


def drawn(spans: Sequence[DrawnSpan], request: str) -> Iterator[str]:
    """Draw one request. Raises BadRequest if there are no spans of it."""
    ours = _ours(spans, request)
    began_s = min(span.begin_s for span in ours)
    lasted_s = max(max(span.end_s for span in ours) - began_s, 1e-6)
    return _lines(ours, request, began_s, lasted_s)


def as_records(spans: Sequence[DrawnSpan], request: str) -> Iterator[str]:
    """Return the request's spans as lines of JSON. Raises BadRequest."""
    return (json.dumps(asdict(span)) for span in _ours(spans, request))


def _ours(spans: Sequence[DrawnSpan], request: str) -> list[DrawnSpan]:
    ours = sorted((span for span in spans if span.request == request), key=lambda span: span.begin_s)
    if not ours:
        raise BadRequest(f"there is no span of request {request!r}")
    return ours


def _lines(ours: Sequence[DrawnSpan], request: str, began_s: float, lasted_s: float) -> Iterator[str]:
    yield f"request {request}: {lasted_s * 1000:.1f} ms"
    known = {span.id for span in ours}
    below: dict[str, list[DrawnSpan]] = {}
    for span in ours:
        below.setdefault(span.parent if span.parent in known else "", []).append(span)
    pending = [(span, 0) for span in reversed(below.get("", []))]
    while pending:
        span, depth = pending.pop()
        yield _line(span, depth, began_s, lasted_s)
        pending += [(child, depth + 1) for child in reversed(below.get(span.id, []))]


def _line(span: DrawnSpan, depth: int, began_s: float, lasted_s: float) -> str:
    begin = min(round((span.begin_s - began_s) / lasted_s * _BAR), _BAR - 1)
    end = max(round((span.end_s - began_s) / lasted_s * _BAR), begin + 1)
    bar = (_EMPTY * begin + _FULL * (end - begin)).ljust(_BAR, _EMPTY)[:_BAR]
    peer, count = span.attributes.get("peer", ""), span.attributes.get("count", 1)
    if "busy_ms" in span.attributes:
        what = span.name + (f" x{count}" if count != 1 else "") + (f" {peer}" if peer else "")
        took_ms = float(span.attributes["busy_ms"])
    else:
        what = (
            f"{span.service} {span.instance}: {span.name}"
            if span.service == "datanode"
            else (f"{span.service}: {span.name}")
        )
        took_ms = (span.end_s - span.begin_s) * 1000
    tree = ("  " * depth + what)[:_TREE]
    return f"{tree:<{_TREE}} {bar} {took_ms:9.1f} ms"
