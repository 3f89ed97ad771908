"""The features that ApiVersions names, with their levels: they come with the version that runs."""

FEATURES = {"group.version": 1, "transaction.version": 2}
"""KIP-848's groups; KIP-890's transactions."""
FEATURES_EPOCH = 1
RELEASE = "metadata.version"
"""The feature that says which release a cluster is upgraded to."""
WITHOUT_MEANING = {RELEASE: 30, "kraft.version": 1, "eligible.leader.replicas.version": 1}
"""Features of Kafka's own quorum and copies, with their levels in Kafka 4.3: nothing here depends
on them, so there is nothing to do for these levels, nor for later ones."""
NOT_SERVED = {"share.version": "share groups", "streams.version": "streams groups"}
"""Features that a release of Kafka brings and that would do something, were it served."""
