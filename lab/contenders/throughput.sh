# shellcheck shell=bash
# How long to send, from when on a rate counts as steady, and what of it arrived.

# Whole seconds that the line needs for the link's portion of data, at least 2.
portion_seconds() {
    local seconds=$(((PORTION_BYTES * 8 + LINK_RATE_BITS - 1) / LINK_RATE_BITS))
    echo $((seconds < 2 ? 2 : seconds))
}

# When the steady state begins: after 20 round trips, and half a second at least.
steady_from() {
    awk -v rtt="$LINK_RTT_MS" 'BEGIN { from = rtt * 20 / 1000; print from < 0.5 ? 0.5 : from }'
}

# What iperf3's server received, Mb/s, from second $1 until the sender's end.
received_mbit() {
    jq --argjson from "$1" --argjson until "$(portion_seconds)" '
        [.intervals[].sum | select(.start >= $from - 0.01 and .end <= $until + 0.05)]
        | (map(.bytes) | add) * 8 / 1e6 / (map(.seconds) | add)' "$HERE/iperf3.json"
}
