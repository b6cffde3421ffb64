# shellcheck shell=bash
# borg: `borg serve` behind a TCP port at b, instead of behind ssh, whose encryption no other contender has.

# shellcheck source=lab/contenders/data.sh
. "$CONTENDERS/data.sh"

borg_environment() {
    export BORG_BASE_DIR=$HERE/borg BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
    export BORG_RSH=$HERE/rsh
}

serve_borg() {
    borg_environment
    exec socat TCP-LISTEN:9100,fork,reuseaddr EXEC:"borg serve --restrict-to-path $HERE"
}

# The repository is not encrypted, so that what is compared is what goes over the link for the data.
prepare_borg() {
    borg_environment
    # shellcheck disable=SC2016 # for the script to expand
    printf '#!/bin/sh\nexec nc -N "$B_ADDR" 9100\n' >"$HERE/rsh"
    chmod +x "$HERE/rsh"
    borg init -e none "ssh://b$B_HERE/repository"
    lay_source "$HERE/source"
}

push_borg() { # options of compression and chunks
    borg_environment
    cd "$HERE/source" || return
    borg create "$@" "ssh://b$B_HERE/repository::$GENERATION" .
}

verify_borg() {
    borg_environment
    rm -rf "$HERE/restored"
    mkdir "$HERE/restored"
    cd "$HERE/restored" || return
    borg extract --sparse --numeric-ids "$HERE/repository::$GENERATION"
    if [ "$KIND" = image ]; then same "$HERE/restored"; else same "$HERE/restored/tree"; fi
    rm -rf "$HERE/restored"
}
