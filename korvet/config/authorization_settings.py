"""The broker's settings for authorization and audit."""

from korvet.config.setting import Flag, OneOf, Setting, Text, TopicName

KAFKAS_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


ROWS = (
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
