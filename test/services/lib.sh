# Sourced by ctl: names, addresses, folders, and processes known by their pid file.

SERVICES=(kafka postgres15 postgres16 postgres17 postgres18 mysql mariadb1011 mariadb118 mysql-nogtid mysql-nobinlog kafka3 kafka39 kafka-secure)
CLUSTER=(kafka3-1 kafka3-2 kafka3-3) # kafka3 names all of them
REPLICAS=(postgres15-replica postgres16-replica postgres17-replica postgres18-replica)
STANDBYS=(postgres15-standby postgres16-standby postgres17-standby postgres18-standby mysql-standby mariadb118-standby)
OFFSET=${OUTBOXD_TEST_PORT_OFFSET:-0}

fail() { echo "$*" >&2; exit 1; }
say() { echo "$*" >&2; }

check_name() {
  local s
  for s in "${SERVICES[@]}" "${REPLICAS[@]}" "${STANDBYS[@]}" "${CLUSTER[@]}"; do [ "$s" != "$1" ] || return 0; done
  fail "ctl: no service $1; there are: ${SERVICES[*]} ${REPLICAS[*]} ${STANDBYS[*]} ${CLUSTER[*]}"
}

# primary NAME: the server that NAME has its programs, and a standby its data, from.
primary() { local s=${1%-replica}; echo "${s%-standby}"; }

# kind NAME: the prefix of the functions that run the service.
kind() { case $1 in kafka*) echo kafka ;; postgres*) echo postgres ;; *) echo mysql ;; esac; }

# --- addresses ---

port() {
  case $1 in
  kafka) echo $((19092 + OFFSET)) ;;
  kafka39) echo $((19139 + OFFSET)) ;;
  kafka-secure) echo $((19160 + OFFSET)) ;;
  kafka3-*) if [ -e "$RUN/$1/moved" ]; then echo $((19150 + ${1#kafka3-} + OFFSET)); else first_port "$1"; fi ;;
  *-replica) echo $((25430 + OFFSET)) ;;
  mysql-standby) echo $((25436 + OFFSET)) ;;
  mariadb118-standby) echo $((25412 + OFFSET)) ;;
  *-standby) local n=${1#postgres}; echo $((25450 + ${n%-standby} + OFFSET)) ;;
  postgres*) echo $((25400 + ${1#postgres} + OFFSET)) ;;
  mysql) echo $((25433 + OFFSET)) ;;
  mysql-nogtid) echo $((25434 + OFFSET)) ;;
  mysql-nobinlog) echo $((25435 + OFFSET)) ;;
  mariadb1011) echo $((25410 + OFFSET)) ;;
  mariadb118) echo $((25411 + OFFSET)) ;;
  esac
}

controller_port() { case $1 in kafka3-*) echo $((19120 + ${1#kafka3-} + OFFSET)) ;; *) echo $(($(port "$1") + 1)) ;; esac; }
# Of a member of the cluster: its port unless it was moved, that of its second listener, and the one it advertises for that.
first_port() { echo $((19110 + ${1#kafka3-} + OFFSET)); }
port_behind() { echo $((19130 + ${1#kafka3-} + OFFSET)); }
# Of the broker with TLS and logins, by listener.
port_secure() { case $1 in SSL) echo $((19162 + OFFSET)) ;; MTLS) echo $((19163 + OFFSET)) ;; SASL_SSL) echo $((19164 + OFFSET)) ;; SASL_PLAINTEXT) echo $((19165 + OFFSET)) ;; PROXIED) echo $((19166 + OFFSET)) ;; esac; }
port_proxied() { echo $((19140 + ${1#kafka3-} + OFFSET)); }

# variable NAME: the environment variable that holds the service's address.
variable() {
  case $1 in
  kafka3*) [ "$1" = kafka39 ] && echo OUTBOXD_TEST_KAFKA39 || echo OUTBOXD_TEST_KAFKA3 ;;
  *-replica) echo OUTBOXD_TEST_POSTGRES_REPLICA ;;
  *) local v=${1^^}; echo "OUTBOXD_TEST_${v//-/_}" ;;
  esac
}

own_address() {
  case $1 in
  kafka3) local m all=(); for m in "${CLUSTER[@]}"; do all+=("127.0.0.1:$(first_port "$m")"); done; local IFS=,; echo "${all[*]}" ;;
  kafka*) echo "127.0.0.1:$(port "$1")" ;;
  mysql* | mariadb*) echo "mysql://root@127.0.0.1:$(port "$1")/" ;;
  *) echo "postgres://postgres@127.0.0.1:$(port "$1")/postgres" ;;
  esac
}

# external NAME: the environment names a server other than the one ctl would start, so ctl leaves it alone.
external() { local v; v=$(variable "$1"); case $1 in kafka3-*) set -- kafka3 ;; esac; [ -n "${!v:-}" ] && [ "${!v}" != "$(own_address "$1")" ]; }
address() {
  local v; v=$(variable "$1")
  case $1 in kafka3-*) own_address "$1" ;; *) echo "${!v:-$(own_address "$1")}" ;; esac
}
must_own() { ! external "$1" || fail "cannot $2 $1: $(variable "$1") names a server that was not started here"; }

