#!/usr/bin/env bash
# Run kafka-python's integration tests: run.sh [--update]. Needs Python with pip.
here=$(cd "$(dirname "$0")" && pwd)
update=${1:-}
source "$here/../suite.sh"
version=3.0.12

cd "$work"
[ -x venv/bin/python ] || "$python" -m venv venv
venv/bin/pip install -q 'setuptools>=77' pytest pytest-mock pytest-timeout py python-snappy lz4 zstandard
[ -f "kafka_python-$version.tar.gz" ] ||
  venv/bin/pip download -q --no-deps --no-build-isolation --no-binary kafka-python "kafka-python==$version"
rm -rf source && mkdir source
tar xf "kafka_python-$version.tar.gz" -C source --strip-components 1
cd source
# The sdist lacks the modules that start Kafka: with KAFKA_URI only this class is used.
touch test/__init__.py
cat >test/service.py <<'END'
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass


SpawnedService = ExternalService
END

# The settings of kafka-python's own brokers.
broker --set num.partitions=4 --set group.min.session.timeout.ms=1000 \
  --set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer \
  --set super.users=User:ANONYMOUS
export KAFKA_URI=kafka://${brokers%%,*} KAFKA_VERSION=4.3.0 KAFKA_ROOT=$work
../venv/bin/python -m pytest -rA -p no:logging --timeout 60 --timeout-method signal test/integration \
  >"$work/suite.log" 2>&1 || true
sed -n 's/^PASSED //p' "$work/suite.log" >"$work/passed"
compare "$work/passed"
