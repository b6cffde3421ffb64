# shellcheck shell=bash
# Everything as one archive in one stream.

# shellcheck source=lab/contenders/data.sh
. "$CONTENDERS/data.sh"

# Takes an archive on stdin as the new copy: images unpacked, files as the archive they are.
take_archive() {
    rm -rf "$HERE/incoming"
    mkdir "$HERE/incoming"
    if [ "$KIND" = image ]; then
        tar -C "$HERE/incoming" -xf -
    else
        cat >"$HERE/incoming/tree.tar"
    fi
    rm -rf "$HERE/copy"
    mv "$HERE/incoming" "$HERE/copy"
}

verify_archive() {
    if [ "$KIND" = image ]; then
        same "$HERE/copy"
    else
        unpack "$HERE/copy/tree.tar" "$HERE/unpacked"
        same "$HERE/unpacked"
        rm -rf "$HERE/unpacked"
    fi
}
