"""Probes of the ACL matrix: one request each, and the rules that it needs.

The scene has topic `t1`, group `g1` with offsets, and transactional ids `x1` and `x3`. Consumer
group `c1`, share group `s1` and streams group `k1` have one member each. Share group `e1` is empty
and has offsets of `t1`. `t3` is in a transaction of `x3`. `t2`, `g2`, `x2` do not exist.
A probe that is allowed changes nothing that another probe depends on.
"""

from tests.security.acl_probes import (
    cluster,
    configs,
    data,
    groups,
    shares,
    streams,
    topics,
    transactions,
)
from tests.security.acl_probes.registry import PROBES, Ids, Probe

__all__ = ["PROBES", "Ids", "Probe"]

for module in (data, topics, configs, groups, transactions, cluster, shares, streams):
    module.register()
