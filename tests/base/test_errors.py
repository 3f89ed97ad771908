"""Check that the error codes are Kafka's, and each has a separate sentence."""

import kio.schema.errors

from korvet.base.errors import ErrorCode


def test_codes_names_and_retriability_are_those_of_kafka() -> None:
    ours = {(code.value, code.name.lower(), code.retriable) for code in ErrorCode}
    theirs = {(code.value, code.name, code.retriable) for code in kio.schema.errors.ErrorCode}
    assert ours == theirs


def test_each_code_has_its_own_sentence() -> None:
    sentences = [code.message for code in ErrorCode]
    assert len(set(sentences)) == len(sentences)
    assert all(text[0].isupper() or text.startswith("acks") for text in sentences)
    assert all(text.endswith(".") for text in sentences)


def test_a_code_is_an_integer_found_by_its_number() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [int(code) for code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)] == [0, -1]
