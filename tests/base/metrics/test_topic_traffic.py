"""Check traffic by topic: the topics that are shown, and the topics in the totals."""

from korvet.base.metrics import Metrics


def counted(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    (family,) = [each for each in metrics.snapshot() if each.name == name]
    return {row.labels: row.value for row in family.samples}


def test_records_and_bytes_are_counted_by_topic_and_in_total() -> None:
    metrics = Metrics()
    metrics.appended("a", 3, 300)
    metrics.appended("b", 1, 100)
    metrics.appended("b", 0, 100)
    metrics.fetched("a", 2, 200)
    assert counted(metrics, "korvet_topic_produced_records") == {("a",): 3, ("b",): 1}
    assert counted(metrics, "korvet_topic_produced_bytes") == {("a",): 300, ("b",): 100}
    assert counted(metrics, "korvet_topic_fetched_records")[("a",)] == 2
    assert counted(metrics, "korvet_topic_fetched_bytes")[("a",)] == 200
    assert counted(metrics, "korvet_produced_records") == {(): 4}
    assert counted(metrics, "korvet_produced_bytes") == {(): 400}
    assert counted(metrics, "korvet_fetched_records") == {(): 2}
    assert counted(metrics, "korvet_fetched_bytes") == {(): 200}
    assert counted(metrics, "korvet_duplicate_batches") == {(): 1}


def test_above_the_limit_the_topics_with_the_most_bytes_are_shown_and_a_gauge_says_so() -> None:
    metrics = Metrics()
    metrics.traffic.max_topics = lambda: 2
    for topic, size in (("d", 5), ("c", 7), ("b", 5), ("a", 1)):
        metrics.appended(topic, 1, size)
    assert set(counted(metrics, "korvet_topic_produced_bytes")) == {("c",), ("b",)}
    assert counted(metrics, "korvet_topics_not_shown") == {(): 2}
    metrics.fetched("a", 1, 100)
    assert set(counted(metrics, "korvet_topic_produced_bytes")) == {("a",), ("c",)}
    assert counted(metrics, "korvet_produced_bytes") == {(): 18}


def test_a_deleted_topic_has_no_row_and_stays_in_the_totals() -> None:
    metrics = Metrics()
    metrics.appended("a", 1, 10)
    metrics.appended("b", 1, 10)
    metrics.traffic.keep({"b"})
    assert set(counted(metrics, "korvet_topic_produced_bytes")) == {("b",)}
    assert counted(metrics, "korvet_produced_bytes") == {(): 20}
