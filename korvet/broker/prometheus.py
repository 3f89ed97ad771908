"""Metrics of one or more processes as Prometheus text."""

import platform
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from korvet import __version__
from korvet.metrics import Family, Sample

Snapshots = Sequence[tuple[str | None, list[Family]]]


def text(snapshots: Snapshots) -> bytes:
    """Return the text; rows have the label `worker` if the process has a name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(snapshots))
    return generate_latest(registry)


class _Counts(Collector):
    """Metric families of several processes, merged by name."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterable[Metric]:
        found: dict[str, Metric] = {}
        for worker, families in self._snapshots:
            process = () if worker is None else (worker,)
            for family in families:
                labels = [*(("worker",) if process else ()), *family.labels]
                metric = found.setdefault(family.name, _empty(family, labels))
                for sample in family.samples:
                    _add(metric, family, [*process, *sample.labels], sample)
        build = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("korvet_build", "The running versions.", build)
        yield from found.values()


def _empty(family: Family, labels: list[str]) -> Metric:
    if family.kind == "histogram":
        return HistogramMetricFamily(family.name, family.sentence, labels=labels)
    if family.kind == "counter":
        return CounterMetricFamily(family.name, family.sentence, labels=labels)
    return GaugeMetricFamily(family.name, family.sentence, labels=labels)


def _add(metric: Metric, family: Family, labels: list[str], sample: Sample) -> None:
    if isinstance(metric, HistogramMetricFamily):
        metric.add_metric(labels, _cumulative(family.bounds, sample.buckets), sample.value)
    elif isinstance(metric, CounterMetricFamily | GaugeMetricFamily):
        metric.add_metric(labels, sample.value)


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return running totals per bucket, each with its upper bound."""
    rows: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += count
        rows.append((bound, total))
    return rows
