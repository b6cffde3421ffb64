# shellcheck shell=bash
# farside: a daemon and a pool at each site.

# shellcheck source=lab/contenders/data.sh
. "$CONTENDERS/data.sh"

# Sockets are named by way of the current directory: the kernel takes no path of more than 107 bytes for one, and a
# run's directory may be deeper.
farside_at() { # site, words…
    local here=$A_HERE
    if [ "$1" = b ]; then here=$B_HERE; fi
    (cd "$here" && FARSIDE_SOCKET=farside.sock "$FARSIDE_BIN/farside" "${@:2}")
}

serve_farside() { # ADDRESS:PORT for peers, or off; lines of the configuration
    # shellcheck disable=SC2153 # HERE is the environment's
    printf '%s\n' "${@:2}" >"$HERE/farside.toml"
    exec "$FARSIDE_BIN/farsided" --data-dir /proc/self/cwd --name "$SITE" --http off --peer-listen "$1"
}

volumes() { seq 0 $((VOLUMES - 1)); }

# One after the other: what a volume has in common with those before it is there when it comes.
initialize_farside() {
    local volume
    for volume in $(volumes); do farside_at b mirror initialize "vault/$volume" || return; done
}

update_farside() {
    local volume
    for volume in $(volumes); do farside_at b mirror update "vault/$volume" || return; done
}

# A figure in MB: the sum of EXPRESSION over the newest transfer of each volume, or of VOLUME's alone.
history_mb() { # expression of jq, VOLUME or nothing
    local volume
    for volume in ${2:-$(volumes)}; do
        farside_at b mirror history "vault/$volume" --json | jq ".[0] | $1"
    done | jq -s 'add / 1e6'
}

# Room for every generation whole, beside the journal; the file is sparse.
create_pool() { # name
    # shellcheck disable=SC2153 # HERE is the environment's
    farside_at "$SITE" pool create "$1" --path "$HERE/$1.pool" \
        --size $(($(du -cB1 --apparent-size "$NEW"/*.img | tail -n 1 | cut -f 1) * 4 + (1 << 30)))
}

prepare_farside_destination() {
    create_pool vault
}

# b has its pool by now. Both sites are of one administrator here: a's script speaks to b's daemon, too.
prepare_farside_source() {
    local volume allowed=()
    create_pool tank
    for volume in $(volumes); do
        farside_at a volume create "tank/$volume" --size "$(stat -c %s "$NEW/$volume.img")"
        allowed+=("tank/$volume")
    done
    write_volumes --destination-is-zero
    farside_at a peer invite >"$HERE/invitation"
    farside_at b peer join "$A_ADDR:7440" --code-file "$HERE/invitation"
    farside_at a peer allow b "${allowed[@]}"
    for volume in $(volumes); do farside_at b mirror create "a:tank/$volume" "vault/$volume"; done
}

# Blocks that are equal already are written again; fingerprints see that they did not change.
write_volumes() { # options of nbdcopy
    local volume
    cd "$A_HERE" || return
    for volume in $(volumes); do
        nbdcopy --flush "$@" "$NEW/$volume.img" "nbd+unix:///tank/$volume?socket=nbd.sock"
    done
}

# Read back byte for byte, and the content root that b computed is that of a's newest snapshot.
verify_farside() {
    local volume root
    rm -rf "$HERE/restored"
    mkdir "$HERE/restored"
    cd "$HERE" || return
    for volume in $(volumes); do
        nbdcopy "nbd+unix:///vault/$volume?socket=nbd.sock" "$HERE/restored/$volume.img"
        cmp "$NEW/$volume.img" "$HERE/restored/$volume.img"
        root=$(farside_at b mirror status "vault/$volume" --json | jq -er '.[0].content_root')
        farside_at a snapshot list "tank/$volume" --json |
            jq -e --arg root "$root" 'max_by(.created_at).content_root == $root'
        rm "$HERE/restored/$volume.img"
    done
}
