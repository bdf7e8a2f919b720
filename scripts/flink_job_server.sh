#!/usr/bin/env bash
# Starts Apache Flink with Beam's job server in this process, until it is stopped.
#
#   scripts/flink_job_server.sh [PORT]          then: tfr-moe build ... -- --runner=PortableRunner \
#                                                   --job_endpoint=localhost:PORT --environment_type=LOOPBACK
#
# The server is Beam's own job server jar of the installed Beam (FLINK_VERSION, default 2.0), or, where Maven
# can't get that jar, the same program put together from its parts in scripts/flink/pom.xml.
# SLOTS (default 2) is the number of task slots; FLINK_JOB_SERVER_JAR names a jar that is there already.
# Exit code 3: no Java 11 or newer, or no job server available; the last line on stderr names the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

PORT="${1:-8099}"
SLOTS="${SLOTS:-2}"
FLINK_VERSION="${FLINK_VERSION:-2.0}"
PYTHON="${PYTHON:-.venv/bin/python}"
DEPENDENCY_PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:3.6.1

unavailable() {
    echo "$1" >&2
    exit 3
}

installed_beam() {
    "$PYTHON" -c 'from importlib.metadata import version; print(version("apache-beam"))'
}

jar_file() {
    local version artifact
    version="${BEAM_VERSION:-$(installed_beam)}"
    artifact="beam-runners-flink-$FLINK_VERSION-job-server"
    echo "$HOME/.m2/repository/org/apache/beam/$artifact/$version/$artifact-$version.jar"
}

# One jar with everything in it.
whole_jar() {
    local jar artifact
    jar="$(jar_file)"
    artifact="$(basename "$(dirname "$(dirname "$jar")")")"
    mvn --batch-mode --quiet "$DEPENDENCY_PLUGIN:get" -Dtransitive=false \
        -Dartifact="org.apache.beam:$artifact:$(basename "$(dirname "$jar")")" &>"$log" && echo "$jar"
}

# The class path of the parts; with --offline, of those that an earlier run left in Maven's repository.
parts() {
    local out="$work/classpath"
    mvn --batch-mode --quiet "$@" --file scripts/flink/pom.xml "$DEPENDENCY_PLUGIN:build-classpath" \
        -DincludeScope=runtime -Dmdep.outputFile="$out" &>"$log" && cat "$out"
}

fetched() {
    [[ -f $(jar_file) ]] && jar_file || parts --offline
}

command -v java >/dev/null || unavailable "there is no java; Flink needs Java 11 or 17"
work="$(mktemp -d)"
log="$work/maven.log"
trap 'rm -rf "$work"' EXIT
classpath="${FLINK_JOB_SERVER_JAR:-}"
if [[ -z $classpath ]]; then
    # Maven runs for seconds: the second compiler of Java would take a quarter of its time.
    export MAVEN_OPTS="${MAVEN_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC}"
    command -v mvn >/dev/null || unavailable "there is no mvn to fetch Flink; or give FLINK_JOB_SERVER_JAR"
    classpath="$(fetched)" || classpath="$(whole_jar)" || classpath="$(parts)" ||
        unavailable "Maven can't get Beam's job server for Flink: $(grep -m1 ERROR "$log" | cut -c1-300)"
fi
# "Fetch only": what a test asks first.
[[ $PORT == fetch ]] && { echo "$classpath"; exit 0; }

mkdir "$work/conf"
cat >"$work/conf/config.yaml" <<YAML
jobmanager: {bind-host: 127.0.0.1, rpc: {address: 127.0.0.1}, memory: {process: {size: 1g}}}
taskmanager: {bind-host: 127.0.0.1, host: 127.0.0.1, numberOfTaskSlots: $SLOTS, memory: {process: {size: 2g}}}
rest: {bind-address: 127.0.0.1, address: 127.0.0.1}
parallelism: {default: $SLOTS}
YAML

# Flink serialises with Kryo, which accesses JDK internals; Java 17 denies that without these options.
opens=()
for package in java.lang java.lang.invoke java.net java.nio java.util java.util.concurrent; do
    opens+=("--add-opens=java.base/$package=ALL-UNNAMED")
done
java "${opens[@]}" -Xmx2g -cp "$classpath" org.apache.beam.runners.flink.FlinkJobServerDriver \
    --job-host 127.0.0.1 --job-port "$PORT" --artifact-port 0 --expansion-port 0 \
    --artifacts-dir "$work/artifacts" --flink-master "[local]" --flink-conf-dir "$work/conf"
