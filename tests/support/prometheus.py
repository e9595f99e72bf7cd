"""Read the metrics as Prometheus would."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def scraped(address: str) -> dict[tuple[str, str], float]:
    """Values by name and by the first label."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=180) as answer:
        text = answer.read().decode()
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
