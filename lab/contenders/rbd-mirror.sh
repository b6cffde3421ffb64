# shellcheck shell=bash
# Ceph's own mirroring: snapshots that are made when asked, and a daemon at b that fetches them from a's cluster.

# shellcheck source=lab/contenders/ceph.sh
. "$CONTENDERS/ceph.sh"

# What is set up once, by the cluster's administrator.
rbd_admin() { rbd --conf "$HERE/ceph/ceph.conf" --id admin "$@"; }

# A cluster that b's daemon reaches, and the token that b joins with. Ceph's own settings: more objects at once
# (rbd_concurrent_management_ops, 32 instead of 10, at both clusters) changed neither bytes nor seconds over a T3.
offer_mirror() {
    rbd_admin mirror pool enable --site-name a rbd image
    rbd_admin mirror pool peer bootstrap create --site-name a rbd >"$HERE/token.part"
    mv "$HERE/token.part" "$HERE/mirror-token"
}

# The cluster at b with the daemon, which starts when a has left its token: it looks for peers seldom.
serve_ceph_and_rbd_mirror() {
    local daemon=
    start_ceph
    # shellcheck disable=SC2154 # start_ceph has set it
    trap '[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon" || true; }; stop_ceph; exit 0' TERM
    rbd_admin mirror pool enable --site-name b rbd image
    timeout 30 ceph --conf "$HERE/ceph/ceph.conf" auth get-or-create client.rbd-mirror.b mon 'profile rbd-mirror' osd 'profile rbd' \
        -o "$ceph_at/c/client.rbd-mirror.b.keyring"
    until [ -s "$A_HERE/mirror-token" ]; do sleep 0.2; done
    rbd_admin mirror pool peer bootstrap import --site-name b --direction rx-only rbd "$A_HERE/mirror-token"
    # It takes its own cluster's ceph.conf from the current directory; --conf it does not pass on.
    (cd "$ceph_at/c" && exec rbd-mirror --foreground --name client.rbd-mirror.b --log-file "$HERE/rbd-mirror.log") &
    daemon=$!
    until rbd_admin mirror pool status rbd --format json | jq -e '.summary.daemon_health == "OK"' >/dev/null; do sleep 0.5; done
    touch "$HERE/mirror-up"
    wait "$daemon"
}

wait_for_rbd_mirror() {
    until [ -e "$B_HERE/mirror-up" ]; do sleep 0.2; done
}

# Tells b which snapshot of an image is the one to come. It is made already: asking delays nothing.
tell_mirrored() { # image
    rbd_ snap ls --all --format json "rbd/$1" | jq '[.[] | select(.namespace.type == "mirror").id] | max' >"$HERE/snapshot.part"
    mv "$HERE/snapshot.part" "$HERE/$GENERATION-$1.mirrored"
}

# At b: until the copies of these snapshots are complete. One process asks its own cluster, 20 times a second: `rbd snap ls`
# would take a fifth of a second each time. The library comes with ceph-common, for Debian's python3.
wait_mirrored() {
    local image
    for image in $(images); do
        until [ -s "$A_HERE/$GENERATION-$image.mirrored" ]; do sleep 0.05; done
        /usr/bin/python3 - "$HERE/ceph/ceph.conf" "$image" "$(cat "$A_HERE/$GENERATION-$image.mirrored")" <<'PYTHON'
import sys, time, rados, rbd

conf, name, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])

def complete(pool):
    try:
        with rbd.Image(pool, name, read_only=True) as image:
            snapshots = [snapshot.get("mirror") or {} for snapshot in image.list_snaps()]
    except rbd.ImageNotFound:
        return False
    return any(mirror.get("primary_snap_id") == wanted and mirror.get("complete") for mirror in snapshots)

with rados.Rados(conffile=conf, name="client.farside") as cluster, cluster.open_ioctx("rbd") as pool:
    while not complete(pool):
        time.sleep(0.05)
PYTHON
    done
}
