# shellcheck shell=bash
# Real farside sites on this machine, for scripts to source: each a daemon below $SITES on loopback, with a free port
# for peers and no HTTP. Sites are stopped by the process id they were started with, nothing else is ever signalled.
#
# Needs: SITES, an existing directory. Gives: start_site NAME, kill_site NAME SIGNAL, stop_all_sites, at NAME COMMAND…

declare -A site_pid site_port
site_ready_seconds=30

# A port nobody listens on, from below the range the kernel hands out itself, so that it stays free until used.
free_port() {
    local port
    for _ in {1..50}; do
        port=$((RANDOM % 12000 + 20000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    echo "no free port between 20000 and 32000 in 50 attempts" >&2
    return 1
}

# Runs a command as the administrator of site NAME would: `farside` finds that site's daemon.
at() {
    local site=$1
    shift
    FARSIDE_SOCKET=$SITES/$site/farside.sock DATA=$SITES/$site "$@"
}

# Starts, or starts again, the daemon of site NAME, and returns when it answers.
start_site() {
    local site=$1 deadline=$((SECONDS + site_ready_seconds))
    mkdir -p "$SITES/$site"
    [ -n "${site_port[$site]:-}" ] || site_port[$site]=$(free_port)
    # A session of its own, so that Ctrl-C reaches this script, which then stops the daemon in order.
    setsid farsided --data-dir "$SITES/$site" --name "$site" --http off \
        --peer-listen "127.0.0.1:${site_port[$site]}" </dev/null >>"$SITES/$site.log" 2>&1 &
    site_pid[$site]=$!
    until at "$site" farside pool list >/dev/null 2>&1; do
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
