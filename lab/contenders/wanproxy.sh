# shellcheck shell=bash
# A WANProxy at each site, between a client behind b and a server behind a. The client names the one at its own site: it is no
# transparent proxy.

# shellcheck source=lab/contenders/hosts.sh
. "$CONTENDERS/hosts.sh"

NEAR_PORT=3300
FAR_PORT=3301

# From the client at b, and from there at a to the server. The codec is on the link alone: references to what both have in
# memory, and zlib of what is left. Level 6 is that of its own example and of ssh: 9 takes 3 times as long for sequences, and
# saves less than a tenth of the bytes.
serve_wanproxy() {
    local listen forward from=None to=None
    case $SITE in
    a) listen="$A_ADDR $FAR_PORT" forward="$SERVER_ADDR 80" from=codec ;;
    b) listen="$B_ADDR $NEAR_PORT" forward="$A_ADDR $FAR_PORT" to=codec ;;
    esac
    cat >wanproxy.conf <<CONF
create cache memory
set memory.type Memory
set memory.size 1GB
activate memory

create codec codec
set codec.codec XCodec
set codec.cache memory
set codec.compressor zlib
set codec.compressor_level 6
activate codec

create interface here
set here.family IPv4
set here.host "${listen% *}"
set here.port "${listen#* }"
activate here

create peer there
set there.family IPv4
set there.host "${forward% *}"
set there.port "${forward#* }"
activate there

create proxy proxy
set proxy.type TCP-TCP
set proxy.interface here
set proxy.interface_codec $from
set proxy.peer there
set proxy.peer_codec $to
activate proxy
CONF
    exec "${WANPROXY:-wanproxy}" -q -c wanproxy.conf
}

# The same question as without it, put to the proxy.
fetch_by_wanproxy() {
    rm -f "$HERE/got"
    curl -sS --fail --connect-to "::$B_ADDR:$NEAR_PORT" -o "$HERE/got" "http://$SERVER_ADDR/payload"
}
