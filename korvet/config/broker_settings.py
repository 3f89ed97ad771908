"""The broker's settings: name, type, default and description, under Kafka's names if it has one.

`dynamic=False` settings are read once at start; the others may also change while brokers run.
Those of Avro have the names of Confluent's clients if they have one. BOTH and _ACCEPTED have no
effect: a row is Kafka's name, type and default, and a sentence if something else has the effect.
"""

from korvet.config.setting import (
    INT_MAX,
    LONG_MAX,
    LONGEST_ARRAY,
    ConfigError,
    Decimal,
    Flag,
    Levels,
    OneOf,
    Overrides,
    Pem,
    PemType,
    Setting,
    SomeOf,
    Text,
    TopicName,
    Type,
    Whole,
    Words,
    accept,
    find_setting,
    long,
    table,
)

CODECS = ("none", "uncompressed", "producer", "gzip", "snappy", "lz4", "zstd")
AT_REST = ("none", "gzip", "snappy", "lz4", "zstd")
LONGEST = str(LONG_MAX)
_POSITIVE = Decimal(0, float("inf"))
_FASTEST = "1.7976931348623157E308"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
DELIVERY_LIMIT = 5
"""Deliveries of a record to a share group by default."""


_OURS = (
    Setting("storage.format", OneOf(("record", "batch")), "record",
        "How records are stored in Redis: `record` is one stream entry per record, readable with "
        "redis-cli; `batch` is one entry per producer batch, unchanged and much faster."),
    Setting("offset.mode", OneOf(("time", "dense", "bytes")), "time",
        "What an offset is: `time` is the millisecond and a sequence, `dense` counts 0, 1, 2, "
        "`bytes` is Kafka 0.7's byte position."),
    Setting("offset.bits", Whole(8, 12), "10",
        "In `time` mode, how many low bits of an offset are the sequence within a millisecond; 11 "
        "last until the year 2109, 12 until 2039."),
    Setting("storage.compression", OneOf(AT_REST), "lz4",
        "Codec of large values of `record` topics at rest; `none` keeps values readable."),
    Setting("storage.compression.min.bytes", Whole(64), "1024",
        "Values shorter than this stay uncompressed at rest."),
    Setting("group.read.mode", OneOf(("offset", "stream")), "offset",
        "How a group reads: `offset` uses the offset of each Fetch and moves the Redis group with "
        "commits; `stream` reads with XREADGROUP."),
    Setting("fetch.cache.bytes", long(0), "134217728",
        "Memory of a broker process for recent batches, served without a Redis read; "
        "0 is off.", dynamic=False),
    Setting("legacy.num.partitions", Whole(1, 10_000), "1",
        "Partitions of a topic that a Kafka 0.7 client creates by producing to it."),
    Setting("acks.all.wait.replicas", Whole(0, 100), "0",
        "Redis replicas that must have a write before acks=-1 is acknowledged, and a decision "
        "before it is executed elsewhere (WAIT)."),
    Setting("acks.all.fsync", Flag(), "false",
        "Whether acks=-1, and what executes a decision elsewhere, waits for fsync of the "
        "append-only file (WAITAOF, Redis 7.2)."),
    Setting("min.insync.replicas", Whole(1), "1",
        "Copies of a record that acks=-1 waits for: the Redis master and N - 1 of its replicas. "
        "With fewer replicas it is refused: NOT_ENOUGH_REPLICAS."),
    Setting("redis.timeout.ms", Whole(100), "15000",
        "Time without any reply after which a Redis connection counts as lost: the broker "
        "reconnects, ends it on the server, and fails its pending commands.", dynamic=False),
    Setting("cluster.id", Text(200), "korvet-cluster-1",
        "The cluster id that clients see; stored in Redis by the first broker.", dynamic=False),
)  # fmt: skip

