#!/bin/sh
# Makes sure that the Debian packages for a purpose are there: packages.sh build|unit|test|readme|wheel|test-long|fuzz|neon|format
# The names are those of Debian 12 and 13 alike. Installs what is missing as root or through sudo without a password; else prints the one line to run. Says nothing when nothing is missing.
set -eu

build="gcc libc6-dev make cmake ninja-build pkg-config libevent-dev libhttp-parser-dev libjansson-dev libpcre2-dev libutf8proc-dev libssl-dev libedit-dev libxxhash-dev liburing-dev libhiredis-dev libcurl4-openssl-dev"
case "${1:-build}" in
build) wanted="$build" ;;
unit) wanted="$build libcmocka-dev redis-server" ;;
test) wanted="$build clang libcmocka-dev libsimde-dev python3 python3-venv redis-server chromium curl" ;;
readme) wanted="$build python3 curl" ;;
wheel) wanted="$build python3 python3-venv" ;;
test-long) wanted="gcc libc6-dev spin nginx systemd" ;;
fuzz) wanted="$build clang libcmocka-dev libclang-rt-dev" ;;
neon) wanted="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static libcmocka-dev libcmocka0:arm64 libjansson-dev libjansson4:arm64" ;;
format) wanted="clang-format" ;;
*) echo "usage: $0 build|unit|test|readme|wheel|test-long|fuzz|neon|format" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "packages.sh: not a Debian system; please see to it that these are installed: $wanted" >&2
    exit 0
fi
missing=
for package in $wanted; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    case $status in
    installed*) ;; # once for each architecture that has it
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

line="apt-get update && apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    echo "packages.sh: packages are missing; as root, run:" >&2
    echo "  $line" >&2
    exit 1
fi
echo "packages.sh: installing$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ "${1:-}" != neon ] || $as_root dpkg --add-architecture arm64
if ! { DEBIAN_FRONTEND=noninteractive $as_root apt-get update -q && \
       DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "packages.sh: that failed; as root, run:" >&2
    echo "  $line" >&2
    exit 1
fi
