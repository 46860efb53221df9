# Sourced by ctl: packages of any Debian suite, unpacked with all their libraries into a folder of their own. Programs run
# through that folder's own loader, so its C library may be newer than the machine's. Nothing is installed, no right is needed.

# debian_fetch NAME ROOT SUITE MINIMUM PACKAGE...: MINIMUM is the least version of the first PACKAGE that will do.
# The mirror is the one that the machine's own apt uses.
debian_fetch() {
  local name=$1 root=$2 suite=$3 minimum=$4 apt=$2/apt version deb; shift 4
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "$name: this machine has no apt-get and dpkg-deb; it comes from Debian's packages"
  debian_apt "$name" "$apt" "$suite"
  version=$(apt-cache -c "$apt/apt.conf" show --no-all-versions "$1" 2>/dev/null | sed -n 's/^Version: \([0-9]*:\)\{0,1\}//p')
  [ -n "$version" ] || fail "$name: Debian $suite offers no $1 now"
  dpkg --compare-versions "$version" ge "$minimum" ||
    fail "$name: Debian $suite offers $1 $version now, and $minimum or later is needed"
  say "$name: fetching $1 $version"
  apt-get -c "$apt/apt.conf" -qq -y --download-only install "$@" >"$apt/log" 2>&1 9>&- ||
    { tail -n 5 "$apt/log" >&2; fail "$name: apt-get could not fetch $* from Debian $suite"; }
  mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
  ln -s usr/bin usr/sbin usr/lib usr/lib64 "$root/"
  for deb in "$apt"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink --no-same-owner --no-same-permissions \
      --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*'
  done
  rm -rf "$apt"
}

# debian_apt NAME FOLDER SUITE: an apt that knows SUITE alone and keeps all it writes in FOLDER. The machine's other
# settings (proxies, logins) hold; its hooks do not, for they would touch the system.
debian_apt() {
  local name=$1 apt=$2 suite=$3 uris codename mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  uris=$(apt-get update --print-uris 2>/dev/null) || true
  mirror=$(sed -n "s|^'\(.*\)/dists/$codename/main/.*|\1|p" <<<"$uris" | sort -u | head -n 1)
  [ -n "$mirror" ] || fail "$name: the machine's apt configuration names no mirror of Debian ${codename:-}"
  mkdir -p "$apt"/{lists,archives}/partial "$apt/empty"
  : >"$apt/status"
  [ -f "$keyring" ] && keyring="[signed-by=$keyring] " || keyring=
  echo "deb $keyring$mirror $suite main" >"$apt/sources.list"
  cat >"$apt/apt.conf" <<CONF
#clear APT::Update;
#clear DPkg;
APT::Architecture "$(dpkg --print-architecture)";
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "$apt/empty";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "$apt/empty";
Dir::State "$apt";
Dir::State::Lists "$apt/lists";
Dir::State::Status "$apt/status";
Dir::Cache "$apt";
Dir::Cache::Archives "$apt/archives";
CONF
  apt-get -c "$apt/apt.conf" -qq update >"$apt/log" 2>&1 9>&- ||
    { tail -n 5 "$apt/log" >&2; fail "$name: apt-get could not read the list of Debian $suite"; }
}

# debian_programs ROOT PATH...: makes ROOT/run/PROGRAM, which starts PATH through ROOT's loader.
debian_programs() {
  local root=$1 path; shift
  mkdir -p "$root/run"
  for path; do
    cat >"$root/run/${path##*/}" <<'SH'
#!/bin/sh
root=$(cd "${0%/*}/.." && pwd) || exit
SH
    cat >>"$root/run/${path##*/}" <<SH
set -- "\$root/$path" "\$@"
for loader in "\$root"/usr/lib/*-linux-gnu*/ld-linux*.so.*; do
  exec "\$loader" --inhibit-cache --library-path "\${loader%/*}" --argv0 "\$1" "\$@"
done
SH
    chmod 755 "$root/run/${path##*/}"
  done
}
