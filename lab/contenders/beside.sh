# shellcheck shell=bash
# A mirror beside other traffic in the same direction, from a to b.

# shellcheck source=lab/contenders/farside.sh
. "$CONTENDERS/farside.sh"

# Until the mirror has its rate, and how long the others are measured then.
LEAD_SECONDS=8
MEASURE_SECONDS=30

# More than the line carries in the time.
VOLUME_BYTES=$((LINK_RATE_BITS * (LEAD_SECONDS + MEASURE_SECONDS + 20) / 8 / 4096 * 4096))

prepare_beside() {
    local terms=()
    farside_at a pool create tank --path "$HERE/tank.pool" --size 2G
    farside_at a volume create tank/0 --size "$VOLUME_BYTES"
    (cd "$HERE" && head -c "$VOLUME_BYTES" /dev/urandom |
        nbdcopy --flush --destination-is-zero - "nbd+unix:///tank/0?socket=nbd.sock")
    case $MIRROR in
    none | full) ;;
    # Half of the line.
    throttled) terms=(--throttle "$((LINK_RATE_BITS / 2 / 1000))kbit/s") ;;
    low) terms=(--priority low) ;;
    esac
    farside_at a peer invite >"$HERE/invitation"
    farside_at b peer join "$A_ADDR:7440" --code-file "$HERE/invitation"
    farside_at a peer allow b tank/0
    farside_at b mirror create a:tank/0 vault/0 "${terms[@]}"
}

# What a has to do: answer, and send greedily where that is wanted. Both end when b does.
serve_beside() {
    "$FARSIDE_LAB" answer "$A_ADDR:7500" --bytes 1000 &
    if [ "$GREEDY" = greedy ]; then
        until [ -e "$B_HERE/listens" ]; do sleep 0.1; done
        iperf3 --client "$B_ADDR" --time $((LEAD_SECONDS + MEASURE_SECONDS)) --json >"$HERE/iperf3.json"
    fi
    wait
}

mirror_bytes() { farside_at b mirror status vault/0 --json | jq '.[0].transfer.wire_bytes // 0'; }

measure_beside() {
    local before after
    echo 0 >"$HERE/greedy-mbit"
    if [ "$GREEDY" = greedy ]; then
        iperf3 --server --one-off --interval 1 --json >"$HERE/iperf3.json" &
        until ss -Hltn 'sport = :5201' | grep -q .; do sleep 0.1; done
        touch "$HERE/listens"
    fi
    if [ "$MIRROR" != none ]; then farside_at b mirror initialize vault/0 --no-wait; fi
    sleep "$LEAD_SECONDS"
    before=$(mirror_bytes)
    "$FARSIDE_LAB" ask "$A_ADDR:7500" --bytes 1000 --every 50ms --for "${MEASURE_SECONDS}s" >"$HERE/asked.json"
    after=$(mirror_bytes)
    awk -v bytes=$((after - before)) -v seconds="$MEASURE_SECONDS" 'BEGIN { print bytes * 8 / 1e6 / seconds }' >"$HERE/mirror-mbit"
    if [ "$GREEDY" = greedy ]; then
        wait
        jq --argjson from "$LEAD_SECONDS" '[.intervals[].sum | select(.start >= $from)] |
            (map(.bytes) | add) * 8 / 1e6 / (map(.seconds) | add)' "$HERE/iperf3.json" >"$HERE/greedy-mbit"
    fi
}
