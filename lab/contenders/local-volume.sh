# shellcheck shell=bash
# One volume of a site, and fio as its host: how fast is it, whoever serves it? SERVER names who does: farside, qemu-raw or
# qemu-qcow2 (over a backing file that has all the content, as after one snapshot), or nbdkit (its file plugin). CACHE is none or
# writeback; farside keeps in the page cache what was read then, never what was written.

VOLUME_BYTES=$((1 << 30))
SECONDS_EACH=4

serve_local_volume() {
    case $SERVER in
    farside)
        printf '[hosts]\npage_cache = %s\n' "$([ "$CACHE" = none ] && echo false || echo true)" >farside.toml
        exec "$FARSIDE_BIN/farsided" --data-dir /proc/self/cwd --name "$SITE" --http off --peer-listen off
        ;;
    qemu-raw)
        truncate -s "$VOLUME_BYTES" volume.img
        exec qemu-nbd --socket="$HERE/nbd.sock" --persistent --shared=8 --cache="$CACHE" --aio="$(aio)" --discard=unmap --format=raw volume.img
        ;;
    qemu-qcow2)
        qemu-img create -q -f raw base.img "$VOLUME_BYTES"
        head -c "$VOLUME_BYTES" /dev/urandom | dd of=base.img bs=1M iflag=fullblock conv=notrunc status=none
        sync base.img
        qemu-img create -q -f qcow2 -F raw -b base.img volume.img
        exec qemu-nbd --socket="$HERE/nbd.sock" --persistent --shared=8 --cache="$CACHE" --aio="$(aio)" --discard=unmap --format=qcow2 volume.img
        ;;
    nbdkit)
        truncate -s "$VOLUME_BYTES" volume.img
        exec nbdkit --foreground --unix "$HERE/nbd.sock" file volume.img cache="$([ "$CACHE" = none ] && echo none || echo default)"
        ;;
    *) echo "no server $SERVER: write farside, qemu-raw, qemu-qcow2 or nbdkit" >&2; exit 2 ;;
    esac
}

# The kernel's own asynchronous I/O works past the page cache alone.
aio() { if [ "$CACHE" = none ]; then echo native; else echo io_uring; fi; }

# Relative: the kernel takes no path of more than 107 bytes for a socket.
volume_uri() {
    if [ "$SERVER" = farside ]; then echo 'nbd+unix:///tank/volume?socket=nbd.sock'; else echo 'nbd+unix:///?socket=nbd.sock'; fi
}

farside_here() { FARSIDE_SOCKET=farside.sock "$FARSIDE_BIN/farside" "$@"; }

prepare_local_volume() {
    cd "$HERE" || return
    if [ "$SERVER" = farside ]; then
        farside_here pool create tank --path "$HERE/tank.pool" --size $((6 * VOLUME_BYTES))
        farside_here volume create tank/volume --size "$VOLUME_BYTES"
    fi
    head -c "$VOLUME_BYTES" /dev/urandom | nbdcopy --flush --destination-is-zero - "$(volume_uri)"
}

# One job of fio; its result is NAME.json. What it left in the server's memory is written before the next begins.
host_job() { # NAME, options of fio…
    fio --name="$1" --ioengine=nbd --uri="$(volume_uri)" --size="$VOLUME_BYTES" --time_based --runtime="$SECONDS_EACH" --randrepeat=1 \
        --output-format=json --output="$1.json" "${@:2}"
    qemu-io --format=raw --cmd=flush "$(volume_uri)"
    sync .
}

# A snapshot every second, and the one before the last deleted: as a mirror at one second does.
snapshots_beside() { # pid of what they are taken beside
    local number=0
    [ "$SERVER" = farside ] || return 0
    while kill -0 "$1" 2>/dev/null; do
        farside_here snapshot create "tank/volume@s$number" >/dev/null
        if [ "$number" -ge 2 ]; then farside_here snapshot delete "tank/volume@s$((number - 2))" --yes >/dev/null; fi
        number=$((number + 1))
        sleep 1
    done
}

measure_local_volume() {
    cd "$HERE" || return
    host_job read-4k --rw=randread --bs=4k --iodepth=32
    host_job write-128k --rw=write --bs=128k --iodepth=8
    host_job read-128k --rw=read --bs=128k --iodepth=8
    host_job write-4k --rw=randwrite --bs=4k --iodepth=32
    host_job flushed-4k --rw=randwrite --bs=4k --iodepth=1 --fsync=1
    host_job mixed-8k --rw=randrw --rwmixread=70 --bs=8k --iodepth=30
    # At once after it: a sequential write between the two would lay the blocks side by side again.
    host_job mixed-8k-snapshots --rw=randrw --rwmixread=70 --bs=8k --iodepth=30 &
    snapshots_beside $!
    wait
    host_job write-1k --rw=randwrite --bs=1k --iodepth=32
    # Of a volume that has been written at random: its blocks do not lie side by side any more.
    host_job aged-write-128k --rw=write --bs=128k --iodepth=8
}

# Operations a second.
job_iops() { # NAME
    sed -n '/^{/,$p' "$HERE/$1.json" | jq '.jobs[0] | .read.iops + .write.iops'
}

# MB a second.
job_rate() { # NAME
    sed -n '/^{/,$p' "$HERE/$1.json" | jq '.jobs[0] | (.read.bw_bytes + .write.bw_bytes) / 1e6'
}

# The slowest of a hundred, ms, reads or writes, whichever is slower.
job_p99() { # NAME
    sed -n '/^{/,$p' "$HERE/$1.json" | jq '.jobs[0] | [.read, .write] | map(.clat_ns.percentile["99.000000"] // 0) | max / 1e6'
}
