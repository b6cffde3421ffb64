# shellcheck shell=bash
# A server behind a and a client behind b, with programs that know nothing of what stands in their path. PROGRAM names what
# brings the payload over: http, ftp, ftp-up (the client sends), rsync, postgres, ssh or ssh-c (ssh -C).

# shellcheck source=lab/contenders/data.sh
. "$CONTENDERS/data.sh"
# shellcheck source=lab/contenders/portion.sh
. "$CONTENDERS/portion.sh"

# --- The server ----------------------------------------------------------------------------------------------------

# The file `up` appears once something listens at PORT; the service itself comes after this. Not its child: vsftpd ends when
# a child ends that it does not know.
tell_up() { # PORT
    (
        (
            until ss -ltnH | grep -q ":$1 "; do sleep 0.05; done
            touch "$HERE/up"
        ) &
    )
}

# The blocks of the image that are not zero, from its second eighth on: files, and not the tables and the free space of the
# file system that they are in.
contents() {
    local skip
    skip=$(($(stat -c %s "$NEW/0.img") / 8 / 4096 * 4096))
    # head wants no more than it needs.
    { tail -c +$((skip + 1)) "$NEW/0.img" 2>/dev/null || true; } |
        perl -e '$/ = \4096; $zero = "\0" x 4096; while (<STDIN>) { print unless $_ eq $zero }' || true
}

# The payload of this generation, in the directory that servers serve.
lay_payload() {
    mkdir -p "$SERVER_HERE/www/upload"
    contents | head -c "$(piece_bytes)" >"$SERVER_HERE/www/payload.new"
    [ "$(stat -c %s "$SERVER_HERE/www/payload.new")" = "$(piece_bytes)" ] || { echo "the image has too little content" >&2; return 1; }
    # Renamed, as the new version of a file comes: no server keeps the old one open.
    mv "$SERVER_HERE/www/payload.new" "$SERVER_HERE/www/payload"
    chmod -R a+rX "$SERVER_HERE/www"
    chmod a+rwx "$SERVER_HERE/www/upload"
    if [ "$PROGRAM" = postgres ] && [ -e "$SERVER_HERE/up" ]; then load_table; fi
}

serve_program() {
    mkdir -p "$HERE/www"
    # Servers drop their privileges and must still reach it.
    chmod a+x "$HERE" "$HERE/.."
    case $PROGRAM in
    http) serve_http ;;
    ftp | ftp-up) serve_ftp ;;
    rsync) serve_rsync_files ;;
    postgres) serve_postgres ;;
    ssh | ssh-c) serve_ssh ;;
    *) echo "no program $PROGRAM: write http, ftp, ftp-up, rsync, postgres, ssh or ssh-c" >&2; exit 2 ;;
    esac
}

serve_http() {
    mkdir -p "$HERE/nginx"
    cat >"$HERE/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $HERE/nginx/pid; error_log $HERE/nginx/error.log;
user root;
events { worker_connections 4096; }
http {
    access_log off; sendfile on; keepalive_requests 100000;
    client_body_temp_path $HERE/nginx/body; proxy_temp_path $HERE/nginx/proxy; fastcgi_temp_path $HERE/nginx/fcgi;
    uwsgi_temp_path $HERE/nginx/uwsgi; scgi_temp_path $HERE/nginx/scgi;
    server { listen $SERVER_ADDR:80 backlog=4096; root $HERE/www; location = /empty { return 204; } }
}
CONF
    tell_up 80
    exec nginx -c "$HERE/nginx.conf" -e "$HERE/nginx/error.log"
}

serve_ftp() {
    mkdir -p "$HERE/empty"
    cat >"$HERE/vsftpd.conf" <<CONF
listen=YES
listen_ipv6=NO
background=NO
anonymous_enable=YES
local_enable=NO
anon_root=$HERE/www
anon_upload_enable=YES
write_enable=YES
no_anon_password=YES
secure_chroot_dir=$HERE/empty
seccomp_sandbox=NO
isolate=NO
isolate_network=NO
CONF
    tell_up 21
    exec vsftpd "$HERE/vsftpd.conf"
}

serve_rsync_files() {
    # The hosts have no names: a question to the machine's resolver would take its time-out of 5 s.
    printf 'reverse lookup = no\n[files]\npath = %s\nuse chroot = no\nread only = yes\nnumeric ids = yes\nuid = 0\ngid = 0\n' "$HERE/www" >"$HERE/rsyncd.conf"
    tell_up 873
    exec rsync --daemon --no-detach --port 873 --config "$HERE/rsyncd.conf"
}

serve_ssh() {
    # Keys of this run alone; the client finds them where the server made them.
    ssh-keygen -q -t ed25519 -N '' -f "$HERE/host_key"
    ssh-keygen -q -t ed25519 -N '' -f "$HERE/client_key"
    cp "$HERE/client_key.pub" "$HERE/authorized"
    mkdir -p /run/sshd
    cat >"$HERE/sshd_config" <<CONF
Port 22
ListenAddress $SERVER_ADDR
HostKey $HERE/host_key
AuthorizedKeysFile $HERE/authorized
PidFile $HERE/sshd.pid
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
CONF
    tell_up 22
    exec /usr/sbin/sshd -D -e -f "$HERE/sshd_config"
}

