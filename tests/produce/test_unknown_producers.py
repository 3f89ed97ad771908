"""Beginnings: what comes again is first, and nothing behind it is taken before."""

from korvet.produce.unknown_producers import LASTING_S, MOST, UnknownProducers, Verdict

WHO = ("t", 0, 9, 0)
OTHER = ("t", 1, 9, 0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_that_was_forgotten_begins_with_what_comes_first() -> None:
    beginnings = UnknownProducers()
    assert beginnings.step(WHO, 7) == Verdict.BEGIN
    assert beginnings.step(WHO, 9) == Verdict.REPEAT
    assert beginnings.step(WHO, 7) == Verdict.BEGIN, "it was sent again meanwhile"
    assert beginnings.step(WHO, 5) == Verdict.BEGIN
    assert beginnings.step(OTHER, 9) == Verdict.BEGIN
    beginnings.known(WHO)
    beginnings.known(OTHER)
    assert not beginnings


def test_nothing_is_taken_before_what_comes_again() -> None:
    beginnings = UnknownProducers()
    beginnings.comes_again(WHO, 3)
    beginnings.comes_again(WHO, 5)
    assert beginnings.step(WHO, 4) == Verdict.REFUSE
    assert beginnings.step(WHO, 3) == Verdict.BEGIN
    assert beginnings.step(WHO, 4) == Verdict.REPEAT
    beginnings.comes_again(WHO, 3)
    assert beginnings.step(WHO, 4) == Verdict.REFUSE


def test_sequences_go_on_behind_the_last_number() -> None:
    beginnings = UnknownProducers()
    beginnings.comes_again(WHO, 2**31 - 2)
    assert beginnings.step(WHO, 1) == Verdict.REFUSE
    assert beginnings.step(WHO, 2**31 - 3) == Verdict.BEGIN


def test_nobody_waits_for_ever_for_what_never_comes() -> None:
    clock = Clock()
    beginnings = UnknownProducers(clock)
    beginnings.comes_again(WHO, 3)
    clock.now = LASTING_S - 1
    assert beginnings.step(WHO, 4) == Verdict.REFUSE
    clock.now = LASTING_S
    assert beginnings.step(WHO, 4) == Verdict.BEGIN


def test_they_are_not_many() -> None:
    beginnings = UnknownProducers()
    for n in range(MOST + 5):
        beginnings.comes_again(("t", n, 9, 0), 3)
    assert len(beginnings) == MOST
    assert beginnings.step(("t", 4, 9, 0), 4) == Verdict.BEGIN
    assert beginnings.step(("t", MOST, 9, 0), 4) == Verdict.REFUSE
