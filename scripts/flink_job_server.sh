#!/usr/bin/env bash
# Starts Apache Flink with Beam's job server in this process, on loopback only, until it is stopped.
#
#   scripts/flink_job_server.sh [PORT]          then: tfr-moe build ... -- --runner=PortableRunner \
#                                                   --job_endpoint=localhost:PORT --environment_type=LOOPBACK
#
# SLOTS (default 2) is the number of task slots, FLINK_VERSION (default 2.0, at least that) the embedded Flink,
# BEAM_VERSION by default that of the Python environment. The jar comes from Maven Central, by mvn, once.
# Exit code 3: no Java 11 or newer, or the jar can't be had; the last line on stderr says which.
set -euo pipefail
cd "$(dirname "$0")/.."

PORT="${1:-8099}"
SLOTS="${SLOTS:-2}"
FLINK_VERSION="${FLINK_VERSION:-2.0}"
PYTHON="${PYTHON:-.venv/bin/python}"

unavailable() {
    echo "$1" >&2
    exit 3
}

command -v java >/dev/null || unavailable "there is no java; Flink needs Java 11 or 17"
BEAM_VERSION="${BEAM_VERSION:-$("$PYTHON" -c 'from importlib.metadata import version; print(version("apache-beam"))')}"

artifact="beam-runners-flink-$FLINK_VERSION-job-server"
jar="${FLINK_JOB_SERVER_JAR:-$HOME/.m2/repository/org/apache/beam/$artifact/$BEAM_VERSION/$artifact-$BEAM_VERSION.jar}"
if [[ ! -f $jar ]]; then
    command -v mvn >/dev/null || unavailable "there is no $jar, and no mvn to fetch it"
    mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get \
        -Dartifact="org.apache.beam:$artifact:$BEAM_VERSION" -Dtransitive=false >&2 ||
        unavailable "Maven can't get org.apache.beam:$artifact:$BEAM_VERSION"
fi
# "Fetch only": what a test asks first.
[[ $PORT == fetch ]] && { echo "$jar"; exit 0; }

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/conf"
cat >"$work/conf/config.yaml" <<YAML
jobmanager: {bind-host: 127.0.0.1, rpc: {address: 127.0.0.1}, memory: {process: {size: 1g}}}
taskmanager: {bind-host: 127.0.0.1, host: 127.0.0.1, numberOfTaskSlots: $SLOTS, memory: {process: {size: 2g}}}
rest: {bind-address: 127.0.0.1, address: 127.0.0.1}
parallelism: {default: $SLOTS}
YAML

# Flink serialises with Kryo, which reaches into the JDK; without these Java 17 refuses it.
opens=()
for package in java.lang java.lang.invoke java.net java.nio java.util java.util.concurrent; do
    opens+=("--add-opens=java.base/$package=ALL-UNNAMED")
done
java "${opens[@]}" -Xmx2g -jar "$jar" --job-host 127.0.0.1 --job-port "$PORT" \
    --artifact-port 0 --expansion-port 0 --artifacts-dir "$work/artifacts" \
    --flink-master "[local]" --flink-conf-dir "$work/conf"
