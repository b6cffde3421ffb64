# shellcheck shell=bash
# btrfs: a file system of its own at each site.

# shellcheck source=lab/contenders/data.sh
. "$CONTENDERS/data.sh"

# A file system of its own at $HERE/fs until the service is stopped: four times the data and 1 GiB, in a sparse file.
serve_btrfs() {
    mkdir "$HERE/fs"
    truncate -s $(($(du -sB1 --apparent-size "$NEW" | cut -f 1) * 4 + (1 << 30))) "$HERE/fs.img"
    mkfs.btrfs -q "$HERE/fs.img"
    mount -o loop,noatime "$HERE/fs.img" "$HERE/fs"
    trap 'umount "$HERE/fs" && exit 0' TERM
    touch "$HERE/mounted"
    sleep infinity &
    wait
}