_TOPICS = (
    Setting("max.topics", Whole(0), "0",
        "Topics that may exist; above it none is created. 0: any number."),
    Setting("num.partitions", Whole(1, 10_000), "1",
        "Default number of partitions of a new topic."),
    Setting("auto.create.topics.enable", Flag(), "true",
        "Whether a Metadata or Produce request for an unknown topic creates it."),
    Setting("reserved.topic.names.enable", Flag(), "false",
        "Whether topics may be created under names that begin with `__`, as Kafka lets clients do: "
        "Debezium's heartbeats, Cruise Control's metrics and Samza's checkpoints have such names."),
    Setting("delete.topic.enable", Flag(), "true", "Whether clients may delete topics."),
    Setting("message.max.bytes", Whole(0), "1048588",
        "The largest record batch a topic takes, compressed as sent."),
    Setting("max.decompressed.message.bytes", Whole(1, LONGEST_ARRAY), str(LONGEST_ARRAY),
        "The largest record that a topic takes in a compressed batch: key, value and headers."),
    Setting("records.validation", OneOf(("full", "header")), "full",
        "What is checked of a produced batch: `full` is every record in it, as in Kafka; `header` "
        "leaves the records of layout `batch` unread, so that one bad batch can stop all consumers "
        "of a partition."),
    Setting("log.retention.ms", long(-1), None,
        "How long records are kept, in milliseconds; -1 is no limit. Wins over minutes and hours."),
    Setting("log.retention.minutes", Whole(-1), None,
        "How long records are kept, in minutes; wins over hours."),
    Setting("log.retention.hours", Whole(-1), "168", "How long records are kept, in hours."),
    Setting("log.retention.bytes", long(-1), "-1",
        "How many bytes of records a partition keeps; -1 is no limit."),
    Setting("log.retention.check.interval.ms", long(1), "300000",
        "Interval between two retention checks, in milliseconds.", dynamic=False),
    Setting("log.message.timestamp.type", OneOf(("CreateTime", "LogAppendTime")), "CreateTime",
        "Whether a record has its producer's timestamp or the time of the append."),
    Setting("log.message.timestamp.before.max.ms", long(0), LONGEST,
        "How far in the past a producer's timestamp may be, in milliseconds."),
    Setting("log.message.timestamp.after.max.ms", long(0), "3600000",
        "How far in the future a producer's timestamp may be, in milliseconds."),
    Setting("log.cleanup.policy", SomeOf(("delete", "compact"), may_be_empty=True), "delete",
        "`delete` removes old records, `compact` keeps the latest record of each key; empty keeps "
        "all records."),
    Setting("compression.type", OneOf(CODECS), "none",
        "Codec of the fetched batches of `record` topics, and of stored batches that must change; "
        "`none` and `producer` leave a producer's batches as they are."),
    Setting("log.cleaner.delete.retention.ms", long(0), "86400000",
        "How long a compacted topic keeps the tombstone of a deleted key, in milliseconds."),
    Setting("log.cleaner.min.compaction.lag.ms", long(0), "0",
        "How long a record of a compacted topic is not compacted, in milliseconds."),
    Setting("log.cleaner.min.cleanable.ratio", Decimal(0, 1), "0.5",
        "Lowest ratio of uncompacted records to the log at which the cleaner compacts it."),
    Setting("log.cleaner.backoff.ms", long(1), "15000",
        "Interval between two passes of the log cleaner, in milliseconds."),
)  # fmt: skip

_SOCKETS = (
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
    Setting("max.incremental.fetch.session.cache.slots", Whole(0), "1000",
        "Fetch sessions that a broker process has at once, at most.", dynamic=False),
    Setting("fetch.max.bytes", Whole(1024), "57671680",
        "Max bytes of a Fetch response.", dynamic=False),
    Setting("zookeeper.connect", Text(1000), None,
        "HOST:PORT[/chroot] of a ZooKeeper to register the main port in, as Kafka 0.8 did for its "
        "high-level consumers.", dynamic=False),
    Setting("broker.rack", Text(200), None, "This broker's rack, shown to clients.", dynamic=False),
)  # fmt: skip

_CONSOLE = (
    Setting("console.remote.write", Flag(), "false",
        "Whether the console lets clients of other machines change things while no listener "
        "authenticates clients. Clients of the broker's machine may always.", dynamic=False),
    Setting("console.allowed.hosts", Words(), "",
        "More host names under which browsers and Prometheus may ask the ops port. Addresses, "
        "localhost and the hosts of --listen, --advertise and --ops are always permitted.",
        dynamic=False),
)  # fmt: skip

