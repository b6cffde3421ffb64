# shellcheck shell=bash
# A host's load on the source: 8 KiB at random, 70 % reads, 30 at a time, as the EqualLogic paper's.

# shellcheck source=lab/contenders/farside-link.sh
. "$CONTENDERS/farside-link.sh"

LOAD_BYTES=$((256 << 20))

prepare_load() {
    farside_at a volume create tank/load --size "$LOAD_BYTES"
    (cd "$A_HERE" && head -c "$LOAD_BYTES" /dev/urandom |
        nbdcopy --flush --destination-is-zero - "nbd+unix:///tank/load?socket=nbd.sock")
}

# Takes the place of the (sub)shell that calls it.
load() { # seconds, name of the result
    cd "$A_HERE" || return
    exec fio --name=load --ioengine=nbd --uri="nbd+unix:///tank/load?socket=nbd.sock" --rw=randrw --rwmixread=70 --bs=8k \
        --iodepth=30 --time_based --runtime="$1" --size="$LOAD_BYTES" --output-format=json --output="$HERE/$2.json"
}

# Until the copies are there.
load_until_done() {
    local fio
    load 86400 beside &
    fio=$!
    until [ -e "$B_HERE/done" ]; do sleep 0.05; done
    kill -TERM "$fio"
    # It ends in order, and says by its status that it was told to.
    wait "$fio" || true
}

iops() { # name of the result
    if [ -e "$HERE/$1.json" ]; then
        # Words about a signal may stand before the JSON.
        sed -n '/^{/,$p' "$HERE/$1.json" | jq '.jobs[0] | .read.iops + .write.iops'
    else
        echo 0
    fi
}
