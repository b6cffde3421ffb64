# shellcheck shell=bash
# How long to send, and what of it arrived.

# Whole seconds that the line needs for the link's portion of data, at least 2.
portion_seconds() {
    local seconds=$(((PORTION_BYTES * 8 + LINK_RATE_BITS - 1) / LINK_RATE_BITS))
    echo $((seconds < 2 ? 2 : seconds))
}

# What iperf3's server received until the sender's end, Mb/s.
received_mbit() {
    jq --argjson until "$(portion_seconds)" '
        [.intervals[].sum | select(.end <= $until + 0.05)]
        | (map(.bytes) | add) * 8 / 1e6 / (map(.seconds) | add)' "$HERE/iperf3.json"
}
