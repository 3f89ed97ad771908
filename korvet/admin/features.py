"""Features and levels that ApiVersions reports: fixed by the release that runs."""

FEATURES = {
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""KIP-848 consumer, KIP-932 share and KIP-1071 streams groups; KIP-890 transactions."""
FEATURES_EPOCH = 1
RELEASE = "metadata.version"
"""The feature that names the release a cluster is upgraded to."""
WITHOUT_MEANING = {RELEASE: 30, "kraft.version": 1, "eligible.leader.replicas.version": 1}
"""Features of Kafka's own quorum and replicas, with their levels in Kafka 4.3.

Nothing in Korvet depends on them, so setting one of these levels, or a later one, has no effect.
"""