_AVRO = (
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

_MONITORING = (
    Setting("monitoring.max.topics", Whole(0), "1000",
        "Topics with rows of `korvet_topic_*` metrics: those with the most bytes."),
    Setting("monitoring.max.groups", Whole(0), "1000",
        "Groups with rows in /metrics and /metrics/kafka: those with the most lag."),
    Setting("monitoring.max.partitions", Whole(0), "10000",
        "Rows of group lag in /metrics, most lag first; and in /metrics/kafka also partitions with "
        "rows, by name of the topic."),
)  # fmt: skip


def _tls_row(
    name: str, type_: Type, default: str | None, sentence: str, *, sensitive: bool = False
) -> Setting:
    return Setting(
        name, type_, default, sentence, dynamic=False, per_listener=True, sensitive=sensitive
    )


_TLS = (
    _tls_row("ssl.keystore.type", PemType(), "PEM", "Type of the key store: PEM."),
    _tls_row("ssl.keystore.location", Text(4096), None,
        "PEM file with the private key and the certificate chain of the broker, its own "
        "certificate first. The file is read again when it changes."),
    _tls_row("ssl.keystore.key", Pem(), None,
        "Private key in PEM, in place of ssl.keystore.location.", sensitive=True),
    _tls_row("ssl.keystore.certificate.chain", Pem(), None,
        "Certificate chain in PEM, with ssl.keystore.key; the broker's own certificate first."),
    _tls_row("ssl.key.password", Text(), None,
        "Password of an encrypted private key.", sensitive=True),
    _tls_row("ssl.truststore.type", PemType(), "PEM", "Type of the trust store: PEM."),
    _tls_row("ssl.truststore.location", Text(4096), None,
        "PEM file with the certificates that sign those of clients. The file is read again when it "
        "changes."),
    _tls_row("ssl.truststore.certificates", Pem(), None,
        "Certificates in PEM, in place of ssl.truststore.location."),
    _tls_row("ssl.client.auth", OneOf(("none", "requested", "required")), "none",
        "Whether a client must have a certificate; a SASL_SSL listener uses only its own value, "
        "`listener.name.NAME.ssl.client.auth`."),
    _tls_row("ssl.enabled.protocols", SomeOf(TLS_VERSIONS), ",".join(TLS_VERSIONS),
        "TLS versions that clients may use."),
    _tls_row("ssl.cipher.suites", Words(), "",
        "Cipher suites that clients may use, by their IANA or OpenSSL names; empty are OpenSSL's."),
    _tls_row("ssl.principal.mapping.rules", Text(65536), "DEFAULT",
        "Rules from a certificate's distinguished name to a principal: "
        "RULE:PATTERN/REPLACEMENT/[LU], or DEFAULT for the name itself; the first match decides."),
    _tls_row("ssl.allow.dn.changes", Flag(), "false",
        "Whether a changed key store may have another subject."),
    _tls_row("ssl.allow.san.changes", Flag(), "false",
        "Whether a changed key store may lack some of the subject alternative names."),
    _tls_row("ssl.handshake.timeout.ms", Whole(1), "10000",
        "A connection whose TLS handshake takes longer is closed, in milliseconds."),
)  # fmt: skip

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
_OAUTH = "sasl.oauthbearer."

_SASL = (
    Setting(
        "sasl.enabled.mechanisms",
        SomeOf(MECHANISMS),
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "SASL mechanisms that clients of SASL listeners may use: " + ", ".join(MECHANISMS) + ".",
        dynamic=False,
        per_listener=True,
    ),
    Setting("sasl.server.max.receive.size", Whole(1), "524288",
        "Max bytes of a request before its client has "
        "authenticated.", dynamic=False, per_listener=True),
    Setting("connections.max.reauth.ms", long(0), "0",
        "Time after which a client must authenticate again, in milliseconds; later its next "
        "request closes the connection. 0 is never; tokens of OAUTHBEARER expire all the "
        "same.", dynamic=False, per_listener=True),
    Setting("connection.failed.authentication.delay.ms", Whole(0), "100",
        "Time from a client's wrong credentials to the response, in milliseconds.", dynamic=False),
    Setting("connection.authentication.timeout.ms", Whole(1), "30000",
        "Time that a client of a SASL listener has to authenticate after it connected, in "
        "milliseconds.", dynamic=False),
    Setting(_OAUTH + "jwks.endpoint.url", Text(2000), None,
        "https: or file: URL of the JSON Web Key Set that verifies tokens of "
        "OAUTHBEARER.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "jwks.endpoint.refresh.ms", long(1), "3600000",
        "Interval between two reads of an https: key set, in milliseconds. An unknown key id "
        "causes a read at once; a file is read when it changed.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "jwks.endpoint.retry.backoff.ms", long(0), "10000",
        "Min time between two reads of the key set that unknown key ids cause, in "
        "milliseconds.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "expected.issuer", Text(2000), None,
        "The `iss` that a token must have; required with "
        "OAUTHBEARER.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "expected.audience", Words(), "",
        "The audiences of which a token must have one in `aud`; required with "
        "OAUTHBEARER.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "clock.skew.seconds", Whole(0, 3600), "30",
        "Difference that may be between the clocks of issuer and broker, in "
        "seconds.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "sub.claim.name", Text(200), "sub",
        "Claim of a token that holds the user's name.", dynamic=False, per_listener=True),
    Setting(_OAUTH + "scope.claim.name", Text(200), "scope",
        "Claim of a token that holds its scopes: text or a list of texts, if "
        "present.", dynamic=False, per_listener=True),
)  # fmt: skip

KAFKAS_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


_AUTHORIZATION = (
    Setting("authorizer.class.name", OneOf(("", "korvet", KAFKAS_AUTHORIZER)), "",
        "Empty allows every client everything; `korvet`, or the name of Kafka's authorizer, allows "
        "what ACL rules allow.", dynamic=False),
    Setting("super.users", Text(65536), "",
        "Principals that may do everything, separated by semicolons, such as "
        "`User:admin`.", dynamic=False),
    Setting("allow.everyone.if.no.acl.found", Flag(), "false",
        "Whether a resource that no ACL rule names is open to everyone.", dynamic=False),
    Setting("audit.log.allowed", Flag(), "false",
        "Whether allowed requests are in the log too, at a cost. Denied ones always "
        "are.", dynamic=False),
    Setting("audit.topic", TopicName(), "",
        "Topic to which brokers append audit records, created if missing; empty is "
        "none.", dynamic=False),
    Setting("audit.topic.allowed", Flag(), "false",
        "Whether allowed requests and successful SASL authentications are in `audit.topic` too, at "
        "a cost. Denied ones always are.", dynamic=False),
)  # fmt: skip


def heartbeat_rows(type_: str, groups: str) -> tuple[Setting, ...]:
    """Return the settings of the members' sessions and heartbeats."""
    return (
        *_bounded(
            type_, "session.timeout.ms", "session timeout",
            ("45000", "45000", "60000"), f"Session timeout of the members of {groups}.", lowest=1,
        ),
        *_bounded(
            type_, "heartbeat.interval.ms", "heartbeat interval",
            ("5000", "5000", "15000"), f"Heartbeat interval given to the members of {groups}.",
            lowest=1,
        ),
    )  # fmt: skip


def assignment_rows(type_: str, group: str) -> tuple[Setting, ...]:
    """Return the settings of the interval of target assignments."""
    return _bounded(
        type_, "assignment.interval.ms", "assignment interval", ("1000", "0", "15000"),
        f"The shortest time between two target assignments of a {group}.", lowest=0,
    )  # fmt: skip


def _bounded(
    type_: str, name: str, what: str, defaults: tuple[str, str, str], sentence: str, *, lowest: int
) -> tuple[Setting, ...]:
    """Return a setting, and the bounds of a group's own config of it."""
    default, least, highest = defaults
    may_set = f"{what} that a group's own config may set."
    return (
        Setting(f"group.{type_}.{name}", Whole(lowest), default, sentence),
        Setting(f"group.{type_}.min.{name}", Whole(lowest), least, f"The shortest {may_set}"),
        Setting(f"group.{type_}.max.{name}", Whole(lowest), highest, f"The longest {may_set}"),
    )


_GROUPS = (
    Setting("group.min.session.timeout.ms", Whole(1), "6000",
        "The shortest session timeout a group member may ask for."),
    Setting("group.max.session.timeout.ms", Whole(1), "1800000",
        "The longest session timeout a group member may ask for."),
    Setting("group.initial.rebalance.delay.ms", Whole(0), "3000",
        "How long the first rebalance of an empty group waits for more members."),
    Setting("group.max.size", Whole(1), "2000",
        "Members a group may have. A rebalance of more holds Redis for longer than 50 ms."),
    Setting("group.max.bytes", Whole(1), "8388608",
        "Bytes of the protocols of a classic group's members, and of their assignments."),
    Setting("group.subscription.max.topics", Whole(1), "1000",
        "Topics that the members of a KIP-848, share or streams group may subscribe to together."),
    Setting("group.subscription.max.partitions", Whole(1), "3000",
        "Partitions of these topics: the broker assigns them in one script."),
    Setting("group.subscription.max.bytes", Whole(1), "524288",
        "Bytes of the ids, names and patterns of the members of such a group; a topic's name "
        "counts as 34 at least."),
    Setting("max.groups", Whole(0), "0",
        "Groups that may exist; above it none is created. 0: any number."),
    Setting("offsets.retention.minutes", Whole(1), "10080",
        "How long the committed offsets of a group without members are kept."),
    Setting("offset.metadata.max.bytes", Whole(0), "4096",
        "The longest metadata a committed offset may carry."),
)  # fmt: skip

_CONSUMER_GROUPS = (
    *heartbeat_rows("consumer", "KIP-848 groups"),
    Setting("group.consumer.max.size", Whole(1), "1000",
        "Members a KIP-848 group may have."),
)  # fmt: skip

_PRODUCERS = (
    Setting("producer.id.expiration.ms", Whole(1), "86400000",
        "How long an idle producer's sequence numbers are kept, in milliseconds."),
    Setting("transaction.max.timeout.ms", Whole(1), "900000",
        "The longest transaction timeout a producer may ask for."),
    Setting("transactional.id.expiration.ms", Whole(1), "604800000",
        "How long an idle transactional id is kept, in milliseconds."),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", Whole(1), "10000",
        "Interval between two checks for timed-out transactions, in milliseconds.", dynamic=False),
)  # fmt: skip

