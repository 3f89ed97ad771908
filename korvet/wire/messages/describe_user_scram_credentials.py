"""DescribeUserScramCredentials (key 50): the SCRAM mechanisms of users, without secrets."""

from korvet.wire.schema import ErrorResponse, Message, i8, i16, i32, request, response


class UserName(Message):
    name: str


@request(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None


class CredentialInfo(Message):
    mechanism: i8
    iterations: i32


class DescribeUserScramCredentialsResult(Message):
    user: str
    error_code: i16 = 0
    error_message: str | None = None
    credential_infos: list[CredentialInfo]


@response(DescribeUserScramCredentialsRequest)
class DescribeUserScramCredentialsResponse(ErrorResponse):
    results: list[DescribeUserScramCredentialsResult]
