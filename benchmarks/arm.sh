#!/usr/bin/env bash
# Runs tests on emulated 64-bit ARM: benchmarks/arm.sh FOLDER [PYTEST ARGUMENT ...]
# Needs root on Debian with qemu-user-static and debootstrap. The first call makes a Debian arm64
# system in FOLDER (some 2 GB) and installs refnet's packages there; later calls use it again.
# Emulation is some 30 times slower than the machine itself.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
system=$1
shift
[ $# -gt 0 ] || set -- tests/cells tests/compiled tests/exact \
    tests/training/test_checkpoint.py tests/training/test_train.py

# The kernel runs ARM programs by qemu from here on: ELF files for machine 183, 64 bits.
formats=/proc/sys/fs/binfmt_misc
mountpoint -q "$formats" || mount -t binfmt_misc binfmt_misc "$formats"
if ! [ -e "$formats/qemu-aarch64" ]; then
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    printf '%s' ":qemu-aarch64:M::$magic:$mask:/usr/bin/qemu-aarch64-static:F" > "$formats/register"
fi

if ! [ -e "$system/refnet-ready" ]; then
    debootstrap --arch=arm64 --include=python3,python3-venv,gcc,libc6-dev,ca-certificates \
        bookworm "$system"
    # pip's configuration, and the certificates that it may need, are this machine's
    for file in /etc/pip.conf "$HOME/.config/pip/pip.conf"; do
        [ -e "$file" ] && install -D "$file" "$system/${file/#$HOME//root}"
    done
    cp /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/"
    cp /etc/resolv.conf "$system/etc/"
    chroot "$system" python3 -m venv /venv
    chroot "$system" /venv/bin/pip install --quiet numpy scipy numba python-flint \
        pytest hypothesis mpmath
    touch "$system/refnet-ready"
fi

rm -rf "$system/refnet"  # or modules that are gone would stay
mkdir "$system/refnet"
git -C "$root" archive HEAD | tar -x -C "$system/refnet"
chroot "$system" sh -c 'cd /refnet && mount -t proc proc /proc 2>/dev/null; exec "$@"' - \
    env HOME=/root LC_ALL=C.UTF-8 /venv/bin/python -m pytest -q "$@"
