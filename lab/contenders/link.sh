# shellcheck shell=bash
# For the probes of a link.

# The device through which packets go to the address $1.
device_to() {
    ip -o route get "$1" | sed -E 's/.* dev ([^ ]+).*/\1/'
}

# Sets `bytes` to what device $1 has received, and `at` to the time in microseconds. The kernel's own counter, of IP
# packets with their headers. Counted again if the shell lost the processor in between for more than 2 ms.
sample() {
    local line before tries=0
    while :; do
        before=${EPOCHREALTIME/./}
        while read -r line; do
            case $line in
            "$1:"*) read -r bytes _ <<<"${line#*:}" ;;
            esac
        done </proc/self/net/dev
        at=${EPOCHREALTIME/./}
        if ((at - before < 2000 || ++tries >= 50)); then
            return
        fi
    done
}

# Writes the rate at which device $1 receives, in Mb/s of IP packets, to the file $2: from half a second after the first
# hundred packets on, for $3 seconds. Gives up if these do not come within 30 s.
receiving_rate() {
    local bytes at from_bytes from_at tries=0
    # Beside senders that have it, too.
    renice -n -20 -p "$BASHPID" >/dev/null
    sample "$1"
    from_bytes=$bytes
    while ((bytes < from_bytes + 50000)); do
        ((++tries <= 600)) || { echo "no packets arrive at $1" >&2; return 1; }
        sleep 0.05
        sample "$1"
    done
    sleep 0.5
    sample "$1"
    from_bytes=$bytes from_at=$at
    sleep "$3"
    sample "$1"
    awk -v bits=$(((bytes - from_bytes) * 8)) -v us=$((at - from_at)) 'BEGIN { printf "%.6f\n", bits / us }' >"$2"
}

# Options of iperf3 that overload the link: half more than it carries. Datagrams fill whole packets: small ones on slow
# lines, so that one packet more or less does not count; ten packets each on fast ones, so that sending costs little.
overload() {
    local length=1472
    ((LINK_RATE_BITS >= 10000000)) || length=472
    ((LINK_RATE_BITS <= 100000000)) || length=14792
    echo "--udp --length $length --bitrate $((LINK_RATE_BITS * 3 / 2))"
}
