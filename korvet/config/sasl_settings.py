"""The broker's settings of SASL, under Kafka's names if Kafka has one."""

from korvet.config.setting import Setting, SomeOf, Text, Whole, Words, long

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
_OAUTH = "sasl.oauthbearer."

ROWS = (
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
