"""Check the kinds of metrics: the rows of a family of each kind."""

import pytest

from korvet.base.metrics import Counter, Histogram, Metrics


def test_a_histogram_without_a_label_has_one_row() -> None:
    histogram = Histogram("h", "H.", bounds=(1.0, 2.0))
    histogram.observe(1.5)
    (row,) = histogram.family().samples
    assert (row.labels, row.buckets, row.value) == ((), (0, 1, 0), 1.5)


def test_a_histogram_with_a_label_is_observed_by_the_label() -> None:
    with pytest.raises(TypeError, match="has a label"):
        Histogram("h", "H.", "api").observe(1.0)


def test_a_counter_can_read_its_rows_at_scrape_time() -> None:
    counter = Counter("c", "C.", "topic")
    counter.ask_rows = lambda: {("a",): 3}
    assert [(row.labels, row.value) for row in counter.family().samples] == [(("a",), 3)]


def test_only_a_recent_scrape_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("korvet.base.metrics.monotonic", lambda: now)
    metrics = Metrics()
    assert not metrics.is_scraped
    metrics.scraped()
    now = 59.0
    assert metrics.is_scraped
    now = 61.0
    assert not metrics.is_scraped
