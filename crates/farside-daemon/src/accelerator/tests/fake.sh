#!/bin/sh
# Speaks the accelerator's side of the socket that is its standard input. What it does is in the file "mode" beside it; what it was
# told goes into "requests".
here=$(dirname "$0")
mode=$(cat "$here/mode")
echo "$$ $(date +%s%3N)" >>"$here/starts"
# A command in the background has no standard input.
exec 3<&0

answer() { printf '{"answer":{"id":%s,"result":%s}}\n' "$1" "$2" >&3; }
# In one piece: answers come between lines, not into one.
alive='{"alive":{"bypass":null,"listen":"127.0.0.1:7442","peers":[],"optimized_connections":2,'
alive=$alive'"passed_through_connections":3,"taken_connections":5,"reset_connections":1,'
alive=$alive'"original_bytes":1000,"wire_bytes":100,"store":null}}'
live() {
    while [ -e "$here/hang" ] || printf '%s\n' "$alive" >&3; do sleep 0.1; done
}

case $mode in
    exit) exit 3 ;;
    garbage) echo 'hello' >&3; exec sleep 1000 ;;
    unasked) answer 77 '{"Ok":null}'; exec sleep 1000 ;;
esac

while IFS= read -r line; do
    printf '%s\n' "$line" >>"$here/requests"
    id=${line#*\"id\":}
    id=${id%%,*}
    case $line in
        *'"start"'*)
            if [ "$mode" = refuse ]; then
                answer "$id" '{"Err":"it must not intercept: CAP_NET_ADMIN is missing"}'
                exit 1
            fi
            answer "$id" '{"Ok":null}'
            live &
            ;;
        *'"connections"'*) answer "$id" '{"Ok":[]}' ;;
        *'"reset"'*) answer "$id" '{"Ok":false}' ;;
        *':666"'*) answer "$id" '{"Err":"cannot listen at port 666"}' ;;
        *) answer "$id" '{"Ok":null}' ;;
    esac
done
[ "$mode" != deaf ] || exec sleep 1000
kill $! 2>/dev/null
echo "$$" >>"$here/ended"
