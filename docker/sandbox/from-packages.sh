#!/bin/sh
# Builds the sandbox image's root file system from this machine's own Debian or Ubuntu packages, and writes it to
# standard output as a tar. It needs apt and dpkg, a package mirror, and neither root nor a container registry: packages
# are fetched into a private directory and unpacked; nothing of them is run, and nothing of this machine is changed.
#
# Usage: from-packages.sh SETTINGS-DIRECTORY >root.tar. Progress goes to standard error, one line per step.
set -eu

say() { echo "$*" >&2; }

packages='base-files bash bzip2 coreutils dash debianutils diffutils file findutils gawk gcc git grep gzip hostname less
libc-bin libc6-dev make netbase nodejs patch perl-base procps python3 python3-pip python3-venv sed tar tzdata unzip
util-linux xz-utils zip'

settings=${1:?the directory of settings to lay into the image}
for program in apt-get dpkg-deb tar; do
    command -v "$program" >/dev/null || { say "$program is missing: this needs a Debian or Ubuntu machine"; exit 3; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/bazilion-sandbox.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
root=$work/root
mkdir -p "$work/lists/partial" "$work/archives/partial" "$root"
: >"$work/status"

private_apt() {
    apt-get -qq \
        -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::State::extended_states="$work/extended" \
        -o Dir::Cache::archives="$work/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o Dir::Log="$work" -o Debug::NoLocking=true -o APT::Sandbox::User= -o APT::Install-Recommends=false \
        -o Acquire::Languages=none -o Acquire::Retries=2 -o APT::Update::Post-Invoke-Success::= "$@" >&2
}

say 'reading the package lists'
private_apt update
say 'fetching packages'
# Node from elsewhere brings its own npm, and then the distribution's can not be added.
# shellcheck disable=SC2086
private_apt install --yes --download-only $packages npm || private_apt install --yes --download-only $packages

say 'unpacking'
for directory in bin sbin lib lib32 lib64 libx32; do
    mkdir -p "$root/usr/$directory"
    ln -s "usr/$directory" "$root/$directory"
done
for archive in "$work"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$archive" | tar -x --keep-directory-symlink --no-same-owner -C "$root" \
        --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale --exclude=./usr/share/info \
        --exclude=./usr/share/lintian --exclude='./usr/bin/*lto-dump*' --exclude='./dev/*'
    rm -f "$archive"
done

say 'configuring'
# What the packages' own scripts would have chosen.
link() { [ -e "$root$2" ] || [ -L "$root$2" ] || ln -s "$1" "$root$2"; }
link gawk /usr/bin/awk
link gcc /usr/bin/cc
link dash /usr/bin/sh
link python3 /usr/bin/python
mkdir -p "$root/workspace" "$root/memory" "$root/skills" "$root/inputs" "$root/tmp" "$root/proc" "$root/sys" "$root/dev"
chmod 1777 "$root/tmp"
cp -R "$settings/." "$root/"
say 'packing'
tar -c --numeric-owner --owner=0 --group=0 -C "$root" .