print_env() {
  local s
  for s in "${SERVICES[@]}" "${REPLICAS[0]}" "${STANDBYS[@]}"; do printf "export %s='%s'\n" "$(variable "$s")" "$(address "$s")"; done
  printf 'export OUTBOXD_TEST_KAFKA3_PROXIED='
  for s in "${CLUSTER[@]}"; do printf '127.0.0.1:%d=127.0.0.1:%d,' "$(port_proxied "$s")" "$(port_behind "$s")"; done | sed 's/,$/\n/'
  for s in SSL MTLS SASL_SSL SASL_PLAINTEXT; do printf "export OUTBOXD_TEST_KAFKA_SECURE_%s='127.0.0.1:%d'\n" "$s" "$(port_secure "$s")"; done
  printf "export OUTBOXD_TEST_KAFKA_SECURE_PROXIED='127.0.0.1:%d=127.0.0.1:%d'\n" "$(($(port_secure PROXIED) + 1))" "$(port_secure PROXIED)"
  printf "export OUTBOXD_TEST_KAFKA_SECURE_CERTIFICATES='%s'\n" "$RUN/kafka-secure/certificates"
  printf "export OUTBOXD_TEST_KAFKA_LIBS='%s'\n" "$(kafka_folder kafka)/libs" # the Java client is in there
  printf "export OUTBOXD_TEST_CTL='%s'\n" "$here/ctl"
}

listens() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }

# answers NAME: something accepts connections at the service's address.
answers() {
  local a; a=$(address "$1"); a=${a#*://}; a=${a#*@}; a=${a%%/*}; a=${a%%,*}
  local p=${a##*:}
  if [ "$p" = "$a" ]; then case $1 in postgres*) p=5432 ;; *) p=3306 ;; esac; fi
  listens "${a%:*}" "$p"
}

# await NAME SECONDS CONDITION...: polls until CONDITION holds.
await() {
  local name=$1 end=$((SECONDS + $2)); shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || { say "$name: no answer at $(address "$name")"; return 1; }
    sleep 0.1
  done
}

# --- folders ---

if [ "$(id -u)" = 0 ]; then default_cache=/var/cache/outboxd-test; else default_cache=${XDG_CACHE_HOME:-$HOME/.cache}/outboxd-test; fi
CACHE=$(readlink -m "${OUTBOXD_TEST_CACHE:-$default_cache}")
checkout=$(cd "$here/../.." && pwd)
RUN=$(readlink -m "${OUTBOXD_TEST_RUN:-$CACHE/run/$(basename "$checkout")-$(cksum <<<"$checkout" | cut -d' ' -f1)}")

data() { echo "$RUN/$1/data"; }
log() { echo "$RUN/$1/log"; }

# Postgres refuses to run as root, so root runs all services as an unprivileged user.
if [ "$(id -u)" = 0 ]; then SERVICE_USER=$(id -un postgres 2>/dev/null || echo nobody); else SERVICE_USER=$(id -un); fi
as_service() {
  if [ "$(id -u)" != 0 ]; then "$@"; return; fi
  setpriv --reuid="$SERVICE_USER" --regid="$(id -g "$SERVICE_USER")" --clear-groups env HOME=/tmp "$@"
}

make_folders() { # NAME
  mkdir -p "$(data "$1")"
  if [ "$(id -u)" = 0 ]; then chown "$SERVICE_USER" "$RUN/$1" "$(data "$1")"; fi
  chmod 700 "$(data "$1")"
  as_service test -x "$RUN/$1" || fail "$1: user $SERVICE_USER cannot enter $RUN/$1; set OUTBOXD_TEST_CACHE to a folder it can reach"
}

# locked NAME COMMAND...: one at a time per name. COMMAND must not leave fd 9 to a process that stays.
locked() {
  local name=$1; shift
  mkdir -p "$CACHE" "$RUN"
  ( flock 9; "$@" ) 9>"$CACHE/lock-$name"
}

