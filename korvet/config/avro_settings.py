"""Settings of Avro, under the names of Confluent's clients if they have one."""

from korvet.config.setting import Setting, Text

ROWS = (
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
