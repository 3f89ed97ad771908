#!/bin/sh
# Print where a partition's log starts and ends, with nothing but redis-cli.
#
#   korvet scripts export scripts
#   ./offsets.sh orders 0 -u redis://localhost:6379        # the options are redis-cli's
#
# The reply's elements are named in scripts/contract.json, under "log.list_offsets", "returns".
set -eu
key="korvet:$1:$2"
shift 2
exec "${REDIS_CLI:-redis-cli}" "$@" --eval scripts/log.list_offsets.lua "$key" "{$key}:log" , ''
