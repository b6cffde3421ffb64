# shellcheck shell=bash
# Traffic that boxes cannot make smaller, and traffic that must not wait: the question is what they cost it.

# shellcheck source=lab/contenders/hosts.sh
. "$CONTENDERS/hosts.sh"

# Bytes of a transfer.
TRANSFER_BYTES=${TRANSFER_BYTES:-100000000}

serve_steady() {
    mkdir -p "$HERE/www"
    chmod a+x "$HERE" "$HERE/.."
    head -c "$TRANSFER_BYTES" /dev/urandom >"$HERE/www/payload"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server -days 2 \
        -keyout "$HERE/key.pem" -out "$HERE/cert.pem" 2>/dev/null
    mkdir -p "$HERE/nginx"
    cat >"$HERE/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $HERE/nginx/pid; error_log $HERE/nginx/error.log;
user root;
events { worker_connections 8192; }
http {
    access_log off; sendfile on; keepalive_requests 1000000; keepalive_timeout 3600;
    client_body_temp_path $HERE/nginx/body; proxy_temp_path $HERE/nginx/proxy; fastcgi_temp_path $HERE/nginx/fcgi;
    uwsgi_temp_path $HERE/nginx/uwsgi; scgi_temp_path $HERE/nginx/scgi;
    server {
        listen $SERVER_ADDR:80 backlog=4096; listen $SERVER_ADDR:443 ssl;
        ssl_certificate $HERE/cert.pem; ssl_certificate_key $HERE/key.pem;
        root $HERE/www; location = /empty { return 204; }
    }
}
CONF
    tell_up 80
    ulimit -n 16384
    iperf3 --server --interval 0 >/dev/null &
    "$FARSIDE_LAB" answer "$SERVER_ADDR:7500" --bytes 1 &
    exec nginx -c "$HERE/nginx.conf" -e "$HERE/nginx/error.log"
}

# MB/s of a download, by curl's own clock.
download() { # URL
    curl -sS --fail --insecure -o /dev/null -w '%{speed_download}\n' "$1" | awk '{ print $1 / 1e6 }' >"$HERE/rate"
}

measure_steady() {
    local figure
    for figure in rate p99 per-second failed; do echo 0 >"$HERE/$figure"; done
    case $JOB in
    noise) download "http://$SERVER_ADDR/payload" ;;
    tls) download "https://$SERVER_ADDR/payload" ;;
    iperf3) iperf3 --client "$SERVER_ADDR" --reverse --time 5 --json | jq '.end.sum_received.bits_per_second / 8e6' >"$HERE/rate" ;;
    chat)
        # A request of 100 bytes and an answer of one, 200 a second.
        "$FARSIDE_LAB" ask "$SERVER_ADDR:7500" --bytes 1 --every 5ms --for 10s >"$HERE/asked"
        jq .p99_ms "$HERE/asked" >"$HERE/p99"
        jq '.asked - .answered' "$HERE/asked" >"$HERE/failed"
        ;;
    # A thousand connections a second, each counted from when it was due.
    visits)
        "$FARSIDE_LAB" visit "$SERVER_ADDR:80" --path /empty --every 1ms --for 5s >"$HERE/asked" 2>"$HERE/visits"
        jq .p99_ms "$HERE/asked" >"$HERE/p99"
        jq '.asked - .answered' "$HERE/asked" >"$HERE/failed"
        ;;
    short) short_connections 5000 ;;
    short-beside-idle)
        hold_idle 2000
        short_connections 2000
        count_idle 2000
        ;;
    *) echo "no job $JOB" >&2; exit 2 ;;
    esac
}

# One request each, 16 at a time.
short_connections() { # count
    ab -q -n "$1" -c 16 -s 10 "http://$SERVER_ADDR/empty" >"$HERE/ab"
    awk '/^Requests per second/ { print $4 }' "$HERE/ab" >"$HERE/per-second"
    awk '$1 == "99%" { print $2 }' "$HERE/ab" >"$HERE/p99"
    awk -v all="$1" '/^Complete requests/ { done = $3 } /^Failed requests/ { failed = $3 } END { print all - done + failed }' "$HERE/ab" >"$HERE/failed"
}

# So many connections that say something once, and then nothing. In one write each: a request in two packets waits 40 ms for a
# delayed acknowledgement.
declare -a held=()
request=$'GET /empty HTTP/1.1\r\nHost: s\r\n\r'
hold_idle() { # count
    local connection line
    ulimit -n 16384
    for ((connection = 0; connection < $1; connection++)); do
        exec {fd}<>"/dev/tcp/$SERVER_ADDR/80"
        cat <<<"$request" >&"$fd"
        IFS= read -r -t 10 line <&"$fd" || true
        held+=("$fd")
    done
}

# Those that do not answer once more count as failed.
count_idle() { # count
    local fd line failed
    failed=$(cat "$HERE/failed")
    for fd in "${held[@]}"; do
        cat <<<"$request" 1>&"$fd" 2>/dev/null || true
        # What is left of the first answer, and the second one's first line.
        while IFS= read -r -t 10 line <&"$fd"; do
            case $line in HTTP/*) continue 2 ;; esac
        done
        failed=$((failed + 1))
    done
    echo "$failed" >"$HERE/failed"
}
