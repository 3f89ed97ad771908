"""Check positions as users write them, equal for every command."""

from datetime import UTC, datetime, timedelta

import pytest

from korvet.log.position import BadPosition, Position, parse_position

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        (" LATEST ", "latest"),
        ("0", 0),
        ("99", 99),
        ("9223372036854775807", 2**63 - 1),
        ("90s", NOW - timedelta(seconds=90)),
        ("15m", NOW - timedelta(minutes=15)),
        ("2h", NOW - timedelta(hours=2)),
        ("1d", NOW - timedelta(days=1)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T09:00", datetime(2026, 1, 31, 9, tzinfo=UTC)),
        ("2026-01-31T09:00Z", datetime(2026, 1, 31, 9, tzinfo=UTC)),
        ("2026-01-31T09:00+01:00", datetime(2026, 1, 31, 8, tzinfo=UTC)),
    ],
)
def test_a_position_is_a_word_an_offset_an_age_or_a_time_in_utc(
    text: str, place: Position, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert parse_position(text, NOW) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "noon",
        "-1",
        "٣",
        "1.5",
        "5x",
        "999999999d",
        "2026-13-01",
        "9223372036854775808",
        "9" * 5000,
    ],
)
def test_an_invalid_position_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(
        BadPosition, match="is no position: earliest, latest, an offset, a time like"
    ):
        parse_position(text, NOW)
