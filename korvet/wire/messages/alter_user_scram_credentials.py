"""AlterUserScramCredentials (key 51): set or delete users' SCRAM credentials."""

from korvet.wire.schema import Message, Response, i8, i16, i32, request, response


class ScramCredentialDeletion(Message):
    name: str
    mechanism: i8


class ScramCredentialUpsertion(Message):
    name: str
    mechanism: i8
    iterations: i32
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return "ScramCredentialUpsertion(...)"  # it holds a secret


@request(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest(Message):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(Message):
    user: str
    error_code: i16 = 0
    error_message: str | None = None


@response(AlterUserScramCredentialsRequest)
class AlterUserScramCredentialsResponse(Response):
    results: list[AlterUserScramCredentialsResult]