_COORDINATION = _GROUPS + _CONSUMER_GROUPS + _PRODUCERS

_STREAMS_GROUPS = (
    *heartbeat_rows("streams", "streams groups"),
    *assignment_rows("streams", "streams group"),
    Setting("group.streams.initial.rebalance.delay.ms", Whole(0), "3000",
        "How long the first target assignment of a streams group waits for more members."),
    Setting("group.streams.num.standby.replicas", Whole(0), "0",
        "Standby tasks of each task that has a changelog."),
    Setting("group.streams.max.standby.replicas", Whole(0), "2",
        "The highest number of standby tasks that a group's own config may set."),
    Setting("group.streams.max.size", Whole(1), "200",
        "Members a streams group may have."),
)  # fmt: skip

_SHARE_GROUPS = (
    *heartbeat_rows("share", "share groups"),
    *assignment_rows("share", "share group"),
    Setting("group.share.max.size", Whole(1, 1000), "200", "Members a share group may have."),
    Setting("group.share.record.lock.duration.ms", Whole(1000, 3_600_000), "30000",
        "How long an acquired record is locked for its member."),
    Setting("group.share.min.record.lock.duration.ms", Whole(1000, 30_000), "15000",
        "The shortest lock that a group's own config may set."),
    Setting("group.share.max.record.lock.duration.ms", Whole(30_000, 3_600_000), "60000",
        "The longest lock that a group's own config may set."),
    Setting("group.share.delivery.count.limit", Whole(2, 10), str(DELIVERY_LIMIT),
        "How often a record is delivered to a share group, at most."),
    Setting("group.share.min.delivery.count.limit", Whole(2, 5), "2",
        "The lowest limit of deliveries that a group's own config may set."),
    Setting("group.share.max.delivery.count.limit", Whole(5, 25), "10",
        "The highest limit of deliveries that a group's own config may set."),
    Setting("group.share.partition.max.record.locks", Whole(100, 10_000), "2000",
        "Records of a partition that are locked for a share group at once, at most."),
    Setting("group.share.min.partition.max.record.locks", Whole(100, 2000), "100",
        "The lowest limit of locks that a group's own config may set."),
    Setting("group.share.max.partition.max.record.locks", Whole(2000, 10_000), "4000",
        "The highest limit of locks that a group's own config may set."),
    Setting("group.share.assignors", SomeOf(("simple",)), "simple",
        "The server-side assignor of share groups, which ShareGroupDescribe names.", dynamic=False),
    Setting("group.share.max.share.sessions", Whole(1), "2000",
        "Share sessions that a broker has at once, at most."),
    Setting("errors.deadletterqueue.topic.name.prefix", Text(249), "dlq.",
        "What the name of a dead letter queue must begin with; empty: any name is allowed."),
    Setting("errors.deadletterqueue.auto.create.topics.enable", Flag(), "false",
        "Whether brokers create a group's dead letter queue if there is no such topic."),
)  # fmt: skip

