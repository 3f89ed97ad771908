"""Settings of the web console."""

from korvet.config.setting import Flag, Setting, Words

ROWS = (
    Setting("console.remote.write", Flag(), "false",
        "Whether the console lets clients of other machines change things while no listener "
        "authenticates clients. Clients of the broker's machine may always.", dynamic=False),
    Setting("console.allowed.hosts", Words(), "",
        "More host names under which browsers and Prometheus may ask the ops port. Addresses, "
        "localhost and the hosts of --listen, --advertise and --ops are always permitted.",
        dynamic=False),
)  # fmt: skip
