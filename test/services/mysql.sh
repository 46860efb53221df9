# Sourced by ctl: MySQL and MariaDB servers, from Debian's packages.

mysql_root() {
  case $1 in
  mysql*) echo "$CACHE/mysql" ;;
  mariadb1011*) echo "$CACHE/mariadb-10.11" ;;
  mariadb118*) echo "$CACHE/mariadb-11.8" ;;
  esac
}

# Debian has a current MySQL in sid alone, which rolls: what it offers at the time of the fetch is taken.
mysql_fetch() { # NAME
  local root; root=$(mysql_root "$1")
  [ ! -f "$root/complete" ] || return 0
  rm -rf "$root"
  mkdir -p "$root"
  case $1 in
  mysql*)
    debian_fetch "$1" "$root" sid 8.4 mysql-server-core mysql-client-core
    debian_programs "$root" usr/sbin/mysqld usr/bin/mysql usr/bin/mysqladmin usr/bin/mysqlbinlog usr/bin/mysqldump ;;
  mariadb1011) debian_fetch "$1" "$root" bookworm 10.11 mariadb-server-core mariadb-client-core ;;
  mariadb118) debian_fetch "$1" "$root" trixie 11.8 mariadb-server-core mariadb-client-core ;;
  esac
  case $1 in mariadb*) debian_programs "$root" usr/sbin/mariadbd usr/bin/mariadb ;; esac
  chmod -R go+rX "$root"
  touch "$root/complete"
}

mysql_server() { # NAME OPTION...   replaces the shell
  local name=$1 root share program=mysqld; root=$(mysql_root "$1"); shift
  case $name in mariadb*) program=mariadbd ;; esac
  share=$root/usr/share/mariadb
  [ -d "$share" ] || share=$root/usr/share/mysql
  local run=("$root/run/$program" --defaults-file="$RUN/$name/my.cnf" --basedir="$root/usr" --datadir="$(data "$name")"
    --lc-messages-dir="$share" --character-sets-dir="$share/charsets" --plugin-dir="$root/usr/lib/mysql/plugin" "$@")
  cd "$(data "$name")"
  if [ "$(id -u)" = 0 ]; then
    exec setsid setpriv --reuid="$SERVICE_USER" --regid="$(id -g "$SERVICE_USER")" --clear-groups env HOME=/tmp "${run[@]}"
  fi
  exec setsid "${run[@]}"
}

mysql_start() { # NAME
  local dir=$RUN/$1 kind=${1%%[0-9-]*}
  cat "$here/mysql/server.cnf" "$here/mysql/$kind.cnf" >"$dir/my.cnf"
  local own=$here/mysql/${1%-standby}.cnf # a standby is as its primary is, and a test has it follow that
  [ ! -f "$own" ] || [ "$own" = "$here/mysql/$kind.cnf" ] || cat "$own" >>"$dir/my.cnf"
  cp "$here/mysql/users.sql" "$dir/"
  if [ ! -f "$dir/initialized" ]; then
    find "$(data "$1")" -mindepth 1 -delete
    "${kind}_initialize" "$1" >"$(log "$1")" 2>&1 9>&- || return 1
    touch "$dir/initialized"
  fi
  # What a killed server left: it would stop the next one while process 1 has not reaped the killed one.
  rm -f "$(data "$1")"/socket "$(data "$1")"/socket.lock
  # The socket's path is relative to the data folder: an absolute one may be too long.
  (mysql_server "$1" --bind-address=127.0.0.1 --port="$(port "$1")" --socket=socket --server-id="$(port "$1")" --init-file="$dir/users.sql") >"$(log "$1")" 2>&1 </dev/null 9>&- &
  echo $! >"$(pid_file "$1")"
  local end=$((SECONDS + 60))
  until mysql_ready "$1"; do
    kill -0 "$(pid "$1")" 2>/dev/null || { rm -f "$(pid_file "$1")"; return 1; }
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

mysql_initialize() { (mysql_server "$1" --initialize-insecure); }
# mariadb-install-db would start the server without its loader, so the tables come from the same files by hand.
mariadb_initialize() {
  local root share; root=$(mysql_root "$1")
  share=$(echo "$root"/usr/share/m*/*_system_tables.sql)
  mkdir "$(data "$1")/mysql"
  [ "$(id -u)" != 0 ] || chown "$SERVICE_USER" "$(data "$1")/mysql"
  {
    printf '%s\n' 'USE mysql;' 'SET @auth_root_socket=NULL;' 'SET @skip_auth_anonymous=1;'
    cat "$share" "${share%.sql}_data.sql"
  } | (mysql_server "$1" --bootstrap)
}

mysql_client() { # NAME OPTION...: as the administrator
  local client; client=$(mysql_root "$1")/run
  case $1 in
  mysql*) client+="/mysql --no-defaults --ssl-mode=DISABLED" ;;
  *) client+="/mariadb --no-defaults --skip-ssl" ;;
  esac
  # shellcheck disable=SC2086
  $client -h 127.0.0.1 -P "$(port "$1")" -u root "${@:2}"
}

# The server reads users.sql before it lets anybody in.
mysql_ready() { native_running "$1" && mysql_client "$1" -e 'DO 0' >/dev/null 2>&1; }
mysql_after_start() { say "$1: version $(mysql_client "$1" -BNe 'SELECT version()') at $(own_address "$1")"; }