_REMOTE = (
    Setting("remote.log.storage.system.enable", Flag(), "false",
        "Whether topics may have remote.storage.enable; needs remote.storage.url. With the "
        "embedded server the default is true.", dynamic=False),
    Setting("log.remote.storage.enable", Flag(), "false",
        "Default of remote.storage.enable, for the topics that can be copied: not those with "
        "cleanup.policy=compact or offset.mode=bytes. With the embedded server it is true."),
    Setting("remote.storage.url", Text(1000), None,
        "Where segments are written: file:///DIR, s3://BUCKET/PREFIX, gs://, az:// or memory:///. "
        "With the embedded server the default is the folder `segments` of the data "
        "directory.", dynamic=False),
    Setting("remote.log.manager.task.interval.ms", long(1), "30000",
        "Interval between two passes of the copy task, in milliseconds."),
    Setting("remote.metadata.snapshot.interval.ms", long(1000), "60000",
        "Interval between two snapshots of topics, configs, users, ACLs and committed offsets."),
    Setting("remote.fetch.max.wait.ms", Whole(1), "500",
        "How long a Fetch waits for the remote store; then its response has no records."),
    Setting("remote.fetch.cache.bytes", long(0), "67108864",
        "Memory of a broker process for parts of segments in an object store.", dynamic=False),
    Setting("fetch.chunk.cache.size", long(0), str(1 << 30),
        "Bytes on the local disk for parts of segments that were read from an object store; its "
        "processes share them. 0 is no such cache; file:///DIR has none.", dynamic=False),
    Setting("fetch.chunk.cache.path", Text(1000), None,
        "Directory of that cache. The default is the folder `chunk-cache` of the data "
        "directory.", dynamic=False),
    Setting("remote.log.manager.copy.max.bytes.per.second", long(1), str(LONG_MAX),
        "Bytes a second that a broker process copies to the remote store."),
    Setting("remote.log.manager.fetch.max.bytes.per.second", long(1), str(LONG_MAX),
        "Bytes a second that a broker process reads from the remote store for consumers."),
    Setting("remote.log.reader.threads", Whole(1, 1000), "10",
        "Reads of the remote store in progress at a time in a broker process.", dynamic=False),
    Setting("remote.log.reader.max.pending.tasks", Whole(1), "100",
        "Reads of the remote store that wait for one of those threads in a broker process. A "
        "fetch that needs one more is KAFKA_STORAGE_ERROR, which consumers retry.", dynamic=False),
    Setting("remote.log.index.file.cache.total.size.bytes", long(1), str(16 << 20),
        "Memory of a broker process for the indexes of segments; one of a segment of 32 MiB has "
        "about 16 KiB."),
    Setting("remote.log.manager.copier.thread.pool.size", Whole(1, 100), "2",
        "Partitions that a broker process copies at a time; each holds a segment in memory."),
    Setting("remote.list.offsets.request.timeout.ms", long(1), "30000",
        "How long ListOffsets waits for the remote store; then the error is REQUEST_TIMED_OUT. "
        "Since version 10 the request has its own time."),
    Setting("log.segment.bytes", Whole(1048576), "1073741824", "Default of segment.bytes."),
    Setting("log.roll.ms", long(1), None, "Default of segment.ms; wins over hours."),
    Setting("log.roll.hours", Whole(1), "168", "Default of segment.ms, in hours."),
    Setting("log.segment.delete.delay.ms", long(0), "60000", "Default of file.delete.delay.ms."),
    Setting("log.local.retention.ms", long(-2), "-2", "Default of local.retention.ms."),
    Setting("log.local.retention.bytes", long(-2), "-2", "Default of local.retention.bytes."),
    Setting("log.remote.copy.lag.ms", long(-1), "0",
        "Default of remote.copy.lag.ms."),
    Setting("log.remote.copy.lag.bytes", long(-1), "-1",
        "Default of remote.copy.lag.bytes."),
    Setting("local.memory.bytes", long(-1), "-1",
        "Bytes of each Redis server: old records of tiered topics leave it early; -1: off. With "
        "the embedded server the default is half of the memory, a quarter if that is below 2 GiB."),
)  # fmt: skip

