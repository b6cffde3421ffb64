# shellcheck shell=bash
# What every contender's scripts may call: the data, and the proof that a copy equals it. What stands in the
# environment is told in docs/src/development/contenders.md.

PATH=$PATH:/usr/sbin:/sbin # mkfs.btrfs, for users whose PATH lacks them

# The names of a generation's images, a line each.
images() { seq -f '%g.img' 0 $((VOLUMES - 1)); }

# One archive of generation DIR, on stdout: images with their holes, or files with what belongs to them.
archive() {
    if [ "$KIND" = image ]; then
        # shellcheck disable=SC2046 # names without blanks
        tar -C "$1" --sparse -cf - $(images)
    else
        tar -C "$1/tree" --sort=name --numeric-owner -cf - .
    fi
}

# Unpacks an archive into DIR, which is made anew.
unpack() { # archive, DIR
    rm -rf "$2"
    mkdir -p "$2"
    tar -C "$2" --numeric-owner -xpf "$1"
}

# The source's own copy at DIR becomes what $NEW is: at first as a whole, then in place as a host changes it. For tools
# that look at path, inode and times, or at which blocks were written.
lay_source() {
    mkdir -p "$1"
    if [ "$KIND" = image ]; then
        cp --sparse=always "$NEW"/*.img "$1/"
    else
        cp -a "$NEW/tree" "$1/tree"
    fi
}
change_source() {
    local image
    if [ "$KIND" = image ]; then
        for image in $(images); do "$FARSIDE_LAB" copy-changed "$OLD/$image" "$NEW/$image" "$1/$image"; done
    else
        rsync -aH --checksum --delete --inplace "$NEW/tree/" "$1/tree/"
    fi
}

# The copy at DIR equals $NEW: images byte by byte; files by content, names, kinds, modes, owners, targets of links,
# number of hard links, and times in whole seconds (archives promise no more).
same() {
    local image
    if [ "$KIND" = image ]; then
        for image in $(images); do cmp "$NEW/$image" "$1/$image" || return; done
    else
        diff <(listing "$NEW/tree") <(listing "$1") | head -n 20 || return
        diff -rq --no-dereference "$NEW/tree" "$1" | head -n 20
    fi
}
listing() {
    (cd "$1" && find . -type d -printf '%p\t%y\t%m\t%U:%G\t%Ts\n' -o -printf '%p\t%y\t%m\t%U:%G\t%Ts\t%n\t%l\n') | sort
}
