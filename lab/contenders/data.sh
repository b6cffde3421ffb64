# shellcheck shell=bash
# What every contender's scripts may call: the data, the proof that a copy equals it, and waiting. What stands in the
# environment is told in docs/src/development/contenders.md.

PATH=$PATH:/usr/sbin:/sbin # mkfs.btrfs, for users whose PATH lacks them

# The names of a generation's images, a line each.
images() { seq -f '%g.img' 0 $((VOLUMES - 1)); }

# Runs COMMAND… with the name of each image added, all at the same time; fails if one fails.
each_image() {
    local image pid pids=()
    for image in $(images); do
        "$@" "$image" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || return; done
}

# One archive of generation DIR, on stdout: images with their holes, or files with what belongs to them.
archive() {
    if [ "$KIND" = image ]; then
        # shellcheck disable=SC2046 # names without blanks
        tar -C "$1" --sparse -cf - $(images)
    else
        tar -C "$1/tree" --sort=name --numeric-owner -cf - .
    fi
}

# Unpacks an archive of files into DIR, which is made anew.
unpack_tree() { # archive, DIR
    rm -rf "$2"
    mkdir -p "$2"
    tar -C "$2" --numeric-owner -xpf "$1"
}

# Bits of the smallest power of two that is not less than BYTES, from 20 to 31: what windows are given as.
window_log() {
    local bits=20
    while [ "$bits" -lt 31 ] && [ $((1 << bits)) -lt "$1" ]; do bits=$((bits + 1)); done
    echo "$bits"
}

# The source's own copy at DIR becomes what $NEW is: at first as a whole, then in place as a host changes it. For tools
# that look at path, inode and times, or at which blocks were written.
lay_source() {
    mkdir -p "$1"
    if [ "$KIND" = image ]; then
        cp --sparse=always "$NEW"/*.img "$1/"
    else
        cp -a "$NEW/tree" "$1/tree"
    fi
}
change_source() {
    local image
    if [ "$KIND" = image ]; then
        for image in $(images); do "$FARSIDE_LAB" copy-changed "$OLD/$image" "$NEW/$image" "$1/$image"; done
    else
        rsync -aH --checksum --delete --inplace "$NEW/tree/" "$1/tree/"
    fi
}

# The copy at DIR equals $NEW: images byte by byte; files by content, names, kinds, modes, owners, targets of links,
# number of hard links, and times in whole seconds (archives promise no more).
same() {
    local image
    if [ "$KIND" = image ]; then
        for image in $(images); do cmp "$NEW/$image" "$1/$image" || return; done
    else
        diff <(listing "$NEW/tree") <(listing "$1") | head -n 20 || return
        diff -rq --no-dereference "$NEW/tree" "$1" | head -n 20
    fi
}
listing() {
    (cd "$1" && find . -type d -printf '%p\t%y\t%m\t%U:%G\t%Ts\n' -o -printf '%p\t%y\t%m\t%U:%G\t%Ts\t%n\t%l\n') | sort
}

# Returns when something at this site listens on each of PORT…; seen in the kernel's tables, without a packet.
await_listeners() {
    local port tries=0
    for port in "$@"; do
        until awk -v port="$(printf ':%04X' "$port")" \
            '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' \
            /proc/self/net/tcp*; do
            tries=$((tries + 1))
            [ "$tries" -lt 3000 ] || { echo "nothing listens on port $port after 30 s" >&2 && return 1; }
            sleep 0.01
        done
    done
}
