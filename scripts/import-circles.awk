# Finds circles among the imports of one crate's files. Run by scripts/check-import-circles, which tells the rules:
#
#   awk -v crate=NAME -v src=crates/NAME/src -f scripts/import-circles.awk FILE…     FILE: every .rs file below src
#
# What it does, in order: cut each file into tokens (no comments, no strings, nothing under #[cfg(test)]); note modules,
# and what `use` gives another name; resolve each path to the file that has what it names; find circles.
# Known limits: what a macro makes, `#[path]`, and globs of globs are not followed.
# Any POSIX awk runs it (Debian's is mawk): no arrays of arrays, no intervals in patterns.

function relative(file) { return substr(file, length(src) + 2) }

# a/b/mod.rs and a/b.rs are module a::b; lib.rs is the crate's root, "".
function module_of(name) {
    sub(/\.rs$/, "", name)
    sub(/\/mod$/, "", name)
    gsub(/\//, "::", name)
    return name == "lib" ? "" : name
}
function below(module, name) { return module == "" ? name : module "::" name }
function parent_of(module) { return sub(/(^|::)[^:]*$/, "", module) ? module : "" }

function token(text) { text_of[tokens] = text; line_of[tokens] = FNR; tokens++ }

FNR == 1 {
    if (files > 0) last[files] = tokens
    in_comment = 0; in_string = 0; in_raw = ""
    file[++files] = relative(FILENAME)
    first[files] = tokens
    module[files] = module_of(file[files])
    owner[module[files]] = files
    head = 1
}
# The file's head: comments (and blank lines) before anything else.
head && !/^[ \t]*(\/\/.*)?$/ { head = 0 }
head && /^\/\/[!\/]* circle: / {
    exception = $0
    sub(/^\/\/[!\/]* circle: */, "", exception)
    other = exception
    sub(/,.*/, "", other)
    if (exception !~ /^[^ ,]+\.rs, because ./) {
        printf "%s/%s:%d: an exception is written `// circle: FILE, because …`\n", src, file[files], FNR
        failed = 1
    } else allowed[file[files], other] = FNR
}
{
    rest = $0
    while (rest != "") {
        if (in_comment) {
            end = index(rest, "*/")
            if (!end) break
            rest = substr(rest, end + 2); in_comment = 0
        } else if (in_string) {
            if (!match(rest, /^([^"\\]|\\.)*"/)) break
            rest = substr(rest, RLENGTH + 1); in_string = 0
        } else if (in_raw != "") {
            end = index(rest, in_raw)
            if (!end) break
            rest = substr(rest, end + length(in_raw)); in_raw = ""
        } else if (match(rest, /^[ \t]+/)) {
            rest = substr(rest, RLENGTH + 1)
        } else if (substr(rest, 1, 2) == "//") {
            break
        } else if (substr(rest, 1, 2) == "/*") {
            rest = substr(rest, 3); in_comment = 1
        } else if (match(rest, /^[bc]?r#*"/)) {
            in_raw = substr(rest, 1, RLENGTH - 1); rest = substr(rest, RLENGTH + 1)
            sub(/^[bcr]*/, "", in_raw)
            in_raw = "\"" in_raw # it ends with as many # as it began with
        } else if (match(rest, /^[bc]?"/)) {
            rest = substr(rest, RLENGTH + 1); in_string = 1
        } else if (match(rest, /^b?'(\\.[^']*|[^'\\]|[\200-\377]+)'/)) {
            rest = substr(rest, RLENGTH + 1)
        } else if (match(rest, /^'[A-Za-z_][A-Za-z0-9_]*/)) {
            rest = substr(rest, RLENGTH + 1)
        } else if (match(rest, /^(r#)?[A-Za-z_][A-Za-z0-9_]*/)) {
            word = substr(rest, 1, RLENGTH); rest = substr(rest, RLENGTH + 1)
            sub(/^r#/, "", word)
            token(word)
        } else if (match(rest, /^[0-9][A-Za-z0-9_]*/)) {
            rest = substr(rest, RLENGTH + 1); token("0")
        } else if (substr(rest, 1, 2) == "::") {
            rest = substr(rest, 3); token("::")
        } else {
            token(substr(rest, 1, 1)); rest = substr(rest, 2)
        }
    }
}

function is_name(text) { return text ~ /^[A-Za-z_]/ }

# The first token behind the item that begins at `at`: behind its `;`, its braces, or (of a field) its comma.
function behind_item(at, end,    depth, item, text) {
    while (text_of[at] == "#") at = behind_attribute(at)
    item = text_of[at] ~ /^(pub|mod|use|fn|impl|struct|enum|const|static|type|trait|async|unsafe|extern|macro_rules)$/
    for (depth = 0; at < end; at++) {
        text = text_of[at]
        if (text == "{" || text == "(" || text == "[") depth++
        if (text == "}" || text == ")" || text == "]") {
            if (--depth < 0) return at
            if (depth == 0 && text == "}") return at + 1
        }
        if (depth == 0 && (text == ";" || (text == "," && !item))) return at + 1
    }
    return end
}
function behind_attribute(at,    depth) {
    at++
    if (text_of[at] == "!") at++
    depth = 0
    do {
        if (text_of[at] == "[") depth++
        if (text_of[at] == "]") depth--
        at++
    } while (depth > 0)
    return at
}
function is_for_tests(at) {
    return text_of[at] == "#" && text_of[at + 1] == "[" && text_of[at + 2] == "cfg" && text_of[at + 3] == "(" &&
        text_of[at + 4] == "test" && text_of[at + 5] == ")"
}
# `mod NAME` among the tokens of an item, or "".
function module_named(at, end) {
    for (; at < end && text_of[at] != "{" && text_of[at] != ";"; at++)
        if (text_of[at] == "mod" && is_name(text_of[at + 1])) return text_of[at + 1]
    return ""
}

# Calls `meet` for each path of file f; `pass` 1 notes modules and other names, 2 resolves.
function walk(f, pass,    at, end, here, depth, opened, text, behind, name) {
    here = module[f]; depth = 0; opened[0] = ""
    end = last[f]
    for (at = first[f]; at < end; at++) {
        text = text_of[at]
        if (is_for_tests(at)) {
            behind = behind_item(at, end)
            name = module_named(at, behind)
            if (name != "" && text_of[behind - 1] == ";") for_tests[below(here, name)] = 1
            at = behind - 1
            continue
        }
        if (text == "#" && (text_of[at + 1] == "[" || text_of[at + 1] == "!")) { at = behind_attribute(at) - 1; continue }
        if (text == "{") { depth++; continue }
        if (text == "}") {
            if (opened[depth] == 1) { here = parent_of(here); opened[depth] = 0 }
            depth--
            continue
        }
        if (text == "mod" && is_name(text_of[at + 1])) {
            name = below(here, text_of[at + 1])
            if (pass == 1) declared[here, text_of[at + 1]] = 1
            if (text_of[at + 2] == "{") {
                here = name
                if (pass == 1) owner[here] = f
                opened[++depth] = 1
                at += 2
            }
            continue
        }
        if (text == "use") { at = use_tree(f, pass, here, at + 1, ""); continue }
        if (pass == 2 && is_name(text) && text_of[at + 1] == "::" && text_of[at - 1] != "::" && is_start(here, text)) {
            name = text
            while (text_of[at + 1] == "::" && is_name(text_of[at + 2])) { name = name "::" text_of[at + 2]; at += 2 }
            meet(f, pass, here, name, "", line_of[at])
        }
    }
}
function is_start(here, name) { return name ~ /^(crate|super|self)$/ || ((here, name) in declared) }

# One tree of a `use`, from token `at`; returns the token that ends it.
function use_tree(f, pass, here, at, prefix,    path, name) {
    path = prefix
    if (text_of[at] == "::") return behind_item(at, last[f]) - 1 # another crate's
    while (1) {
        name = text_of[at]
        if (name == "{") {
            at++
            while (text_of[at] != "}") {
                at = use_tree(f, pass, here, at, path)
                if (text_of[at] == ",") at++
            }
            return at + 1
        }
        if (name == "*") { meet(f, pass, here, path "::*", "", line_of[at]); return at + 1 }
        if (name == "self" && path != "") name = ""
        if (path == "" && !is_start(here, name)) name = "::" name # another crate's, or an enum's
        if (name != "") path = path == "" ? name : path "::" name
        if (text_of[at + 1] != "::") break
        at += 2
    }
    if (text_of[at + 1] == "as") {
        meet(f, pass, here, path, text_of[at + 2], line_of[at])
        return at + 3
    }
    name = path
    sub(/.*::/, "", name)
    meet(f, pass, here, path, name, line_of[at])
    return at + 1
}

# A path that file f has in module `here`; `as` is the name that a `use` gives it.
function meet(f, pass, here, path, as, line,    full, target, name) {
    if (path ~ /^::/) return
    full = absolute(here, path)
    if (pass == 1) {
        if (as != "" && as != "_" && below(here, as) != full) other_name[below(here, as)] = full
        return
    }
    target = resolve(full)
    if (!target || target == f) return
    name = full
    sub(/.*::/, "", name)
    if (!((f, target) in ties)) { ties[f, target] = ""; tie_line[f, target] = line }
    if (index(", " ties[f, target] ", ", ", " name ", ") == 0)
        ties[f, target] = ties[f, target] (ties[f, target] == "" ? "" : ", ") name
}
function absolute(here, path,    segments, n, i, module, full) {
    n = split(path, segments, "::")
    if (segments[1] == "crate") { module = ""; i = 2 }
    else {
        module = here; i = 1
        while (segments[i] == "super" || segments[i] == "self") {
            if (segments[i] == "super") module = parent_of(module)
            i++
        }
    }
    full = module
    for (; i <= n; i++) full = below(full, segments[i])
    return full
}
# The file that has what a path from the root names: the deepest module on the way, names that a `use` gives followed.
function resolve(full,    hops, n, segments, i, module, at, behind) {
    for (hops = 0; hops < 20; hops++) {
        n = split(full, segments, "::")
        module = ""
        for (i = 1; i <= n; i++) {
            at = below(module, segments[i])
            if (!(at in owner)) break
            module = at
        }
        if (i > n || !(at in other_name)) return owner[module]
        behind = ""
        for (i++; i <= n; i++) behind = behind "::" segments[i]
        full = other_name[at] behind
    }
    return 0
}

function reach(start,    stack, n, f, g) {
    stack[n = 1] = start
    while (n > 0) {
        f = stack[n--]
        for (g = 1; g <= files; g++)
            if (((f, g) in edge) && !((start, g) in reaches)) { reaches[start, g] = 1; stack[++n] = g }
    }
}

END {
    if (files == 0) exit 0
    last[files] = tokens
    if (!("" in owner)) owner[""] = 0 # a program without a library
    for (f = 1; f <= files; f++) walk(f, 1)
    for (f = 1; f <= files; f++) {
        skip[f] = file[f] ~ /(^|\/)tests(\/|\.rs$)/
        for (m = module[f]; m != ""; m = parent_of(m)) if (m in for_tests) skip[f] = 1
    }
    for (f = 1; f <= files; f++) if (!skip[f]) walk(f, 2)
    for (f = 1; f <= files; f++) for (g = 1; g <= files; g++)
        if (((f, g) in ties) && !skip[g]) edge[f, g] = 1
    # An exception is one only if its arrow would close a circle.
    for (f = 1; f <= files; f++) reach(f)
    for (f = 1; f <= files; f++) for (g = 1; g <= files; g++) {
        if (!((file[f], file[g]) in allowed)) continue
        if (((f, g) in edge) && ((g, f) in reaches)) { excepted[f, g] = 1; used[file[f], file[g]] = 1 }
    }
    for (pair in allowed) if (!(pair in used)) {
        split(pair, names, SUBSEP)
        printf "%s/%s:%d: the exception for %s is not needed: no circle goes that way\n", src, names[1], allowed[pair], names[2]
        failed = 1
    }
    for (pair in excepted) delete edge[pair]
    for (pair in reaches) delete reaches[pair]
    for (f = 1; f <= files; f++) reach(f)
    for (f = 1; f <= files; f++) {
        if (told[f] || !((f, f) in reaches)) continue
        failed = 1
        members = ""; count = 0
        for (g = 1; g <= files; g++) if (((f, g) in reaches) && ((g, f) in reaches)) {
            told[g] = 1; inside[g] = f; count++
            members = members " " file[g]
        }
        printf "%s: %d files import each other in a circle:%s\n", crate, count, members
        for (g = 1; g <= files; g++) for (h = 1; h <= files; h++)
            if (inside[g] == f && inside[h] == f && ((g, h) in edge))
                printf "  %s/%s:%d -> %s: %s\n", src, file[g], tie_line[g, h], file[h], ties[g, h]
    }
    exit failed
}
