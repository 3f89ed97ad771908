"""CPU, memory and file descriptors of this process, as Prometheus names them."""

from typing import Literal

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily

from korvet.metrics import Family, Sample

_collector = ProcessCollector(registry=CollectorRegistry())


def process_families() -> list[Family]:
    """Return the process metrics; there are none where the system has no /proc."""
    found = []
    for metric in _collector.collect():
        kind: Literal["counter", "gauge"] = (
            "counter" if isinstance(metric, CounterMetricFamily) else "gauge"
        )
        samples = [Sample((), sample.value) for sample in metric.samples]
        found.append(Family(metric.name, kind, metric.documentation, (), samples))
    return found
