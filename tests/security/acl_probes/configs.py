"""Probes of APIs that describe and change configs."""

from korvet.wire.messages import alter_configs as ac
from korvet.wire.messages import describe_configs as dco
from korvet.wire.messages import incremental_alter_configs as iac
from korvet.wire.messages import list_config_resources as lcr
from tests.security.acl_probes.registry import probe


def register() -> None:
    """Register the probes."""
    kinds = {
        "topic t1": (2, "t1", "topic=t1:{}"),
        "topic t2": (2, "t2", "topic=t2:{}"),
        "broker": (4, "1", "cluster=kafka-cluster:{}"),
        "group": (32, "g1", "group=g1:{}"),
    }
    for label, (kind, name, needed) in kinds.items():
        probe(
            f"DescribeConfigs 4 {label}",
            4,
            dco.DescribeConfigsRequest(
                resources=[
                    dco.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=None
                    )
                ]
            ),
            needed.format("describe_configs"),
        )
        probe(
            f"AlterConfigs 2 {label}",
            2,
            ac.AlterConfigsRequest(
                resources=[
                    ac.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
                ],
                validate_only=True,
            ),
            needed.format("alter_configs"),
        )
        probe(
            f"IncrementalAlterConfigs 1 {label}",
            1,
            iac.IncrementalAlterConfigsRequest(
                resources=[
                    iac.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
                ],
                validate_only=True,
            ),
            needed.format("alter_configs"),
        )
    probe(
        "ListConfigResources 1",
        1,
        lcr.ListConfigResourcesRequest(),
        "cluster=kafka-cluster:describe_configs",
    )
