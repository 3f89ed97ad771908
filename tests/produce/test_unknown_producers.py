"""Check the order of the first batches of a producer unknown to its partition (KIP-360)."""

from korvet.produce.unknown_producers import EXPIRES_S, UnknownProducers, Verdict

PRODUCER = ("t", 0, 9, 0)
OTHER = ("t", 1, 9, 0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_expired_producer_starts_with_its_first_batch() -> None:
    unknown = UnknownProducers()
    assert unknown.decide(PRODUCER, 7) == Verdict.START
    assert unknown.decide(PRODUCER, 9) == Verdict.RESEND
    assert unknown.decide(PRODUCER, 7) == Verdict.START, "it was sent again"
    assert unknown.decide(PRODUCER, 5) == Verdict.START
    assert unknown.decide(OTHER, 9) == Verdict.START
    unknown.forget(PRODUCER)
    unknown.forget(OTHER)
    assert not unknown


def test_later_batches_are_rejected_until_the_retry() -> None:
    unknown = UnknownProducers()
    unknown.expect_retry(PRODUCER, 3)
    unknown.expect_retry(PRODUCER, 5)
    assert unknown.decide(PRODUCER, 4) == Verdict.REJECT
    assert unknown.decide(PRODUCER, 3) == Verdict.START
    assert unknown.decide(PRODUCER, 4) == Verdict.RESEND
    unknown.expect_retry(PRODUCER, 3)
    assert unknown.decide(PRODUCER, 4) == Verdict.REJECT


def test_sequences_wrap_around() -> None:
    unknown = UnknownProducers()
    unknown.expect_retry(PRODUCER, 2**31 - 2)
    assert unknown.decide(PRODUCER, 1) == Verdict.REJECT
    assert unknown.decide(PRODUCER, 2**31 - 3) == Verdict.START


def test_a_retry_that_never_comes_expires() -> None:
    clock = Clock()
    unknown = UnknownProducers(clock)
    unknown.expect_retry(PRODUCER, 3)
    clock.now = EXPIRES_S - 1
    assert unknown.decide(PRODUCER, 4) == Verdict.REJECT
    clock.now = EXPIRES_S
    assert unknown.decide(PRODUCER, 4) == Verdict.START


def test_the_oldest_entries_leave() -> None:
    unknown = UnknownProducers()
    unknown._first.limit = 10_000
    for n in range(100):
        unknown.expect_retry(("t", n, 9, 0), 3)
    assert 0 < len(unknown) < 50
    assert unknown.decide(("t", 4, 9, 0), 4) == Verdict.START
    assert unknown.decide(("t", 99, 9, 0), 4) == Verdict.REJECT
