"""Layouts: the ways in which a topic's entries hold records, one strategy object each.

    record   one stream entry per record
    batch    one stream entry per record batch
    bytes    offset.mode=bytes: one stream entry per record batch or Kafka 0.7 message set;
             an offset is a byte position

Rules
- `layout_of` is the only place that asks for a topic's storage.format and offset.mode.
- A layout makes log.append's arguments of what `korvet/log/validator.py` has accepted: it does not
  check again.
"""

from typing import TypeAlias

from korvet.log.layouts.batch import BatchLayout
from korvet.log.layouts.bytes import BytesLayout
from korvet.log.layouts.record import RecordLayout
from korvet.topics.table import Topic

Layout: TypeAlias = RecordLayout | BatchLayout
RECORD, BATCH, BYTES = RecordLayout(), BatchLayout(), BytesLayout()


def layout_of(topic: Topic) -> Layout:
    """Return the layout that the topic was created with."""
    policy = topic.policy
    if policy.offset_mode == "bytes":
        return BYTES
    return BATCH if policy.storage_format == "batch" else RECORD
