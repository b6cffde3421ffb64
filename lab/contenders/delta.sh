# shellcheck shell=bash
# Deltas between two generations of files that both ends, or b alone, keep.

# shellcheck source=lab/contenders/data.sh
. "$CONTENDERS/data.sh"

# Both ends hold the old generation as files FILE…: images, or one archive of the files. At $HERE/old and, while
# an update comes in, $HERE/new.
delta_files() { if [ "$KIND" = image ]; then images; else echo tree.tar; fi; }

# Lays the first generation, uncounted.
lay_old() {
    mkdir -p "$HERE/old"
    if [ "$KIND" = image ]; then cp --sparse=always "$NEW"/*.img "$HERE/old/"; else archive "$NEW" >"$HERE/old/tree.tar"; fi
}

# Lays $HERE/new at a: the images where they are, or an archive made now.
lay_new() {
    rm -rf "$HERE/new"
    if [ "$KIND" = image ]; then
        ln -s "$NEW" "$HERE/new"
    else
        mkdir "$HERE/new"
        archive "$NEW" >"$HERE/new/tree.tar"
    fi
}

# What was new is old from now on.
turn_new_to_old() {
    rm -rf "$HERE/old"
    mv "$HERE/new" "$HERE/old"
}

# Runs COMMAND FILE PORT for each file that differs are made of, all at the same time; fails if one fails.
each_delta() {
    local file pid pids=() port=9000
    for file in $(delta_files); do
        "$@" "$file" "$port" &
        pids+=($!)
        port=$((port + 2))
    done
    for pid in "${pids[@]}"; do wait "$pid" || return; done
}

# As each_delta at the receiving end, and tells with $HERE/listening when PORTS_EACH ports of each file are open.
receive_deltas() { # PORTS_EACH, COMMAND…
    local each=$1 count receiving
    shift
    rm -rf "$HERE/new"
    mkdir "$HERE/new"
    each_delta "$@" &
    receiving=$!
    count=$(delta_files | wc -l)
    # shellcheck disable=SC2046 # numbers
    await_listeners $(for ((file = 0; file < count; file++)); do seq $((9000 + 2 * file)) $((8999 + 2 * file + each)); done)
    touch "$HERE/listening"
    wait "$receiving"
    rm "$HERE/listening"
    turn_new_to_old
}

verify_delta() {
    if [ "$KIND" = image ]; then
        same "$HERE/old"
    else
        unpack_tree "$HERE/old/tree.tar" "$HERE/unpacked"
        same "$HERE/unpacked"
        rm -rf "$HERE/unpacked"
    fi
}

# All of the old copy in xdelta3's window, as a power of two, up to 1 GiB (above, it refuses or has no memory).
source_window() { # file
    local log
    log=$(window_log "$(stat -L -c %s "$1")")
    echo $((1 << (log < 30 ? log : 30)))
}
