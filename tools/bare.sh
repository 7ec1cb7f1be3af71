#!/usr/bin/env bash
# Does a fresh clone build and pass its tests on a bare Debian? Makes a minimal system with git and make only, clones the committed HEAD into it
# and runs `make run` and `make test` there.
#   bare.sh 12|13            all of it, then README.md's quick start is typed (tools/readme_check.py)
#   bare.sh 12|13 --quick    `make run` and `make test-quick`
#   bare.sh 12|13 --readme   `make run` and the quick start
#   bare.sh 12|13 --wheel    `make wheel`, and the wheel in a fresh environment of another bare system, which has python3-venv alone
#   bare.sh 13 --image       the steps of examples/deploy/Dockerfile, each stage in a system of its own, then its server (tools/image.py)
# Runs as root on a Debian system with debootstrap. The mirror, proxies, certificates and pip settings are this machine's own. ../shared (or
# QUIRE_SHARED) is there read-only where this machine has it. build/bare-NN/base is the system, kept for the next run, and debs the packages
# fetched; build/bare-NN/root is a run's copy, left for a look. All mounts lie in a mount namespace that ends with the script, however it
# ends. The log is build/bare-NN.log. Exits 77 where it cannot run here, saying why.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { echo "usage: $0 12|13 [--quick|--readme|--wheel], or 13 --image" >&2; exit 2; }
case ${1:-} in
12) codename=bookworm ;;
13) codename=trixie ;;
*) usage ;;
esac
case ${2:-} in
'') target='make test && $readme' ;;
--quick) target='make test-quick' ;;
--readme) target='tools/packages.sh readme && $readme' ;;
--wheel) target='tools/packages.sh wheel && make wheel' ;;
--image) [ "$1" = 13 ] || usage ;;
*) usage ;;
esac
place=$PWD/build/bare-$1 include=git,make dockerfile=examples/deploy/Dockerfile
[ "${2:-}" != --image ] || { place=$place-image include=; } # an image's base has neither
base=$place/base root=$place/root fresh=$place/root-fresh log=$place.log
shared=${QUIRE_SHARED:-../shared}

say() { printf '== bare %s: %s\n' "$codename" "$*"; }
cannot() { say "cannot run here: $*"; exit 77; }

# What a system needs to run in: mounts below a root.
mounts() {
    local root=$1 sub
    mkdir -p "$place/debs/partial"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    for sub in /dev/pts /dev/shm; do
        [ ! -d $sub ] || mount --bind $sub "$root$sub"
    done
    mount --bind /sys "$root/sys"
    mount -o remount,ro,bind "$root/sys"
    mount --bind "$place/debs" "$root/var/cache/apt/archives"
}

# in_root ROOT COMMANDS: runs them in a root, with this machine's proxies, certificates and pip settings and nothing else of its environment.
in_root() {
    local settings=() name
    for name in $(compgen -e | grep -E '^(PIP_.*|(http|https|ftp|all|no)_proxy|(HTTP|HTTPS|FTP|ALL|NO)_PROXY)$'); do
        settings+=("$name=${!name}")
    done
    if [ -e "$1/etc/bare-ca.crt" ]; then
        for name in PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE; do
            settings+=("$name=/etc/bare-ca.crt")
        done
    fi
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" "${settings[@]}" \
        chroot "$1" sh -ec "$2"
}

# The namespace's side: mounts, the run itself. Its mounts and processes end with it.
inside_image() {
    trap 'exit 130' INT TERM
    local stage
    for stage in "$root"-*; do
        mounts "$stage"
    done
    tools/image.py "$place/context/$dockerfile" "$1" "$place/context" "$root"-*
}

inside() {
    trap 'exit 130' INT TERM
    mounts "$root"
    mkdir -p "$root/work/shared"
    if [ -d "$shared" ]; then
        mount --bind "$shared" "$root/work/shared"
        mount -o remount,ro,bind "$root/work/shared"
    else
        rmdir "$root/work/shared"
    fi
    if [ -n "${PIP_FIND_LINKS:-}" ] && [ -d "$PIP_FIND_LINKS" ]; then
        mkdir -p "$root/$PIP_FIND_LINKS"
        mount --bind "$PIP_FIND_LINKS" "$root/$PIP_FIND_LINKS"
        mount -o remount,ro,bind "$root/$PIP_FIND_LINKS"
    fi
    in_root "$root" "cd /work && git clone -q quire.bundle quire && cd quire && make run && readme='python3 tools/readme_check.py --here --skip ^make.test' && $target"
}

# The wheel that inside made, where nothing of the build is: what is missing in it shows. The program's text must be the package's.
inside_wheel() {
    local cases="generate logprobs chat_with_tools embed streams threads the_program" case
    mounts "$fresh"
    mkdir -p "$fresh/work"
    cp "$root"/work/quire/build/wheels/quire-*.whl "$root/work/quire/tests/python/cases.py" "$fresh/work/"
    in_root "$fresh" "cd /work && apt-get update -q && apt-get install -y -q --no-install-recommends python3-venv && python3 -m venv venv &&
        venv/bin/pip install --no-index --disable-pip-version-check quire-*.whl"
    for case in $cases; do
        in_root "$fresh" "cd /work && venv/bin/python cases.py $case"
        say "ok: $case"
    done
    in_root "$fresh" "/work/venv/bin/quire run builtin -p 'The prince looked at her and' --echo -n 40 --temp 0"
}

