"""Kafka's error codes: number, retriable or not, and a message in Korvet's words.

The message describes the fault from the client's side; a handler may give a more exact one.
`lua/lib/codes.lua` has the same numbers for the scripts, and a test keeps the two equal.
"""

from enum import IntEnum
from typing import Self


class ErrorCode(IntEnum):
    """A Kafka error: an integer on the wire, with `retriable` and `message`."""

    retriable: bool
    message: str

    # The defaults are for type checkers: they take ErrorCode(3), a lookup, for a construction.
    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = (-1, False, "The broker failed with an unexpected error.")
    NONE = (0, False, "No error.")
    OFFSET_OUT_OF_RANGE = (1, False, "The offset is outside the partition's log.")
    CORRUPT_MESSAGE = (2, True, "A record batch failed its checksum or is malformed.")
    UNKNOWN_TOPIC_OR_PARTITION = (3, True, "The topic or partition does not exist.")
    INVALID_FETCH_SIZE = (4, False, "The requested fetch size is invalid.")
    LEADER_NOT_AVAILABLE = (5, True, "The partition has no leader at the moment.")
    NOT_LEADER_OR_FOLLOWER = (6, True, "Another broker serves this partition.")
    REQUEST_TIMED_OUT = (7, True, "The request was not completed within its time limit.")
    BROKER_NOT_AVAILABLE = (8, False, "The broker cannot be reached.")
    REPLICA_NOT_AVAILABLE = (9, True, "A replica of the partition cannot be reached.")
    MESSAGE_TOO_LARGE = (10, False, "The record batch is larger than the broker accepts.")
    STALE_CONTROLLER_EPOCH = (11, False, "The controller has moved to a later epoch.")
    OFFSET_METADATA_TOO_LARGE = (12, False, "The metadata of a committed offset is too long.")
    NETWORK_EXCEPTION = (13, True, "The connection closed before the response.")
    COORDINATOR_LOAD_IN_PROGRESS = (14, True, "The coordinator is still loading its state.")
    COORDINATOR_NOT_AVAILABLE = (15, True, "No coordinator is available at the moment.")
    NOT_COORDINATOR = (16, True, "Another broker coordinates this group or transaction.")
    INVALID_TOPIC_EXCEPTION = (17, False, "The topic name is invalid or reserved.")
    RECORD_LIST_TOO_LARGE = (18, False, "The records do not fit into one log segment.")
    NOT_ENOUGH_REPLICAS = (19, True, "Too few replicas are in sync to accept the write.")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records were written, but reached too few replicas.",
    )
    INVALID_REQUIRED_ACKS = (21, False, "acks must be 0, 1 or -1.")
    ILLEGAL_GENERATION = (22, False, "The member's generation is not the group's.")
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        False,
        "The member has no protocol in common with the group.",
    )
    INVALID_GROUP_ID = (24, False, "The group id is empty or invalid.")
    UNKNOWN_MEMBER_ID = (25, False, "The group has no such member.")
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout is outside the broker's limits.",
    )
    REBALANCE_IN_PROGRESS = (27, False, "The group is rebalancing; the member must rejoin.")
    INVALID_COMMIT_OFFSET_SIZE = (28, False, "The committed offset is too large.")
    TOPIC_AUTHORIZATION_FAILED = (29, False, "Not allowed on this topic.")
    GROUP_AUTHORIZATION_FAILED = (30, False, "Not allowed on this group.")
    CLUSTER_AUTHORIZATION_FAILED = (31, False, "Not allowed on this cluster.")
    INVALID_TIMESTAMP = (32, False, "A record's timestamp is outside the accepted range.")
    UNSUPPORTED_SASL_MECHANISM = (33, False, "The broker does not offer this SASL mechanism.")
    ILLEGAL_SASL_STATE = (34, False, "The request is invalid in this authentication state.")
    UNSUPPORTED_VERSION = (35, False, "This version of the API is not served.")
    TOPIC_ALREADY_EXISTS = (36, False, "A topic of that name already exists.")
    INVALID_PARTITIONS = (37, False, "The number of partitions is invalid.")
    INVALID_REPLICATION_FACTOR = (38, False, "The replication factor cannot be satisfied.")
    INVALID_REPLICA_ASSIGNMENT = (39, False, "The replica assignment is invalid.")
    INVALID_CONFIG = (40, False, "A configuration value is invalid.")
    NOT_CONTROLLER = (41, True, "Another broker is the controller.")
    INVALID_REQUEST = (42, False, "The request contradicts itself or lacks a required part.")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        False,
        "The format of the stored records does not allow this.",
    )
    POLICY_VIOLATION = (44, False, "A policy of the broker forbids this.")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "The batch does not follow the last one of its producer.",
    )
    DUPLICATE_SEQUENCE_NUMBER = (46, False, "The producer sent this batch before.")
    INVALID_PRODUCER_EPOCH = (47, False, "A newer producer of the same id has taken over.")
    INVALID_TXN_STATE = (48, False, "The transaction is not in a state that allows this.")
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "The producer id is not the one of the transactional id.",
    )
    INVALID_TRANSACTION_TIMEOUT = (50, False, "The transaction timeout exceeds the limit.")
    CONCURRENT_TRANSACTIONS = (51, True, "Another change of the transaction is in progress.")
    TRANSACTION_COORDINATOR_FENCED = (52, False, "A later coordinator has taken over.")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False, "Not allowed on this transactional id.")
    SECURITY_DISABLED = (54, False, "Security features are disabled.")
    OPERATION_NOT_ATTEMPTED = (55, False, "Not attempted: another part of the request failed.")
    KAFKA_STORAGE_ERROR = (56, True, "The storage could not be read or written.")
    LOG_DIR_NOT_FOUND = (57, False, "There is no such log directory.")
    SASL_AUTHENTICATION_FAILED = (58, False, "The credentials were refused.")
    UNKNOWN_PRODUCER_ID = (59, False, "The partition has no state for this producer id.")
    REASSIGNMENT_IN_PROGRESS = (60, False, "The partition is already being reassigned.")
    DELEGATION_TOKEN_AUTH_DISABLED = (61, False, "Delegation tokens are disabled.")
    DELEGATION_TOKEN_NOT_FOUND = (62, False, "There is no such delegation token.")
    DELEGATION_TOKEN_OWNER_MISMATCH = (63, False, "The delegation token has another owner.")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation tokens cannot be requested on this connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, False, "Not allowed on this delegation token.")
    DELEGATION_TOKEN_EXPIRED = (66, False, "The delegation token has expired.")
    INVALID_PRINCIPAL_TYPE = (67, False, "The principal type is not supported.")
    NON_EMPTY_GROUP = (68, False, "The group still has members.")
    GROUP_ID_NOT_FOUND = (69, False, "There is no such group.")
    FETCH_SESSION_ID_NOT_FOUND = (70, True, "There is no such fetch session.")
    INVALID_FETCH_SESSION_EPOCH = (71, True, "The fetch session is in another epoch.")
    LISTENER_NOT_FOUND = (72, True, "The leader has no listener of the kind the client used.")
    TOPIC_DELETION_DISABLED = (73, False, "Deleting topics is disabled.")
    FENCED_LEADER_EPOCH = (74, True, "The leader epoch is older than the broker's.")
    UNKNOWN_LEADER_EPOCH = (75, True, "The leader epoch is newer than the broker's.")
    UNSUPPORTED_COMPRESSION_TYPE = (76, False, "The client cannot read this compression type.")
    STALE_BROKER_EPOCH = (77, False, "The broker has registered again since.")
    OFFSET_NOT_AVAILABLE = (78, True, "The new leader does not know its end offset yet.")
    MEMBER_ID_REQUIRED = (79, False, "Join again with the member id in this response.")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True, "The preferred leader is not available.")
    GROUP_MAX_SIZE_REACHED = (81, False, "The group has the maximum number of members.")
    FENCED_INSTANCE_ID = (82, False, "Another member has taken this static instance id.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True, "No replica may become leader now.")
    ELECTION_NOT_NEEDED = (84, True, "The partition has the wanted leader already.")
    NO_REASSIGNMENT_IN_PROGRESS = (85, False, "The partition is not being reassigned.")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False, "A member of the group still reads this topic.")
    INVALID_RECORD = (87, False, "A record is invalid; the batch was rejected.")
    UNSTABLE_OFFSET_COMMIT = (88, True, "An open transaction holds a commit on this partition.")
    THROTTLING_QUOTA_EXCEEDED = (89, True, "The quota is used up for now.")
    PRODUCER_FENCED = (90, False, "A newer producer uses this transactional id.")
    RESOURCE_NOT_FOUND = (91, False, "The request names something that does not exist.")
    DUPLICATE_RESOURCE = (92, False, "The request names the same thing twice.")
    UNACCEPTABLE_CREDENTIAL = (93, False, "The credential does not meet the requirements.")
    INCONSISTENT_VOTER_SET = (94, False, "The two sides disagree about the set of voters.")
    INVALID_UPDATE_VERSION = (95, False, "The update names the wrong version.")
    FEATURE_UPDATE_FAILED = (96, False, "The feature could not be updated.")
    PRINCIPAL_DESERIALIZATION_FAILURE = (97, False, "The forwarded principal cannot be read.")
    SNAPSHOT_NOT_FOUND = (98, False, "There is no such snapshot.")
    POSITION_OUT_OF_RANGE = (99, False, "The position is outside the snapshot.")
    UNKNOWN_TOPIC_ID = (100, True, "No topic has this id.")
    DUPLICATE_BROKER_REGISTRATION = (101, False, "The broker id is already registered.")
    BROKER_ID_NOT_REGISTERED = (102, False, "No broker of that id is registered.")
    INCONSISTENT_TOPIC_ID = (103, True, "The topic has another id in the log than in the request.")
    INCONSISTENT_CLUSTER_ID = (104, False, "The request belongs to another cluster.")
    TRANSACTIONAL_ID_NOT_FOUND = (105, False, "There is no such transactional id.")
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True, "The fetch session mixes topic names and ids.")
    INELIGIBLE_REPLICA = (107, False, "The replica may not join the in-sync set.")
    NEW_LEADER_ELECTED = (108, False, "The change made another replica the leader.")
    OFFSET_MOVED_TO_TIERED_STORAGE = (109, False, "The offset has moved to tiered storage.")
    FENCED_MEMBER_EPOCH = (110, False, "The member's epoch is older than the group's; rejoin.")
    UNRELEASED_INSTANCE_ID = (111, False, "Another live member holds this static instance id.")
    UNSUPPORTED_ASSIGNOR = (112, False, "The broker does not have this assignor.")
    STALE_MEMBER_EPOCH = (113, False, "The member's epoch is out of date: retry with the new one.")
    MISMATCHED_ENDPOINT_TYPE = (114, False, "The endpoint is not of the requested type.")
    UNSUPPORTED_ENDPOINT_TYPE = (115, False, "The endpoint type is unknown.")
    UNKNOWN_CONTROLLER_ID = (116, False, "The controller is unknown.")
    UNKNOWN_SUBSCRIPTION_ID = (117, False, "The telemetry subscription is out of date.")
    TELEMETRY_TOO_LARGE = (118, False, "The telemetry is larger than the broker accepts.")
    INVALID_REGISTRATION = (119, False, "The broker registration is invalid.")
    TRANSACTION_ABORTABLE = (120, False, "The transaction can only be aborted now.")
    INVALID_RECORD_STATE = (121, False, "The shared record is not in a state that allows this.")
    SHARE_SESSION_NOT_FOUND = (122, True, "There is no such share session.")
    INVALID_SHARE_SESSION_EPOCH = (123, True, "The share session is in another epoch.")
    FENCED_STATE_EPOCH = (124, False, "The state epoch of the share group is out of date.")
    INVALID_VOTER_KEY = (125, False, "The voter key is not the one expected.")
    DUPLICATE_VOTER = (126, False, "The voter is already in the set.")
    VOTER_NOT_FOUND = (127, False, "There is no such voter.")
    INVALID_REGULAR_EXPRESSION = (128, False, "The regular expression cannot be used.")
    REBOOTSTRAP_REQUIRED = (129, False, "The client must start over from its bootstrap servers.")
    STREAMS_INVALID_TOPOLOGY = (130, False, "The streams topology is invalid.")
    STREAMS_INVALID_TOPOLOGY_EPOCH = (131, False, "The topology epoch is invalid.")
    STREAMS_TOPOLOGY_FENCED = (132, False, "A newer topology has replaced this one.")
    SHARE_SESSION_LIMIT_REACHED = (133, True, "No further share session can be opened.")


TOPIC_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""A script's error if the topic was deleted, or deleted and created again."""
