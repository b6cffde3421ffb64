# Sourced by scripts that install packages: apt-get that waits for another one, and tries again what the network refused.
# The caller has set `as_root` (empty, or sudo) and needs bash.
#
# On every freshly booted cloud machine the system's own updates hold apt's and dpkg's locks for minutes, and the network may
# come up later than the user.

# Seconds to wait in all for locks that others hold, and between two looks.
apt_lock_wait=${FARSIDE_APT_LOCK_WAIT:-600}
apt_lock_poll=${FARSIDE_APT_LOCK_POLL:-5}
# How often downloads are tried, and seconds between.
apt_tries=3
apt_retry_pause=${FARSIDE_APT_RETRY_PAUSE:-10}

# apt_get LOG ARGUMENT…: apt-get's output is in LOG afterwards, of the last try. Status: apt-get's.
apt_get() {
    local log=$1 waited=0 told=-1 tries=1 status holder
    shift
    while :; do
        status=0
        # LC_ALL: the messages below are told by their words. Acquire::Retries: apt's own, for single files.
        # Error-Mode: without it an update that reached nothing counts as done.
        "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get \
            -o Acquire::Retries=3 -o APT::Update::Error-Mode=any "$@" >"$log" 2>&1 || status=$?
        [ "$status" != 0 ] || return 0
        if holder=$(apt_lock_holder "$log"); then
            if [ "$waited" -ge "$apt_lock_wait" ]; then
                echo "apt-get: $holder still after $waited seconds; giving up. Run this again when it has ended" >&2
                return "$status"
            fi
            if [ "$told" -lt 0 ] || [ $((waited - told)) -ge 30 ]; then
                echo "apt-get: $holder; waiting for it, $((apt_lock_wait - waited)) seconds at most" >&2
                told=$waited
            fi
            sleep "$apt_lock_poll"
            waited=$((waited + apt_lock_poll))
        elif [ "$tries" -lt "$apt_tries" ] && grep -qE 'Failed to fetch|Unable to fetch|Temporary failure resolving|Could not resolve|Hash Sum mismatch' "$log"; then
            echo "apt-get: a download failed ($(grep -m 1 -oE '(Failed to fetch|Could not resolve|Unable to fetch).*' "$log")); trying again in $apt_retry_pause seconds" >&2
            sleep "$apt_retry_pause"
            tries=$((tries + 1))
        else
            return "$status"
        fi
    done
}

# Says who holds which lock, if that is why apt-get failed:
#   E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1234 (apt-get)
#   dpkg: error: dpkg frontend lock was locked by another process with pid 1234
apt_lock_holder() { # log
    local line lock process
    line=$(grep -m 1 -E 'Could not get lock |dpkg .*lock(ed)? was locked by another process|is locked by another process' "$1") || return 1
    lock=$(grep -oE '/[^ ]*lock[^ .]*' <<<"$line" | head -n 1) || true
    process=$(sed -nE 's/.*process (with pid )?([0-9]+ ?(\([^)]*\))?).*/\2/p' <<<"$line")
    echo "${lock:-the lock of dpkg} is held by ${process:+process }${process:-another process}"
}