serve_postgres() {
    local bin
    bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
    mkdir -p "$HERE/cluster"
    chown postgres "$HERE/cluster"
    runuser -u postgres -- "$bin/initdb" -D "$HERE/cluster" -A trust -E UTF8 --no-locale >/dev/null
    echo "host all all 198.19.0.0/16 trust" >>"$HERE/cluster/pg_hba.conf"
    tell_up 5432
    exec runuser -u postgres -- "$bin/postgres" -D "$HERE/cluster" -c "listen_addresses=$SERVER_ADDR" \
        -c unix_socket_directories= -c fsync=off
}

# A table whose rows are the payload's bytes, 256 each, as a dump of documents has them.
load_table() {
    xxd -p -c 256 "$SERVER_HERE/www/payload" >"$SERVER_HERE/www/rows"
    psql -q -h "$SERVER_ADDR" -U postgres postgres -c 'drop table if exists rows; create table rows (row text)' \
        -c "\\copy rows from '$SERVER_HERE/www/rows'"
}

prepare_server() {
    lay_payload
    case $PROGRAM in
    postgres) load_table ;;
    ftp-up) cp "$SERVER_HERE/www/payload" "$CLIENT_HERE/payload" ;;
    esac
}

# --- The client ----------------------------------------------------------------------------------------------------

# What a user would type.
fetch() {
    rm -f "$CLIENT_HERE/got" "$SERVER_HERE/www/upload/payload"
    case $PROGRAM in
    http) curl -sS --fail -o "$HERE/got" "http://$SERVER_ADDR/payload" ;;
    ftp) lftp -c "$(lftp_settings); open ftp://$SERVER_ADDR; get payload -o $HERE/got" ;;
    ftp-up) lftp -c "$(lftp_settings); open ftp://$SERVER_ADDR; cd upload; put $HERE/payload" ;;
    rsync) rsync --whole-file "rsync://$SERVER_ADDR/files/payload" "$HERE/got" ;;
    postgres) psql -q -h "$SERVER_ADDR" -U postgres postgres -c "\\copy rows to '$HERE/got'" ;;
    ssh) ssh_to cat "$SERVER_HERE/www/payload" >"$HERE/got" ;;
    ssh-c) ssh_to -C cat "$SERVER_HERE/www/payload" >"$HERE/got" ;;
    esac
}

# A log of the transfers with their rates, as the programs of the documents told them: without log-in and questions.
lftp_settings() {
    rm -f "$HERE/transfers"
    echo "set net:max-retries 1; set xfer:log yes; set xfer:log-file $HERE/transfers"
}

# KB/s of the transfer alone by the client's own clock; zero for programs that do not tell.
told_kb_per_second() {
    if [ ! -e "$CLIENT_HERE/transfers" ]; then echo 0; return; fi
    tail -n 1 "$CLIENT_HERE/transfers" | sed -E 's/.* ([0-9.]+) ?([KMG]?)i?B?\/s.*/\1 \2/' |
        awk '{ unit = $2 == "G" ? 1048576 : $2 == "M" ? 1024 : $2 == "K" ? 1 : 1 / 1024; printf "%.3f\n", $1 * unit }'
}

ssh_to() { # options and words
    local options=()
    if [ "$1" = -C ]; then options=(-C); shift; fi
    ssh "${options[@]}" -i "$SERVER_HERE/client_key" -o StrictHostKeyChecking=no -o "UserKnownHostsFile=$HERE/known" -o LogLevel=ERROR \
        "root@$SERVER_ADDR" "$@"
}

verify_fetched() {
    case $PROGRAM in
    ftp-up) cmp "$SERVER_HERE/www/upload/payload" "$CLIENT_HERE/payload" ;;
    postgres) cmp "$SERVER_HERE/www/rows" "$CLIENT_HERE/got" ;;
    *) cmp "$SERVER_HERE/www/payload" "$CLIENT_HERE/got" ;;
    esac
}

# What the user got, MB: his own bytes, not those of the line.
payload_mb() {
    local file=$SERVER_HERE/www/payload
    if [ "$PROGRAM" = postgres ]; then file=$SERVER_HERE/www/rows; fi
    stat -c %s "$file" | awk '{ printf "%.6f\n", $1 / 1e6 }'
}

zstd9_mb() {
    local file=$SERVER_HERE/www/payload
    if [ "$PROGRAM" = postgres ]; then file=$SERVER_HERE/www/rows; fi
    zstd -q -9 --long=27 -c "$file" | wc -c | awk '{ printf "%.6f\n", $1 / 1e6 }'
}

# --- The boxes -----------------------------------------------------------------------------------------------------

# shellcheck source=lab/contenders/farside.sh
. "$CONTENDERS/farside.sh"

serve_box() {
    exec "$FARSIDE_BIN/farsided" --data-dir /proc/self/cwd --name "$SITE" --http off --peer-listen "$([ "$SITE" = a ] && echo "$A_ADDR:7440" || echo off)"
}

# Both boxes up and known to each other.
join_boxes() {
    local site
    farside_at a peer invite >"$A_HERE/invitation"
    farside_at b peer join "$A_ADDR:7440" --code-file "$A_HERE/invitation"
    for site in a b; do
        # Each daemon is in its site's namespace; the socket is a file.
        farside_at "$site" accel up --lan lan0 --wan wan0
    done
    for site in a b; do
        until [ "$(farside_at "$site" accel status --json | jq -r .state)" = active ]; do sleep 0.2; done
    done
}

# Connections that the box of the client took.
taken_connections() { farside_at b accel status --json | jq -er .taken_connections; }
