"""Samples of the lag of groups, stored as their recorder stores them."""

from korvet.groups import lag_survey
from korvet.scripts.keys import Keys
from tests.support.running_console import RunningConsole


def plant(console: RunningConsole, group: str, lags: dict[int, dict[str, list[int]]]) -> None:
    """Store samples of a group by their age in minutes: partition and lag in turn, by topic."""
    key = Keys(console.namespace).lag_history(lag_survey.shard_of(group))
    with console.server.client() as client:
        now = client.time()[0] // 60
        for age, topics in lags.items():
            client.hset(key, str(now - age), lag_survey.encode_sample(0, {group: topics}))