# --- processes ---
# A service's process is the one in its pid file whose working folder is the service's data folder: a pid that the
# system gave to somebody else meanwhile is never taken for ours.

pid_file() { case $1 in postgres*) echo "$(data "$1")/postmaster.pid" ;; *) echo "$RUN/$1/pid" ;; esac; }
pid() { head -n 1 "$(pid_file "$1")" 2>/dev/null; }
members() { # NAME: pids of all processes that work in the service's data folder
  as_service find /proc/[0-9]*/cwd -maxdepth 0 -lname "$(data "$1")" 2>/dev/null | cut -d/ -f3
}
native_running() {
  local m p
  if [ "$1" = kafka3 ]; then
    for m in "${CLUSTER[@]}"; do native_running "$m" || return 1; done
    return 0
  fi
  p=$(pid "$1") && [ -n "$p" ] && [ "$(as_service readlink "/proc/$p/cwd" 2>/dev/null)" = "$(data "$1")" ]
}
gone() { [ -z "$(members "$1")" ]; }
# dead PID: all its threads have ended, so its ports and locks are free, which comes after its working folder is. Nobody
# may reap it where process 1 is not an init.
dead() {
  local tasks=("/proc/$1/task"/*) state
  [ -e "${tasks[0]}" ] || return 0
  state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return 0
  [ ${#tasks[@]} = 1 ] && [ "${state:0:1}" = Z ]
}

# together COMMAND: for all members of the cluster at the same time; none of them is ready alone.
together() {
  local m p rc=0 pids=()
  for m in "${CLUSTER[@]}"; do "$1" "$m" & pids+=($!); done
  for p in "${pids[@]}"; do wait "$p" || rc=1; done
  return "$rc"
}

native_fetch() { local kind; kind=$(kind "$1"); locked "$kind" "${kind}_fetch" "$(primary "$1")"; }
native_start() { if [ "$1" = kafka3 ]; then together native_start; else locked "$1-$(basename "$RUN")" start_once "$1"; fi; }
start_once() {
  local kind; kind=$(kind "$1")
  if ! native_running "$1"; then
    ! answers "$1" || fail "$1: port $(port "$1") is taken by a process that is not of this checkout ($RUN); stop it or set OUTBOXD_TEST_PORT_OFFSET"
    [ -z "$(members "$1")" ] || end_all "$1"
    native_fetch "$1"
    make_folders "$1"
    "${kind}_start" "$1" || { say "$1 did not start; the end of $(log "$1"):"; tail -n 20 "$(log "$1")" >&2; exit 1; }
  fi
  native_wait "$1"
  "${kind}_after_start" "$1"
}
native_log() { cat "$(log "$1")"; }
native_wait() { if [ "$1" = kafka3 ]; then together native_wait; return; fi; await "$1" 60 "$(kind "$1")_ready" "$1" || exit 1; }

native_stop() {
  if [ "$1" = kafka3 ]; then together native_stop; return; fi
  native_running "$1" || return 0
  local signal=TERM p; p=$(pid "$1")
  case $1 in postgres*) signal=INT ;; esac # fast shutdown
  kill -s "$signal" "$p"
  local end=$((SECONDS + 30))
  until gone "$1" && dead "$p"; do
    [ $SECONDS -lt $end ] || { say "$1: still there 30 s after SIG$signal, so it is killed"; native_kill "$1"; return; }
    sleep 0.05
  done
  rm -f "$(pid_file "$1")"
}

native_kill() {
  if [ "$1" = kafka3 ]; then together native_kill; return; fi
  native_running "$1" || fail "kill $1: it is not running"
  local p; p=$(pid "$1")
  kill -s KILL "$p"
  end_all "$1"
  until dead "$p"; do sleep 0.05; done
}
# end_all NAME: the children of a killed postmaster notice and exit by themselves; one that is stuck is helped.
end_all() {
  local end=$((SECONDS + 5)) p
  until gone "$1"; do
    [ $SECONDS -lt $end ] || for p in $(members "$1"); do kill -s KILL "$p" 2>/dev/null || true; done
    sleep 0.05
  done
  rm -f "$(pid_file "$1")"
}

native_wipe() {
  if [ "$1" = kafka3 ]; then together native_wipe; return; fi
  ! native_running "$1" || fail "wipe $1: it is running; stop it first"
  rm -rf "${RUN:?}/$1"
}
