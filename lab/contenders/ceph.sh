# shellcheck shell=bash
# A Ceph cluster of one node at each site, and its images.

# shellcheck source=lab/contenders/farside.sh
. "$CONTENDERS/farside.sh"

# Starts the cluster. Its directory is short: the kernel takes no long path for a socket.
start_ceph() { # address, if others than this site's own are to reach it
    ceph_at=$(mktemp -d "/tmp/ceph-$SITE.XXXXXX")
    FARSIDE_CEPH_STORE=memstore FARSIDE_CEPH_ADDRESS=${1:-127.0.0.1} \
        "$CONTENDERS/../../scripts/ceph-cluster" start "$ceph_at/c" >/dev/null
    ln -s "$ceph_at/c" "$HERE/ceph"
    touch "$HERE/ceph-up"
}
stop_ceph() {
    "$CONTENDERS/../../scripts/ceph-cluster" stop "$ceph_at/c" >/dev/null 2>&1 || true
    rm -rf "$ceph_at"
}

# The cluster, until the service is stopped.
serve_ceph() { # address, as above
    start_ceph "$@"
    trap 'stop_ceph; exit 0' TERM
    sleep infinity &
    wait
}

# The same with a daemon, which ends first.
serve_ceph_and_farside() { # ADDRESS:PORT for peers, or off
    local daemon
    start_ceph
    (serve_farside "$1") &
    daemon=$!
    # shellcheck disable=SC2064 # its number is known now
    trap "kill $daemon; wait $daemon || true; stop_ceph; exit 0" TERM
    wait
}

rbd_() { rbd --conf "$HERE/ceph/ceph.conf" --id farside "$@"; }

# Images become what $NEW is, as a host of the cluster makes them: the first time whole, then the blocks that differ.
lay_images() {
    local image
    for image in $(images); do rbd_ import --no-progress "$NEW/$image" "rbd/$image"; done
}
change_images() {
    local image
    for image in $(images); do
        "$FARSIDE_LAB" rbd-diff "$OLD/$image" "$NEW/$image" | rbd_ import-diff --no-progress - "rbd/$image"
    done
}

# The images of this site, or snapshots of them, equal $NEW.
same_images() { # a snapshot with its @, or nothing
    local image
    for image in $(images); do
        rbd_ export --no-progress "rbd/$image${1:-}" - | cmp - "$NEW/$image" || return
    done
}
