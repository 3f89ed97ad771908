"""Probes of APIs of the cluster."""

from korvet.wire.messages import alter_client_quotas as acq
from korvet.wire.messages import alter_partition_reassignments as apr
from korvet.wire.messages import alter_replica_log_dirs as arl
from korvet.wire.messages import alter_user_scram_credentials as aus
from korvet.wire.messages import api_versions as av
from korvet.wire.messages import create_acls as ca
from korvet.wire.messages import delete_acls as da
from korvet.wire.messages import describe_acls as dac
from korvet.wire.messages import describe_client_quotas as dcq
from korvet.wire.messages import describe_cluster as dc
from korvet.wire.messages import describe_log_dirs as dl
from korvet.wire.messages import describe_quorum as dq
from korvet.wire.messages import describe_user_scram_credentials as dus
from korvet.wire.messages import elect_leaders as el
from korvet.wire.messages import list_partition_reassignments as lpr
from korvet.wire.messages import sasl_handshake as sh
from korvet.wire.messages import update_features as uf
from tests.security.acl_probes.registry import probe
from tests.security.acl_rules import ANY_ACL


def register() -> None:
    """Register the probes."""
    cluster = "cluster=kafka-cluster"
    describe, alter = f"{cluster}:describe", f"{cluster}:alter"
    some = [("t1", 0), ("t2", 0)]
    never = {**ANY_ACL, "principal_filter": "User:unknown"}
    probe("DescribeAcls 3", 3, dac.DescribeAclsRequest(**never), describe)
    probe(
        "DeleteAcls 3",
        3,
        da.DeleteAclsRequest(filters=[da.DeleteAclsFilter(**never)] * 2),
        alter,
    )
    broken = ca.AclCreation(
        resource_type=2,
        resource_name="",
        principal="User:unknown",
        host="*",
        operation=3,
        permission_type=3,
    )
    probe("CreateAcls 3", 3, ca.CreateAclsRequest(creations=[broken, broken]), alter)
    probe(
        "DescribeClientQuotas 1",
        1,
        dcq.DescribeClientQuotasRequest(components=[], strict=False),
        f"{cluster}:describe_configs",
    )
    probe(
        "AlterClientQuotas 1",
        1,
        acq.AlterClientQuotasRequest(
            entries=[
                acq.EntryData(
                    entity=[acq.EntityData(entity_type="user", entity_name="alice")],
                    ops=[acq.OpData(key="producer_byte_rate", value=1.0, remove=False)],
                )
            ],
            validate_only=True,
        ),
        f"{cluster}:alter_configs",
    )
    probe(
        "DescribeUserScramCredentials 0",
        0,
        dus.DescribeUserScramCredentialsRequest(users=[dus.UserName(name="alice")]),
        describe,
    )
    probe(
        "AlterUserScramCredentials 0",
        0,
        aus.AlterUserScramCredentialsRequest(
            deletions=[aus.ScramCredentialDeletion(name="alice", mechanism=1)], upsertions=[]
        ),
        alter,
    )
    probe(
        "DescribeQuorum 1",
        1,
        dq.DescribeQuorumRequest(
            topics=[
                dq.TopicData(
                    topic_name="__cluster_metadata",
                    partitions=[dq.PartitionData(partition_index=0)],
                )
            ]
        ),
        describe,
    )
    probe("UpdateFeatures 1", 1, uf.UpdateFeaturesRequest(feature_updates=[]), alter)
    for bits in (True, False):
        probe(
            f"DescribeCluster 1 {'with' if bits else 'without'} bits",
            1,
            dc.DescribeClusterRequest(include_cluster_authorized_operations=bits),
            describe,
        )
    probe(
        "ElectLeaders 2",
        2,
        el.ElectLeadersRequest(
            topic_partitions=[el.TopicPartitions(topic=name, partitions=[n]) for name, n in some]
        ),
        alter,
        "topic=t1",
    )
    probe(
        "AlterPartitionReassignments 0",
        0,
        apr.AlterPartitionReassignmentsRequest(
            topics=[
                apr.ReassignableTopic(
                    name=name,
                    partitions=[apr.ReassignablePartition(partition_index=n, replicas=None)],
                )
                for name, n in some
            ]
        ),
        alter,
        "topic=t1",
    )
    probe("ListPartitionReassignments 0", 0, lpr.ListPartitionReassignmentsRequest(), describe)
    probe(
        "DescribeLogDirs 4",
        4,
        dl.DescribeLogDirsRequest(topics=[dl.TopicPartitions(topic="t1", partitions=[0])]),
        describe,
    )
    probe(
        "AlterReplicaLogDirs 2",
        2,
        arl.AlterReplicaLogDirsRequest(
            dirs=[
                arl.AlterReplicaLogDir(
                    path="/unknown",
                    topics=[arl.NamedPartitions(name="t1", partitions=[0])],
                )
            ]
        ),
        alter,
    )
    probe(
        "ApiVersions 3",
        3,
        av.ApiVersionsRequest(client_software_name="t", client_software_version="1"),
        "",
        cluster,
    )
    probe("SaslHandshake 1", 1, sh.SaslHandshakeRequest(mechanism="PLAIN"), "", cluster)
