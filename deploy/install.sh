#!/bin/sh
# Installs Offramp from a tarball of its static binary, or removes it:
#
#   sh install.sh [--prefix DIR] [--sha256 SUM] [TARBALL]
#   sh install.sh --uninstall [--prefix DIR]
#
# Without TARBALL it installs from the folder that it lies in, an unpacked tarball. The prefix is /usr/local for root,
# else ~/.local. Root is not needed: what an ordinary user cannot have is named at the end.
#
# A tarball is used only if its SHA-256 is that of --sha256, or of SHA256SUMS in the same folder; every file is compared with
# the sums in the tarball as well. Nothing is written below the prefix before all of that is good. A run that was interrupted
# can be repeated, or undone by --uninstall.
set -eu
umask 022

usage='usage: install.sh [--prefix DIR] [--sha256 SUM] [TARBALL]
       install.sh --uninstall [--prefix DIR]'

say() { printf '%s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}
misused() {
    printf 'install.sh: %s\n%s\n' "$1" "$usage" >&2
    exit 2
}

prefix='' sum='' tarball='' action=install
while [ $# -gt 0 ]; do
    case $1 in
        --prefix | --sha256)
            [ $# -ge 2 ] || misused "$1 needs a value"
            [ -n "$2" ] || misused "$1 needs a value that is not empty"
            case $1 in --prefix) prefix=$2 ;; *) sum=$2 ;; esac
            shift
            ;;
        --prefix=?*) prefix=${1#*=} ;;
        --sha256=?*) sum=${1#*=} ;;
        --uninstall) action=uninstall ;;
        -h | --help)
            say "$usage"
            exit
            ;;
        -*) misused "unknown option $1" ;;
        *)
            [ -z "$tarball" ] || misused "one tarball at a time, not $tarball and $1"
            tarball=$1
            [ -n "$tarball" ] || misused 'the name of the tarball is empty'
            ;;
    esac
    shift
done

is_root=no
[ "$(id -u)" != 0 ] || is_root=yes
if [ -z "$prefix" ]; then
    if [ $is_root = yes ]; then
        prefix=/usr/local
    elif [ -n "${HOME:-}" ]; then
        prefix=$HOME/.local
    else
        misused 'HOME is not set: name a folder with --prefix'
    fi
fi
case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
esac
while [ "$prefix" != "${prefix%/}" ]; do prefix=${prefix%/}; done
case $prefix in
    *[%\#\&\\\"\'\;\`\$[:space:]]*) fail "the prefix may not contain blanks, quotes, % or characters of the shell, since systemd's units name it: $prefix" ;;
esac

# The files that were installed, one a line, as paths below the prefix. It is written before the first of them.
list=$prefix/share/offramp/installed

uninstall() {
    [ $# = 0 ] || misused '--uninstall takes no tarball'
    [ -f "$list" ] || fail "nothing was installed below $prefix by this script ($list is missing)"
    if grep -q '^lib/systemd/' "$list" && runs_systemd && systemctl is-active --quiet offramp.service 2>/dev/null; then
        fail 'offramp.service is running; stop it first: systemctl disable --now offramp'
    fi
    # After an interruption there may be no folder of programs yet.
    for folder in share/offramp bin; do
        if [ -e "$prefix/$folder" ] && [ ! -w "$prefix/$folder" ]; then
            fail "no permission to remove files below $prefix"
        fi
    done
    while IFS= read -r file; do
        is_ours "$file" || continue
        rm -f "$prefix/$file" "$prefix/$file.offramp-new"
    done <"$list"
    folders=$(while IFS= read -r file; do
        while [ "$file" != "${file%/*}" ]; do
            file=${file%/*}
            say "$file"
        done
    done <"$list" | sort -ru)
    rm -f "$list"
    # Folders that others use too stay, and so do bin, lib and share.
    for folder in $folders share/offramp; do
        case $folder in */*) rmdir "$prefix/$folder" 2>/dev/null || true ;; esac
    done
    say "Offramp is removed from $prefix. Configuration (/etc/offramp) and state (/var/lib/offramp, ~/.local/state/offramp) stay."
}

# Whether a name of a list lies where this script installs.
is_ours() {
    case $1 in
        *..*) return 1 ;;
        bin/?* | lib/?* | share/?*) return 0 ;;
        *) return 1 ;;
    esac
}

runs_systemd() { [ -d /run/systemd/system ] && command -v systemctl >/dev/null 2>&1; }

