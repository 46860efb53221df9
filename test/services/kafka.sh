# Sourced by ctl: Kafka brokers that are controllers too (KRaft), from the jars on Maven Central.

kafka_version() { case $1 in kafka39) echo 3.9.2 ;; *) echo 4.4.0 ;; esac; }
kafka_folder() { echo "$CACHE/kafka-$(kafka_version "$1")"; }

kafka_fetch() {
  local folder version; folder=$(kafka_folder "$1"); version=$(kafka_version "$1")
  [ ! -f "$folder/complete" ] || return 0
  command -v java >/dev/null || fail "kafka: there is no java on this machine; install a JRE of version 17 or later"
  command -v mvn >/dev/null || fail "kafka: there is no mvn on this machine; install Maven"
  say "kafka: fetching $version"
  rm -rf "$folder"
  # Kafka 3.9 brings the binding of another logger.
  mvn -B -q -f "$here/kafka/pom.xml" -Dkafka.version="$version" \
    dependency:copy-dependencies -DincludeScope=runtime -DexcludeArtifactIds=slf4j-reload4j -DoutputDirectory="$folder/libs" >&2 ||
    fail "kafka: Maven could not fetch the jars"
  chmod -R go+rX "$folder"
  touch "$folder/complete"
}

kafka_java() { # NAME JAVA_OPTION... -- CLASS ARG...   replaces the shell
  local name=$1 options=(); shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  local run=(java "${options[@]}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.awt.headless=true
    -Dlog4j2.configurationFile="$RUN/$name/log4j2.properties" -cp "$(kafka_folder "$name")/libs/*" "$@")
  if [ "$(id -u)" = 0 ]; then
    exec setsid setpriv --reuid="$SERVICE_USER" --regid="$(id -g "$SERVICE_USER")" --clear-groups env HOME=/tmp "${run[@]}"
  fi
  exec setsid "${run[@]}"
}

# A member of the cluster, and the secured broker, has one more listener, whose advertised address nobody
# listens at but a proxy of the test that wants one.
kafka_settings() { # NAME
  local node=1 at voters behind='' advertised m
  case $1 in kafka3-*) node=${1#kafka3-} ;; esac
  at=PLAINTEXT://127.0.0.1:$(port "$1")
  voters=1@127.0.0.1:$(controller_port "$1")
  if [ "$1" = "kafka3-$node" ]; then
    cat "$here/kafka/cluster.properties"
    voters=
    for m in "${CLUSTER[@]}"; do voters+=${voters:+,}${m#kafka3-}@127.0.0.1:$(controller_port "$m"); done
  fi
  if [ "$1" = kafka-secure ]; then
    cat "$here/kafka/secure.properties"
    echo "ssl.keystore.location=$RUN/$1/certificates/broker.pem"
    echo "ssl.truststore.location=$RUN/$1/certificates/ca.pem"
    for m in SSL MTLS SASL_SSL SASL_PLAINTEXT; do at+=,$m://127.0.0.1:$(port_secure $m); done
  fi
  echo "node.id=$node"
  case $1 in kafka3-*) behind=$(port_behind "$1") advertised=$(port_proxied "$1") ;; kafka-secure) behind=$(port_secure PROXIED) advertised=$((behind + 1)) ;; esac
  echo "listeners=$at,CONTROLLER://127.0.0.1:$(controller_port "$1")${behind:+,PROXIED://127.0.0.1:$behind}"
  echo "advertised.listeners=$at${behind:+,PROXIED://127.0.0.1:$advertised}"
  echo "controller.quorum.voters=$voters"
  echo "log.dirs=$(data "$1")"
}

# kafka_certificates FOLDER: an authority, and a certificate of it for the broker. Tests make those of clients.
kafka_certificates() (
  [ ! -f "$1/broker.pem" ] || return 0
  command -v openssl >/dev/null || fail "kafka-secure: there is no openssl on this machine"
  mkdir -p "$1" && cd "$1" || return 1
  exec >/dev/null 2>&1
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj '/CN=test authority' -keyout ca.key -out ca.pem \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign &&
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=test broker' -keyout broker.key -out broker.csr &&
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' >broker.ext &&
    openssl x509 -req -in broker.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile broker.ext -out broker.crt &&
    cat broker.key broker.crt >broker.new && chmod 644 broker.new && mv broker.new broker.pem
)

kafka_start() {
  local dir=$RUN/$1 conf=$RUN/$1/server.properties heap=384m
  [ "$1" != kafka-secure ] || kafka_certificates "$dir/certificates" || { say "kafka-secure: openssl could not make the certificates"; return 1; }
  case $1 in kafka3-*) heap=256m ;; esac
  cp "$here/kafka/log4j2.properties" "$dir/"
  { cat "$here/kafka/server.properties"; kafka_settings "$1"; } >"$conf"
  if [ ! -f "$(data "$1")/meta.properties" ]; then
    (kafka_java "$1" -Xmx128m -- kafka.tools.StorageTool format -t b3V0Ym94ZC10ZXN0LTAwMQ -c "$conf") >"$(log "$1")" 2>&1 9>&- || return 1
  fi
  cd "$(data "$1")"
  (kafka_java "$1" -Xms$heap -Xmx$heap -- kafka.Kafka "$conf") >"$(log "$1")" 2>&1 </dev/null 9>&- &
  echo $! >"$(pid_file "$1")"
  local end=$((SECONDS + 60))
  until kafka_ready "$1"; do
    kill -0 "$(pid "$1")" 2>/dev/null || { rm -f "$(pid_file "$1")"; return 1; }
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

# The line comes after the broker is registered, unfenced, and serves its listeners.
kafka_ready() { grep -q 'Kafka Server started' "$(log "$1")" 2>/dev/null && native_running "$1" && listens 127.0.0.1 "$(port "$1")"; }
kafka_after_start() { :; }

# native_move NAME: starts a member anew at its other port; the next time it is back at the first.
native_move() {
  native_stop "$1"
  if [ -e "$RUN/$1/moved" ]; then rm "$RUN/$1/moved"; else touch "$RUN/$1/moved"; fi
  native_start "$1"
}
