#!/usr/bin/env bash
# Run the tests of franz-go's client that need a broker: run.sh [--update]. Needs Go.
here=$(cd "$(dirname "$0")" && pwd)
update=${1:-}
source "$here/../suite.sh"
version=v1.22.3

source=$(go mod download -json "github.com/twmb/franz-go@$version" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
cd "$source/pkg/kgo"
tests=$(grep -l 'newTestClient(' ./*_test.go | xargs grep -ho '^func Test[A-Za-z0-9_]*' | cut -c6- | paste -sd '|')
go test -c -mod=readonly -o "$work/kgo.test" .

broker
export KGO_SEEDS=$brokers KGO_TEST_RF=1 KGO_TEST_RECORDS=20000 KGO_LOG_LEVEL=none
"$work/kgo.test" -test.v -test.timeout 10m -test.run "^($tests)\$" >"$work/suite.log" 2>&1 || true
sed -n 's/^ *--- PASS: \([^ ]*\) .*/\1/p' "$work/suite.log" >"$work/passed"
compare "$work/passed"
