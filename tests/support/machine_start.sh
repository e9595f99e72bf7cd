#!/bin/bash
# Become systemd of one machine: its disk is an overlay over this machine's, or over a tree that is given.
#   machine_start.sh DIRECTORY LOWER [SOURCE:TARGET ...]     in namespaces of its own; each SOURCE is mounted at TARGET
set -euo pipefail
directory=$1 lower=$2
shift 2
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$directory/upper,workdir=$directory/work" "$directory/root"
cd "$directory/root"
for each in "$@"; do
    mkdir -p ".${each#*:}"
    mount --bind "${each%%:*}" ".${each#*:}"
done
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for each in null zero full random urandom tty; do
    touch "dev/$each"
    mount --bind "/dev/$each" "dev/$each"
done
if [ -e /dev/fuse ]; then
    touch dev/fuse
    mount --bind /dev/fuse dev/fuse
fi
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
hostname "$(basename "$directory")"
exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot . /lib/systemd/systemd --log-target=console --unit=basic.target
