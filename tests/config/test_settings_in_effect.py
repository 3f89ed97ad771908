"""Check against the code that each setting declares whether it has an effect."""

from pathlib import Path

import msgspec
import pytest

import korvet
from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import FROM_BROKER as OF_GROUPS
from korvet.config.group_settings import GROUP, bound
from korvet.config.security_settings import PemType
from korvet.config.setting import Setting
from korvet.config.topic_policy import TopicPolicy
from korvet.config.topic_settings import FROM_BROKER as OF_TOPICS
from korvet.config.topic_settings import TOPIC
from korvet.groups.streams_group import StreamsGroupConfig

PACKAGE = Path(korvet.__file__).parent
CODE = "".join(
    path.read_text()
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent.name != "config" or not path.stem.endswith(("_settings", "accepted"))
)

POLICY = {field.encode_name for field in msgspec.structs.fields(TopicPolicy)}
"""Topic configs that are fields of a topic's policy."""
STREAMS = {f"streams.{name.replace('_', '.')}" for name in StreamsGroupConfig.__struct_fields__}
"""Group configs that are fields of a streams group's."""


def stand_ins(name: str) -> list[Setting]:
    """Return the topic and group configs that take a default or bound from this broker setting."""
    topics = [TOPIC[own] for own, rows in OF_TOPICS.items() if name in {row.name for row in rows}]
    bounded = [GROUP[own] for own in GROUP if name in (bound(own, "min"), bound(own, "max"))]
    return topics + bounded + [GROUP[own] for own, broker in OF_GROUPS.items() if broker == name]


def is_read(name: str) -> bool:
    """Return whether code outside the tables names the setting, or a config with its default."""
    names = (name, *(own.name for own in stand_ins(name)))
    return any(f'"{each}"' in CODE or each in POLICY | STREAMS for each in names)


@pytest.mark.parametrize("setting", BROKER.values(), ids=list(BROKER))
def test_a_setting_is_read_exactly_when_it_says_so(setting: Setting) -> None:
    # A type of PEM only is complete when the value is checked.
    is_done = is_read(setting.name) or isinstance(setting.type, PemType)
    assert is_done or not setting.effect, "no code reads it: set effect=False"
    if not setting.effect:
        assert f'"{setting.name}"' not in CODE, "it is read: it has an effect"
