#!/bin/sh
# Installs a build tree, or removes what that installs, and nothing else: files by name, directories where installing made them and nothing is left in them.
#   [DESTDIR=STAGE] install.sh install|uninstall BUILD PREFIX
set -eu
what=$1 build=$2 prefix=$3
case $prefix in /*) ;; *) echo "PREFIX=$prefix: must begin with /" >&2; exit 2 ;; esac
made=$build/made_directories # by installing: one a line, DESTDIR and all

# Every file that would be installed, below PREFIX.
list() {
    stage=$(mktemp -d)
    trap 'rm -rf "$stage"' EXIT
    DESTDIR=$stage cmake --install "$build" --prefix "$prefix" >"$stage.log" || { cat "$stage.log"; exit 1; }
    rm "$stage.log"
    (cd "$stage" && find . ! -type d | sed 's,^\.,,' | sort)
}

# The directories above a path that are not there, the highest first.
missing() {
    if [ ! -d "$1" ]; then
        missing "$(dirname "$1")"
        echo "$1"
    fi
}

case $what in
install)
    list | while read -r file; do missing "$(dirname "${DESTDIR-}$file")"; done | sort -u >"$made.now"
    cmake --install "$build" --prefix "$prefix"
    cat "$made.now" >>"$made"
    rm "$made.now"
    ;;
uninstall)
    list | while read -r file; do
        [ -e "${DESTDIR-}$file" ] || [ -L "${DESTDIR-}$file" ] || continue
        rm "${DESTDIR-}$file"
        echo "removed ${DESTDIR-}$file"
    done
    if [ -f "$made" ]; then
        sort -ru "$made" | while read -r directory; do
            case $directory in "${DESTDIR-}"*) rmdir "$directory" 2>/dev/null || [ -d "$directory" ] || : ;; esac
        done
    fi
    ;;
*)
    echo "install.sh: $what: must be install or uninstall" >&2
    exit 2
    ;;
esac
