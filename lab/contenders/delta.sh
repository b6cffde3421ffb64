# shellcheck shell=bash
# Deltas between two generations of one file that both ends, or b alone, keep: an image, or an archive of several images
# or of files. It is $HERE/old/$FILE and, while an update goes on, $HERE/new/$FILE.

# shellcheck source=lab/contenders/data.sh
. "$CONTENDERS/data.sh"

# One volume is its own file. Several are one archive, so that a delta finds in any of them what another one has.
FILE=all.tar
if [ "$KIND" = image ] && [ "$VOLUMES" = 1 ]; then FILE=0.img; fi

# Lays generation NEW at DIR/$FILE: the image, or an archive made now.
lay() { # DIR
    rm -rf "$1"
    mkdir "$1"
    if [ "$FILE" = all.tar ]; then archive "$NEW" >"$1/all.tar"; else cp --sparse=always "$NEW/0.img" "$1/0.img"; fi
}

# Lays $HERE/new at a: the image where it is, or an archive made now.
lay_new() {
    if [ "$FILE" = all.tar ]; then lay "$HERE/new"; else ln -sfn "$NEW" "$HERE/new"; fi
}

# What was new is old from now on.
turn_new_to_old() {
    rm -rf "$HERE/old"
    mv "$HERE/new" "$HERE/old"
}

# What windows are given as: bits of the smallest power of two that is not less than FILE's size, from 20 to 31.
window_log() { # FILE
    local bits=20 size
    size=$(stat -c %s "$1")
    while [ "$bits" -lt 31 ] && [ $((1 << bits)) -lt "$size" ]; do bits=$((bits + 1)); done
    echo "$bits"
}

# All of the old copy in xdelta3's window, as a power of two, up to 1 GiB (above, it refuses or has no memory).
source_window() {
    local log
    log=$(window_log "$HERE/old/$FILE")
    echo $((1 << (log < 30 ? log : 30)))
}

verify_delta() {
    if [ "$FILE" = all.tar ]; then
        unpack "$HERE/old/all.tar" "$HERE/unpacked"
        same "$HERE/unpacked"
        rm -rf "$HERE/unpacked"
    else
        same "$HERE/old"
    fi
}