BOTH = (
    accept("compression.gzip.level", Levels(1, 9), "-1"),
    accept("compression.lz4.level", Whole(1, 17), "9"),
    accept("compression.zstd.level", Whole(-131072, 22), "3"),
    accept("unclean.leader.election.enable", Flag(), "false",
        "Redis Sentinel or Cluster elects: it may promote a replica without the last writes. What "
        "acks=-1 waited for is then lost only with all replicas that had it."),
)  # fmt: skip

_ACCEPTED = (
    *BOTH,
    accept("default.replication.factor", Whole(1, 32_767), "1",
        "Any factor is accepted; 1 is reported, which tools that compare will see. Redis does the "
        "replication."),
    accept("log.cleaner.max.compaction.lag.ms", long(1), LONGEST),
    accept("log.roll.jitter.ms", long(0), None),
    accept("log.roll.jitter.hours", Whole(0), "0"),
    accept("log.index.size.max.bytes", Whole(4), "10485760"),
    accept("log.index.interval.bytes", Whole(0), "4096"),
    accept("log.flush.interval.messages", long(1), LONGEST),
    accept("log.flush.interval.ms", long(0), None),
    accept("log.flush.scheduler.interval.ms", long(0), LONGEST),
    accept("log.preallocate", Flag(), "false"),
    # kafka-reassign-partitions --throttle sets and removes these.
    accept("leader.replication.throttled.rate", long(0), LONGEST),
    accept("follower.replication.throttled.rate", long(0), LONGEST),
    accept("replica.alter.log.dirs.io.max.bytes.per.second", long(0), LONGEST),
    accept("background.threads", Whole(1), "10"),
    accept("num.io.threads", Whole(1), "8"),
    accept("num.network.threads", Whole(1), "3"),
    accept("num.recovery.threads.per.data.dir", Whole(1), "2"),
    accept("num.replica.fetchers", Whole(1), "1"),
    accept("log.cleaner.threads", Whole(0), "1"),
    accept("log.cleaner.io.buffer.size", Whole(0), "524288"),
    accept("log.cleaner.dedupe.buffer.size", long(0), "134217728"),
    accept("log.cleaner.io.buffer.load.factor", _POSITIVE, "0.9"),
    accept("log.cleaner.io.max.bytes.per.second", _POSITIVE, _FASTEST),
    accept("sasl.kerberos.min.time.before.relogin", long(0), "60000"),
    accept("sasl.kerberos.ticket.renew.jitter", Decimal(0, 1), "0.05"),
    accept("sasl.kerberos.ticket.renew.window.factor", Decimal(0, 1), "0.8"),
    accept("offsets.retention.check.interval.ms", long(1), "600000", dynamic=False),
    accept(
        "group.coordinator.rebalance.protocols",
        SomeOf(("classic", "consumer", "share", "streams")),
        "classic,consumer,share,streams",
        "Group protocols served: always all of them.",
        dynamic=False,
    ),
    accept("group.consumer.assignors", SomeOf(("uniform", "range")), "uniform,range",
        "Server-side assignors; the first is the default.", dynamic=False),
    accept(
        "group.consumer.migration.policy",
        OneOf(("disabled", "downgrade", "upgrade", "bidirectional")),
        "bidirectional",
        "Directions in which an empty group may change between the classic and KIP-848 protocol.",
    ),
    accept("transaction.partition.verification.enable", Flag(), "true",
        "Whether a transactional append is refused for a partition outside its transaction."),
)  # fmt: skip


BROKER = table(
    _OURS
    + _TOPICS
    + _SOCKETS
    + _TLS
    + _SASL
    + _COORDINATION
    + _SHARE_GROUPS
    + _STREAMS_GROUPS
    + _AUTHORIZATION
    + _CONSOLE
    + _AVRO
    + _REMOTE
    + _MONITORING
    + _ACCEPTED
)
LISTENER_PREFIX = "listener.name."
"""Prefix of a listener's own value: `listener.name.NAME.SETTING`, the name in lower case."""


def find_broker_setting(name: str) -> Setting:
    """Return the setting of that name, also with the prefix of a listener. Raises ConfigError."""
    if not name.startswith(LISTENER_PREFIX):
        return find_setting(BROKER, name, "setting")
    listener, _, inner = name.removeprefix(LISTENER_PREFIX).partition(".")
    setting = find_setting(BROKER, inner, "setting")
    if not listener or listener != listener.lower():
        raise ConfigError(f"{name} must be {LISTENER_PREFIX}NAME.{inner}, with a lower-case name.")
    if not setting.per_listener:
        raise ConfigError(f"{inner} is not a setting of one listener: set it for the broker.")
    return setting
