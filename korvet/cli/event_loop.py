"""The event loop that brokers and measurements run on."""


def options() -> dict[str, object]:
    """Return anyio's backend options: uvloop if it is installed."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return {}
    return {"use_uvloop": True}
