# shellcheck shell=bash
# farside with pieces of one image as volumes: for experiments about links, where only the amount of data matters.

# shellcheck source=lab/contenders/farside.sh
. "$CONTENDERS/farside.sh"
# shellcheck source=lab/contenders/portion.sh
. "$CONTENDERS/portion.sh"

# How many volumes, where a variant says it.
pieces() { echo "${VOLUME_COUNT:-1}"; }

# Room for every volume twice, beside the journal; the file is sparse.
create_pool() { # name
    # shellcheck disable=SC2153 # HERE is the environment's
    farside_at "$SITE" pool create "$1" --path "$HERE/$1.pool" --size $(($(pieces) * $(piece_bytes) * 3 + (1 << 30)))
}

# Volume N becomes piece N of the image.
write_piece() { # N, number of the piece, options of nbdcopy
    cd "$A_HERE" || return
    piece "$2" | nbdcopy --flush "${@:3}" - "nbd+unix:///tank/$1?socket=nbd.sock"
}

# As prepare_farside_source; words for `mirror create` may follow.
prepare_pieces() { # words for mirror create
    local volume allowed=()
    create_pool tank
    for volume in $(seq 0 $(($(pieces) - 1))); do
        farside_at a volume create "tank/$volume" --size "$(piece_bytes)"
        allowed+=("tank/$volume")
        write_piece "$volume" "$volume" --destination-is-zero
    done
    farside_at a peer invite >"$HERE/invitation"
    farside_at b peer join "$A_ADDR:7440" --code-file "$HERE/invitation"
    farside_at a peer allow b "${allowed[@]}"
    for volume in $(seq 0 $(($(pieces) - 1))); do
        farside_at b mirror create "a:tank/$volume" "vault/$volume" "$@"
    done
}

# Volume N, read back at b, is piece M; and the content root that b computed is that of a's newest snapshot.
verify_piece() { # N, M
    local root
    cd "$HERE" || return
    nbdcopy "nbd+unix:///vault/$1?socket=nbd.sock" - | cmp - <(piece "$2")
    root=$(farside_at b mirror status "vault/$1" --json | jq -er '.[0].content_root')
    farside_at a snapshot list "tank/$1" --json |
        jq -e --arg root "$root" 'max_by(.created_at).content_root == $root'
}

# A daemon that is started again whenever it ends; its process is in daemon.pid.
serve_again() { # ADDRESS:PORT for peers, or off
    local daemon
    while :; do
        serve_farside "$1" &
        daemon=$!
        echo "$daemon" >"$HERE/daemon.pid"
        wait "$daemon" || true
        sleep 0.2
    done
}

# Volume N's copy is whole. One that nobody is making is asked for again; a daemon that does not answer comes again.
copied() { # N
    local state
    state=$(farside_at b mirror status "vault/$1" --json | jq -r '.[0].state') || return 1
    if [ "$state" = uninitialized ]; then farside_at b mirror initialize "vault/$1" --no-wait || true; fi
    [ "$state" = mirrored ]
}
