"""The nodes that clients of Kafka 0.8 read in ZooKeeper: JSON, in place of the text of 0.7."""

import json

from korvet.legacy.zookeeper import Registry
from korvet.topics.table import Topic


class Registry08(Registry):
    """The registration for 0.8 consumers: JSON, the main port, every topic."""

    option = "zookeeper.connect"
    lease = "registry-08"

    def _own(self) -> str:
        value = {
            "jmx_port": -1,
            "timestamp": self._creator.rpartition("-")[2],
            "host": self._where.host,
            "version": 1,
            "port": self._where.port,
        }
        return json.dumps(value)

    def _is_own(self, text: str) -> bool:
        try:
            value = json.loads(text)
            return (value["host"], value["port"]) == (self._where.host, self._where.port)
        except (ValueError, LookupError, TypeError):
            return False

    def _listing(self, topic: str) -> str:
        return f"{self._topics}/{topic}"

    def _entry(self, topic: Topic) -> str | None:
        partitions = {str(number): [int(self._id)] for number in range(topic.partitions)}
        return json.dumps({"version": 1, "partitions": partitions})
