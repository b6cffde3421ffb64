# shellcheck shell=bash
# rsync: a daemon at b, pushed to from a.

# shellcheck source=lab/contenders/data.sh
. "$CONTENDERS/data.sh"

# A daemon that takes anything into $HERE/copy; with chroot, as it leaves links that point out of a tree alone only
# then. Its compression and block size are the client's matter.
serve_rsync() {
    mkdir -p "$HERE/copy"
    cat >"$HERE/rsyncd.conf" <<CONF
use chroot = yes
munge symlinks = no
numeric ids = yes
uid = 0
gid = 0
[copy]
path = $HERE/copy
read only = no
CONF
    exec rsync --daemon --no-detach --port 8730 --config "$HERE/rsyncd.conf"
}

# Images in place, each looked into whatever its time says (a mounted image always changes); files by their times.
push_rsync() { # options of compression and block size
    if [ "$KIND" = image ]; then
        rsync -I -S --inplace --no-whole-file "$@" "$NEW"/*.img "rsync://$B_ADDR:8730/copy/"
    else
        rsync -aH --numeric-ids --delete "$@" "$NEW/tree" "rsync://$B_ADDR:8730/copy/"
    fi
}

verify_rsync() { if [ "$KIND" = image ]; then same "$HERE/copy"; else same "$HERE/copy/tree"; fi; }
