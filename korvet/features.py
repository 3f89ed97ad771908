"""The features that ApiVersions names, with their levels: they come with the version that runs."""

FEATURES = {"group.version": 1, "transaction.version": 2}
"""KIP-848's groups; KIP-890's transactions."""
FEATURES_EPOCH = 1
