"""The ops port: probes, metrics and pages over HTTP."""
