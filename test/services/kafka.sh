# Sourced by ctl: a Kafka broker and controller in one process (KRaft), from the jars on Maven Central.

KAFKA_VERSION=4.4.0
KAFKA_LIBS=$CACHE/kafka-$KAFKA_VERSION

kafka_fetch() {
  [ ! -f "$KAFKA_LIBS/complete" ] || return 0
  command -v java >/dev/null || fail "kafka: there is no java on this machine; install a JRE of version 17 or later"
  command -v mvn >/dev/null || fail "kafka: there is no mvn on this machine; install Maven"
  say "kafka: fetching $KAFKA_VERSION"
  rm -rf "$KAFKA_LIBS"
  mvn -B -q -f "$here/kafka/pom.xml" -Dkafka.version="$KAFKA_VERSION" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$KAFKA_LIBS/libs" >&2 ||
    fail "kafka: Maven could not fetch the jars"
  chmod -R go+rX "$KAFKA_LIBS"
  touch "$KAFKA_LIBS/complete"
}

kafka_java() { # JAVA_OPTION... -- CLASS ARG...   replaces the shell
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  local run=(java "${options[@]}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.awt.headless=true
    -Dlog4j2.configurationFile="$RUN/kafka/log4j2.yaml" -cp "$KAFKA_LIBS/libs/*" "$@")
  if [ "$(id -u)" = 0 ]; then
    exec setsid setpriv --reuid="$SERVICE_USER" --regid="$(id -g "$SERVICE_USER")" --clear-groups env HOME=/tmp "${run[@]}"
  fi
  exec setsid "${run[@]}"
}

kafka_start() {
  local dir=$RUN/kafka conf=$RUN/kafka/server.properties
  cp "$here/kafka/log4j2.yaml" "$dir/"
  {
    cat "$here/kafka/server.properties"
    echo "listeners=PLAINTEXT://127.0.0.1:$(port kafka),CONTROLLER://127.0.0.1:$(port controller)"
    echo "advertised.listeners=PLAINTEXT://127.0.0.1:$(port kafka)"
    echo "controller.quorum.voters=1@127.0.0.1:$(port controller)"
    echo "log.dirs=$(data kafka)"
  } >"$conf"
  if [ ! -f "$(data kafka)/meta.properties" ]; then
    (kafka_java -Xmx128m -- kafka.tools.StorageTool format -t b3V0Ym94ZC10ZXN0LTAwMQ -c "$conf") >"$(log kafka)" 2>&1 9>&- || return 1
  fi
  cd "$(data kafka)"
  (kafka_java -Xms384m -Xmx384m -- kafka.Kafka "$conf") >"$(log kafka)" 2>&1 </dev/null 9>&- &
  echo $! >"$(pid_file kafka)"
  local end=$((SECONDS + 60))
  until kafka_ready; do
    kill -0 "$(pid kafka)" 2>/dev/null || { rm -f "$(pid_file kafka)"; return 1; }
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

# The line comes after the broker is registered, unfenced, and serves its listeners.
kafka_ready() { grep -q 'Kafka Server started' "$(log kafka)" 2>/dev/null && native_running kafka && listens 127.0.0.1 "$(port kafka)"; }
kafka_after_start() { :; }
