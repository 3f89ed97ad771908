"""The broker's settings for authorization and audit."""

from korvet.config.setting import Flag, OneOf, Setting, Text

KAFKAS_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ROWS = (
    Setting(
        "authorizer.class.name",
        OneOf(("", "korvet", KAFKAS_AUTHORIZER)),
        "",
        "Empty allows every client everything; `korvet`, or the name of Kafka's authorizer, allows "
        "what ACL rules allow.",
        dynamic=False,
    ),
    Setting(
        "super.users",
        Text(65536),
        "",
        "Principals that may do everything, separated by semicolons, such as `User:admin`.",
        dynamic=False,
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        Flag(),
        "false",
        "Whether a resource that no ACL rule names is open to everyone.",
        dynamic=False,
    ),
    Setting(
        "audit.log.allowed",
        Flag(),
        "false",
        "Whether allowed requests are audited too, at a cost. Denied ones always are.",
        dynamic=False,
    ),
)
