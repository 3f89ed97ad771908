"""The broker's settings for sockets, console and monitoring.

Those of Avro have the names of Confluent's clients if they have one.
"""

from korvet.config.setting import INT_MAX, Flag, Overrides, Setting, Text, Whole, Words, long

SOCKETS = (
    Setting("listener.security.protocol.map", Words(), "",
        "Security protocols of listeners by name, as NAME:PROTOCOL; a listener named after a "
        "protocol needs none.", dynamic=False),
    Setting("socket.request.max.bytes", Whole(1), "104857600",
        "A longer request closes its connection.", dynamic=False),
    Setting("queued.max.request.bytes", long(-1), "-1",
        "Bytes of requests that all connections of a broker process may hold before it reads no "
        "further ones; -1 is no limit.", dynamic=False),
    Setting("max.connections", Whole(0), str(INT_MAX), "Max connections of a broker process."),
    Setting("max.connections.per.ip.overrides", Overrides(), "",
        "Max connections from certain client addresses, as ADDRESS:NUMBER."),
    Setting("max.connection.creation.rate", Whole(1), str(INT_MAX),
        "New connections of a broker process a second; further ones wait."),
    Setting("max.connections.per.ip", Whole(0), str(INT_MAX),
        "Max connections of a broker process from one client address."),
    Setting("max.connections.per.user", Whole(0), str(INT_MAX),
        "Max connections of a broker process that one user has authenticated."),
    Setting("max.connections.per.user.overrides", Overrides("USER"), "",
        "Max connections of certain users, as USER:NUMBER."),
    Setting("connections.max.idle.ms", long(-1), "600000",
        "A connection idle for longer is closed; -1 is never.", dynamic=False),
    Setting("connections.max.stall.ms", Whole(500), "1000",
        "Once a broker process did not run for longer, it closes its connections unread: clients "
        "may have repeated their requests at another broker."),
    Setting("queued.max.requests", Whole(1), "500",
        "Requests of one connection that may queue before the broker stops reading from "
        "it.", dynamic=False),
    Setting("fetch.max.bytes", Whole(1024), "57671680",
        "Max bytes of a Fetch response.", dynamic=False),
    Setting("zookeeper.connect", Text(1000), None,
        "HOST:PORT[/chroot] of a ZooKeeper to register the main port in, as Kafka 0.8 did for its "
        "high-level consumers.", dynamic=False),
    Setting("broker.rack", Text(200), None, "This broker's rack, shown to clients.", dynamic=False),
)  # fmt: skip

CONSOLE = (
    Setting("console.remote.write", Flag(), "false",
        "Whether the console lets clients of other machines change things while no listener "
        "authenticates clients. Clients of the broker's machine may always.", dynamic=False),
    Setting("console.allowed.hosts", Words(), "",
        "More host names under which browsers and Prometheus may ask the ops port. Addresses, "
        "localhost and the hosts of --listen, --advertise and --ops are always permitted.",
        dynamic=False),
)  # fmt: skip

AVRO = (
    Setting(
        "schema.registry.url",
        Text(2000),
        None,
        "http: or https: URL of a schema registry, by which the console and the commands decode "
        "Avro.",
        dynamic=False,
    ),
    Setting(
        "schema.registry.basic.auth.user.info",
        Text(2000),
        None,
        "USER:PASSWORD for the schema registry.",
        dynamic=False,
        sensitive=True,
    ),
    Setting(
        "avro.schema.directory",
        Text(2000),
        None,
        "Directory of schemas for bare Avro in the console: TOPIC-value.avsc and TOPIC-key.avsc.",
        dynamic=False,
    ),
)

MONITORING = (
    Setting("monitoring.max.topics", Whole(0), "1000",
        "Topics with rows of `korvet_topic_*` metrics: those with the most bytes."),
    Setting("monitoring.max.groups", Whole(0), "1000",
        "Groups with rows in /metrics and /metrics/kafka: those with the most lag."),
    Setting("monitoring.max.partitions", Whole(0), "10000",
        "Rows of group lag in /metrics, most lag first; and in /metrics/kafka also partitions with "
        "rows, by name of the topic."),
)  # fmt: skip
