# Sourced by ctl: the same services as containers, where a Docker engine answers.

# backend: native, or compose where an engine answers. OUTBOXD_TEST_BACKEND decides when it is set.
choose_backend() {
  if [ -n "${OUTBOXD_TEST_BACKEND:-}" ]; then
    BACKEND=$OUTBOXD_TEST_BACKEND
  elif command -v docker >/dev/null && timeout 20 docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then
    BACKEND=compose
  else
    BACKEND=native
  fi
  case $BACKEND in native | compose) ;; *) fail "OUTBOXD_TEST_BACKEND=$BACKEND: it is native or compose" ;; esac
}

# backend NAME: the brokers that few tests need are not in compose.yml.
backend() { case $1 in kafka3* | kafka-secure) echo native ;; *) echo "$BACKEND" ;; esac; }

compose() {
  OUTBOXD_TEST_PORT_KAFKA=$(port kafka) OUTBOXD_TEST_PORT_POSTGRES15=$(port postgres15) \
    OUTBOXD_TEST_PORT_POSTGRES16=$(port postgres16) OUTBOXD_TEST_PORT_POSTGRES17=$(port postgres17) \
    OUTBOXD_TEST_PORT_POSTGRES18=$(port postgres18) OUTBOXD_TEST_PORT_REPLICA=$(port postgres15-replica) \
    OUTBOXD_TEST_PORT_MYSQL=$(port mysql) OUTBOXD_TEST_PORT_MYSQL_NOGTID=$(port mysql-nogtid) \
    OUTBOXD_TEST_PORT_MYSQL_NOBINLOG=$(port mysql-nobinlog) OUTBOXD_TEST_PORT_MARIADB1011=$(port mariadb1011) \
    OUTBOXD_TEST_PORT_MARIADB118=$(port mariadb118) \
    docker compose -p "outboxd-test-$(cksum <<<"$RUN" | cut -d' ' -f1)" -f "$here/compose.yml" "$@"
}

compose_fetch() { compose pull -q "$1" >&2; }
compose_log() { compose logs --no-log-prefix "$1"; }
compose_running() { [ -n "$(compose ps -q --status running "$1" 2>/dev/null)" ]; }
compose_start() {
  compose up -d --wait "$1" >&2 || { compose logs --tail 20 "$1" >&2; fail "$1: the container did not become healthy"; }
  case $1 in
  postgres*) compose exec -T "$1" psql -XAtq -v ON_ERROR_STOP=1 -h 127.0.0.1 -U postgres -d postgres -f /etc/outboxd/roles.sql >&2 ;;
  mysql*) compose exec -T "$1" mysql -u root -e 'SOURCE /etc/outboxd/users.sql' >&2 ;;
  mariadb*) compose exec -T "$1" mariadb -u root -e 'SOURCE /etc/outboxd/users.sql' >&2 ;;
  esac
}
compose_wait() { compose up -d --wait "$1" >&2; }
compose_stop() { compose stop -t 30 "$1" >&2; }
compose_kill() { compose kill "$1" >&2; }
compose_wipe() { compose rm -f -s -v "$1" >&2; }