# Chooses the program that computes SHA-256.
choose_sha256() {
    for program in sha256sum shasum openssl; do
        if command -v $program >/dev/null 2>&1; then
            return
        fi
    done
    fail 'no program computes SHA-256: sha256sum, shasum and openssl are missing'
}

# Prints the SHA-256 of a file.
sha256() {
    case $program in
        sha256sum) sha256sum <"$1" ;;
        shasum) shasum -a 256 <"$1" ;;
        openssl) openssl dgst -sha256 -r <"$1" ;;
    esac | cut -d' ' -f1
}

# Fails unless the tarball has the sum that was named.
check_tarball() {
    [ -f "$tarball" ] || fail "$tarball: no such file"
    case $tarball in */*) folder=${tarball%/*} ;; *) folder=. ;; esac
    name=${tarball##*/} sums=$folder/SHA256SUMS from=--sha256
    if [ -z "$sum" ]; then
        [ -f "$sums" ] || fail "no sum to check $name by: put the SHA256SUMS of the release beside it, or name the sum with --sha256"
        sum=$(awk -v name="$name" '{ sub(/\r$/, "") } $2 == name || $2 == "*" name { print $1 }' "$sums") from=$sums
        [ -n "$sum" ] || fail "$sums has no line for $name"
    fi
    sum=$(printf %s "$sum" | tr A-F a-f)
    case $sum in *[!0-9a-f]*) fail "$from does not have a SHA-256 for $name: $sum" ;; esac
    [ ${#sum} = 64 ] || fail "$from does not have a SHA-256 for $name: it has ${#sum} characters instead of 64"
    found=$(sha256 "$tarball")
    [ "$found" = "$sum" ] || fail "$name is not the file that was released, or is damaged; nothing is installed
  expected $sum ($from)
  found    $found"
}

# Fails unless every file of the unpacked tarball is as it was packed.
check_files() {
    if [ ! -f "$source/SHA256SUMS" ] || [ ! -f "$source/bin/offramp" ]; then
        fail "$source is no unpacked tarball of Offramp; name the tarball: sh install.sh offramp-VERSION-ARCHITECTURE-linux-musl.tar.gz"
    fi
    while read -r wanted file; do
        case $file in '' | /* | *..*) fail "$source/SHA256SUMS is damaged" ;; esac
        [ -f "$source/$file" ] || fail "$source/$file is missing; unpack the tarball again"
        [ "$(sha256 "$source/$file")" = "$wanted" ] || fail "$source/$file is damaged; nothing is installed. Unpack the tarball again"
    done <"$source/SHA256SUMS"
    grep -q ' bin/offramp$' "$source/SHA256SUMS" || fail "$source/SHA256SUMS is damaged: it does not cover bin/offramp"
}

# Prints why the prefix cannot be used, or nothing.
unusable() {
    for folder in "$prefix" "$prefix/bin" "$prefix/share/offramp"; do
        if [ -e "$folder" ] && [ ! -d "$folder" ]; then
            say "$folder is not a folder"
            return
        fi
    done
    above=$prefix/bin
    while [ ! -e "$above" ]; do above=$(dirname "$above"); done
    # A test of permissions says nothing about a read-only file system to root.
    if ! trial=$(mktemp -d "$above/.offramp-trial.XXXXXX" 2>&1); then
        say "$above cannot be written to (${trial##*: })"
        return
    fi
    rmdir "$trial"
}

# Says why there are no units, or nothing where systemd can use them.
without_units() {
    case $prefix/ in
        /home/* | /root/*) say 'a service cannot have its program in a home; for a service choose another prefix, as root'; return ;;
    esac
    if [ $is_root = no ]; then
        say 'they need root'
    elif ! runs_systemd; then
        say 'this machine does not run systemd'
    fi
}

# Prints the name below the prefix of each file that belongs there: of those that were checked.
wanted() {
    while read -r _ file; do
        is_ours "$file" || continue
        case $file in
            lib/systemd/* | share/offramp/from-253.conf) [ -n "$no_units" ] || say "$file" ;;
            *) say "$file" ;;
        esac
    done <"$source/SHA256SUMS"
}

# Puts one file in its place at once: a program that runs cannot be written to.
put() {
    new=$prefix/$1.offramp-new
    mkdir -p "$(dirname "$new")" || return 1
    # A folder of that name would take the file in; what lies at the new name, perhaps a link of somebody else, is not written to.
    [ ! -d "$prefix/$1" ] || return 1
    rm -f "$new" && set -C
    case $1 in
        lib/systemd/*) sed "s#/usr/bin/offramp#$prefix/bin/offramp#g" "$source/$1" >"$new" ;;
        share/offramp/from-253.conf)
            sed -e "s#/usr/bin/offramp#$prefix/bin/offramp#g" -e "s# from-253.conf /etc# $prefix/$1 /etc#" "$source/$1" >"$new"
            ;;
        *) cat "$source/$1" >"$new" ;;
    esac || { set +C; return 1; }
    set +C
    case $1 in bin/*) mode=755 ;; *) mode=644 ;; esac
    chmod $mode "$new" && mv -f "$new" "$prefix/$1"
}

install_files() {
    bin=$prefix/bin/offramp
    if ! version=$("$source/bin/offramp" --version 2>&1); then
        fail "$source/bin/offramp does not run on this machine ($(uname -s) $(uname -m)); is it the tarball of another architecture? Or
  its file system is mounted noexec; TMPDIR names another. $version"
    fi
    why=$(unusable)
    if [ -n "$why" ]; then
        advice='choose another folder with --prefix'
        [ $is_root = yes ] || advice="run this as root, or choose another folder, such as --prefix \"\$HOME/.local\""
        fail "$why; nothing is installed. To go on, $advice"
    fi
    if [ -e "$bin" ] && [ ! -e "$list" ] && command -v dpkg >/dev/null 2>&1 && dpkg -S "$bin" >/dev/null 2>&1; then
        fail "$bin belongs to a Debian package; remove that (apt-get remove offramp), or choose another --prefix"
    fi
    no_units=$(without_units)
    files=$(wanted)
    mkdir -p "${list%/*}"
    {
        # What an earlier version has installed and this one does not have is removed together with this one.
        if [ -f "$list" ]; then cat "$list"; fi
        say "$files"
    } | LC_ALL=C sort -u >"$list.new"
    if ! mv -f "$list.new" "$list"; then
        rm -f "$list.new"
        fail "$list cannot be written; nothing is installed"
    fi
    say "$files" | while IFS= read -r file; do put "$file" || exit 1; done ||
        fail "not everything is installed below $prefix: run this again when the cause is gone, or undo it with --uninstall"
    say "$(say "$version" | head -n 1) is installed: $bin"
    report
}

# Says what is left to do, and what could not be done.
report() {
    case :${PATH:-}: in
        *:"$prefix/bin":*) ;;
        *) say "not done: $prefix/bin is not in PATH; add it, or call $bin" ;;
    esac
    if [ -n "$no_units" ]; then
        say "not done: units for systemd: $no_units"
    else
        say "units for systemd: $prefix/lib/systemd/system/offramp.service and offramp.socket"
        case $prefix in
            /usr/local | /usr) ;;
            *) say "systemd does not look there: systemctl link $prefix/lib/systemd/system/offramp.service" ;;
        esac
    fi
    if [ $is_root = no ]; then
        say "not done: ports below 1024: by default an ordinary user may not open them. Either use others (--listen :8443), or let
  this program open them: sudo setcap cap_net_bind_service=+ep $bin"
    fi
    if runs_systemd; then
        as=''
        [ $is_root = yes ] || as='sudo '
        say "to run it as a service: $as$bin setup"
    fi
    say "to try it: $bin to 3000
to remove it: sh install.sh --uninstall --prefix $prefix"
}

if [ "$action" = uninstall ]; then
    uninstall ${tarball:+"$tarball"}
    exit
fi

unpacked=''
trap '[ -z "$unpacked" ] || rm -rf "$unpacked"' EXIT
trap 'exit 1' HUP INT TERM
choose_sha256
if [ -n "$tarball" ]; then
    check_tarball
    unpacked=$(mktemp -d)
    gzip -dc "$tarball" | tar -xf - -C "$unpacked" || fail "$tarball cannot be unpacked into $unpacked (is the disk full?)"
    set -- "$unpacked"/*
    if [ $# != 1 ] || [ ! -d "$1" ]; then fail "$tarball is no tarball of Offramp"; fi
    source=$1
else
    [ -z "$sum" ] || misused '--sha256 is for a tarball'
    case $0 in */*) source=$(cd "$(dirname "$0")" && pwd) ;; *) source=$PWD ;; esac
fi
check_files
install_files
