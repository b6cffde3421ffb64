# shellcheck shell=bash
# Real farside sites on this machine, for scripts to source: each a daemon below $SITES on loopback, met by peers on a
# port the kernel chose, and without HTTP. Sites are stopped by the process id they were started with; nothing else is
# ever signalled.
#
# Needs: SITES, an existing directory; farside and farsided on the PATH. Gives: start_site NAME, kill_site NAME SIGNAL,
# stop_all_sites, at NAME COMMAND…, and site_address[NAME], where its peers dial it. Of several daemons of one site each has a NAME here;
# site_called[NAME] is what the site is called.

declare -A site_pid site_address site_called
site_ready_seconds=30

# Runs a command as the administrator of site NAME would: `farside` finds that site's daemon.
at() {
    local site=$1
    shift
    FARSIDE_SOCKET=$SITES/$site/farside.sock DATA=$SITES/$site "$@"
}

# Starts, or starts again, the daemon of site NAME, and returns when it answers. Once chosen, its address stays.
start_site() {
    local site=$1 deadline=$((SECONDS + site_ready_seconds))
    mkdir -p "$SITES/$site"
    # A session of its own, so that Ctrl-C reaches this script, which then stops the daemon in order.
    setsid farsided --data-dir "$SITES/$site" --name "${site_called[$site]:-$site}" --http off \
        --peer-listen "${site_address[$site]:-127.0.0.1:0}" </dev/null >>"$SITES/$site.log" 2>&1 &
    site_pid[$site]=$!
    # The control socket is there first, then where peers are met; one that stands by meets none.
    until at "$site" farside pool list >/dev/null 2>&1 &&
        { [ -s "$SITES/$site/peer.addr" ] || [ -n "${site_called[$site]:-}" ]; }; do
        if ! kill -0 "${site_pid[$site]}" 2>/dev/null; then
            echo "the daemon of $site ended while starting; its log:" >&2
            tail -n 20 "$SITES/$site.log" >&2
            return 1
        elif [ "$SECONDS" -ge "$deadline" ]; then
            echo "the daemon of $site did not answer within $site_ready_seconds s; its log:" >&2
            tail -n 20 "$SITES/$site.log" >&2
            return 1
        fi
        sleep 0.05
    done
    if [ -s "$SITES/$site/peer.addr" ]; then site_address[$site]=$(<"$SITES/$site/peer.addr"); fi
}

# Sends SIGNAL to the daemon of site NAME and waits for its end. SIGTERM must end it well.
kill_site() {
    local site=$1 signal=$2 status=0
    kill -s "$signal" "${site_pid[$site]}"
    wait "${site_pid[$site]}" 2>/dev/null || status=$?
    unset "site_pid[$site]"
    if [ "$signal" = TERM ] && [ "$status" != 0 ]; then
        echo "the daemon of $site ended with status $status on SIGTERM; its log:" >&2
        tail -n 20 "$SITES/$site.log" >&2
        return 1
    fi
}

# For a trap: ends what still runs, gently, then not.
stop_all_sites() {
    local site pid
    for site in "${!site_pid[@]}"; do
        pid=${site_pid[$site]}
        kill -TERM "$pid" 2>/dev/null || continue
        for _ in {1..100}; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}
