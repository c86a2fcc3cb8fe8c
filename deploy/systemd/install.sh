#!/bin/sh
# Installs aes-exporter as a systemd service, or removes it. Run again, it upgrades and keeps your settings.
#
#   install.sh [PACKAGE]                 the daemon; PACKAGE is what pip takes: a wheel, "aes-exporter==1.0", a folder
#                                        (default: the checkout that this file is in)
#   install.sh --textfile DIR [PACKAGE]  no daemon, but a timer that writes DIR/aes.prom for node_exporter
#   install.sh --uninstall               remove all of it but the settings; --purge removes them, too
#
# It changes /opt/aes-exporter (a Python environment), /etc/systemd/system/aes-exporter* and /etc/default/aes-exporter.
# PYTHON names another Python than python3.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=/opt/aes-exporter
units=/etc/systemd/system
settings=/etc/default/aes-exporter
textfile_units="aes-exporter-textfile.service aes-exporter-textfile.timer"
python=${PYTHON:-python3}

say() { echo "install.sh: $*"; }
refuse() { echo "install.sh: $*" >&2; exit 1; }

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0"; }

check_host() {
    [ "$(id -u)" = 0 ] || refuse "run it as root"
    [ -d /run/systemd/system ] || refuse "systemd does not run on this host"
}

check_python() {
    command -v "$python" >/dev/null || refuse "there is no $python; install Python 3.11 or newer, or set PYTHON"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || refuse "$python is older than 3.11; set PYTHON"
    case $("$python" -c 'import sys; print(sys.base_prefix)') in
        /usr | /usr/*) ;; # the units let nothing be executed elsewhere
        *) refuse "$python is not below /usr, from where alone the service may run programs; set PYTHON" ;;
    esac
    "$python" -c 'import ensurepip, venv' 2>/dev/null || refuse "$python has no venv; on Debian: apt install python3-venv"
}

check_prefix() { # what others put there is not ours to replace
    [ ! -e $prefix ] || [ -x $prefix/bin/aes-exporter ] || [ -f $prefix/.unfinished ] ||
        refuse "$prefix is there and is not an aes-exporter; move it away"
}

install_package() { # PACKAGE
    say "installing $1 into $prefix"
    mkdir -p $prefix
    touch $prefix/.unfinished
    "$python" -m venv $prefix
    $prefix/bin/python -m pip install --quiet --upgrade "$1"
    rm $prefix/.unfinished
    say "installed $($prefix/bin/aes-exporter --version)"
    find $prefix -name hotloop.so | grep -q . || say "no compiled loop in it, so the engine libcrypto is unavailable"
}

install_settings() {
    if [ -e $settings ]; then
        say "keeping $settings"
    else
        say "writing $settings"
        install -m 0644 "$here/aes-exporter.default" $settings
    fi
}

install_units() { # UNIT...
    for unit in "$@"; do
        say "writing $units/$unit"
        install -m 0644 "$here/$unit" "$units/$unit"
    done
    systemctl daemon-reload
}

point_textfile_at() { # FOLDER
    say "the figures go to $1/aes.prom, written by $(stat -c %U "$1")"
    mkdir -p $units/aes-exporter-textfile.service.d
    cat >$units/aes-exporter-textfile.service.d/folder.conf <<DROPIN
# Written by install.sh --textfile.
[Service]
Environment=AES_EXPORTER_OUTPUT=$1/aes.prom
ReadWritePaths=
ReadWritePaths=$1
User=$(stat -c %U "$1")
DROPIN
}

remove_units() { # UNIT...
    for unit in "$@"; do
        [ -e "$units/$unit" ] || continue
        say "stopping and removing $unit"
        systemctl disable --now --quiet "$unit" 2>/dev/null || systemctl stop "$unit"
        rm -rf "${units:?}/$unit" "$units/$unit.d"
    done
    systemctl daemon-reload
}

daemon=yes folder='' purge=''
while [ $# -gt 0 ]; do
    case $1 in
        --textfile) daemon='' folder=${2:?a folder has to follow --textfile}; shift ;;
        --uninstall) daemon='' uninstall=yes ;;
        --purge) daemon='' uninstall=yes purge=yes ;;
        -h | --help) usage; exit 0 ;;
        -*) refuse "no such option: $1" ;;
        *) break ;;
    esac
    shift
done
[ $# -le 1 ] || refuse "one package at most, got: $*"

check_host
if [ "${uninstall:-}" ]; then
    [ $# -eq 0 ] || refuse "nothing is installed while removing, got: $*"
    check_prefix
    # shellcheck disable=SC2086  # a list of names
    remove_units aes-exporter.service $textfile_units
    say "removing $prefix"
    rm -rf $prefix
    if [ "$purge" ]; then
        say "removing $settings"
        rm -f $settings
    fi
    exit 0
fi

package=${1:-$(dirname "$(dirname "$here")")}
case $folder in
    '') ;;
    /*) [ -d "$folder" ] || refuse "$folder is no folder" ;;
    *) refuse "--textfile needs an absolute path, got: $folder" ;;
esac
check_python
check_prefix
install_package "$package"
install_settings
if [ "$daemon" ]; then
    install_units aes-exporter.service
    systemctl enable --quiet aes-exporter.service
    systemctl restart aes-exporter.service
    say "aes-exporter.service is $(systemctl is-active aes-exporter.service)"
else
    # shellcheck disable=SC2086  # a list of names
    install_units $textfile_units
    point_textfile_at "$folder"
    systemctl daemon-reload
    systemctl enable --quiet --now aes-exporter-textfile.timer
    systemctl start aes-exporter-textfile.service
    say "wrote $folder/aes.prom"
fi