if [ "${BARE_INSIDE:-}" = "$place" ]; then
    case ${2:-} in
    --image) inside_image "$1" ;;
    --wheel)
        inside
        inside_wheel
        ;;
    *) inside ;;
    esac
    exit
fi

[ "$(id -u)" = 0 ] || cannot "it needs root"
command -v debootstrap >/dev/null || cannot "debootstrap is not installed"
unshare --mount --pid --fork true 2>/dev/null || cannot "no mount namespace (unshare) is allowed here"

# This machine's mirror: "URI SUITE KEYRING" lines of its own Debian release, and the same for the wanted one.
here=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$here" ] || cannot "/etc/os-release names no release"
sources=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    awk -v here="$here" -v wanted="$codename" '$3 == "main" && ($2 == here || index($2, here "-") == 1) {sub(here, wanted, $2); print $1, $2}' | sort -u)
mirror=$(awk -v suite="$codename" '$2 == suite {print $1; exit}' <<<"$sources")
[ -n "$mirror" ] || cannot "no apt source of this machine has the suite $here, component main"
# debootstrap and its wget go by the environment; apt's own proxy counts where that has none.
eval "$(apt-config shell apt_http Acquire::http::Proxy apt_https Acquire::https::Proxy)"
export http_proxy="${http_proxy:-${apt_http:-}}" https_proxy="${https_proxy:-${apt_https:-}}"
[ "$http_proxy" != DIRECT ] || http_proxy=
[ "$https_proxy" != DIRECT ] || https_proxy=
case $mirror in
http:* | https:*)
    wget -q -T 30 -t 2 -O /dev/null "${mirror}dists/$codename/InRelease" || cannot "this machine's mirror cannot be reached, or has no $codename" ;;
esac

mkdir -p "$place"
exec 9>"$place/lock"
flock -n 9 || cannot "another run has $place"
: >"$log"

if [ ! -e "$place/base-is-whole" ]; then
    say "debootstrap"
    rm -rf --one-file-system "$base"
    script=/usr/share/debootstrap/scripts/$codename
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # a release younger than this debootstrap
    if ! debootstrap --variant=minbase ${include:+"--include=$include"} "$codename" "$base" "$mirror" "$script" >>"$log" 2>&1; then
        tail -n 5 "$log"
        say "debootstrap failed: $log"
        exit 1
    fi
    touch "$place/base-is-whole"
fi

# new_root ROOT: a copy of the system with this machine's settings.
new_root() {
    local root=$1 certificates
    cp -a --reflink=auto "$base" "$root"
    rm -f "$root/etc/apt/sources.list"
    awk '{print "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", $1, $2, "main"}' <<<"$sources" >"$root/etc/apt/sources.list.d/bare.list"
    apt-config dump | grep -E '^Acquire::(http|https|ftp|Check-|Retries|Languages)' >"$root/etc/apt/apt.conf.d/90bare" || true
    for certificates in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt; do
        if [ -f "$certificates" ]; then
            cp "$certificates" "$root/etc/bare-ca.crt"
            echo 'Acquire::https::CaInfo "/etc/bare-ca.crt";' >>"$root/etc/apt/apt.conf.d/90bare"
            break
        fi
    done
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
    [ ! -f ~/.config/pip/pip.conf ] || install -D ~/.config/pip/pip.conf "$root/root/.config/pip/pip.conf"
}

rm -rf --one-file-system "$root" "$root"-* "$place/context"
if [ "${2:-}" = --image ]; then
    for i in $(seq "$(git show "HEAD:$dockerfile" | grep -c '^FROM ')"); do
        new_root "$root-$i"
    done
    mkdir "$place/context"
    git archive HEAD | tar -x -C "$place/context"
    say "commit $(git rev-parse --short HEAD), the steps of $dockerfile and its server; log: $log"
else
    new_root "$root"
    [ "${2:-}" != --wheel ] || new_root "$fresh"
    mkdir -p "$root/work"
    git bundle create -q "$root/work/quire.bundle" HEAD
    say "commit $(git rev-parse --short HEAD), make run, $target; log: $log"
fi

started=$SECONDS
status=0
BARE_INSIDE=$place unshare --mount --propagation private --pid --fork --kill-child "$0" "$@" >>"$log" 2>&1 9>&- </dev/null &
child=$!
trap 'kill -KILL $child 2>/dev/null; say "interrupted"; exit 130' INT TERM HUP
wait $child || status=$?
trap - INT TERM HUP

grep -E '^(== |SKIP)' "$log" || true
warnings=$(cat "$log" "$root"/work/quire/build/*/build.log "$root"/work/quire/build/build.log 2>/dev/null | grep -cE '(: |^)warning: ' || true)
if [ "$status" -ne 0 ]; then
    tail -n 30 "$log"
elif [ "$warnings" -gt 0 ]; then
    grep -hE '(: |^)warning: ' "$log" "$root"/work/quire/build/*/build.log "$root"/work/quire/build/build.log 2>/dev/null | sort -u | head -n 20
    status=1
fi
say "$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1 || true), $warnings warnings, exit $status, $((SECONDS - started)) s"
exit "$status"
