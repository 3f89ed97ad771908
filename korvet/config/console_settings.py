"""Settings of the web console."""

from korvet.config.setting import Flag, Setting

ROWS = (
    Setting("console.remote.write", Flag(), "false",
        "Whether the console lets clients of other machines change things while no listener "
        "authenticates clients. Clients of the broker's machine may always.", dynamic=False),
)  # fmt: skip
