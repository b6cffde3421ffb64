# shellcheck shell=bash
# How much of the data a link carries: the experiment says it (PORTION_BYTES), or it is all of the image.

piece_bytes() { if [ -n "$PORTION_BYTES" ]; then echo "$PORTION_BYTES"; else stat -c %s "$NEW/0.img"; fi; }

# Piece N of the image, counted from 0: so many bytes that no other piece has.
piece() { # N
    local bytes size
    bytes=$(piece_bytes)
    size=$(stat -c %s "$NEW/0.img")
    if ((bytes * ($1 + 1) > size)); then
        echo "the image has $size bytes, too few for piece $1 of $bytes: give the data set a larger size" >&2
        return 1
    fi
    dd if="$NEW/0.img" bs=1M iflag=skip_bytes,count_bytes skip=$((bytes * $1)) count="$bytes" status=none
}

# MB of so many pieces.
pieces_mb() { # count
    awk -v bytes="$(piece_bytes)" -v count="$1" 'BEGIN { printf "%.6f\n", bytes * count / 1e6 }'
}
