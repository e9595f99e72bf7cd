"""Read metrics as Prometheus does."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def scraped(address: str) -> dict[tuple[str, str], float]:
    """Return values by name and first label, summed over the other labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=180) as answer:
        text = answer.read().decode()
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, next(iter(sample.labels.values()), "")
            found[key] = found.get(key, 0.0) + sample.value
    return found
