# JSON from standard input: v["/a/0/b"] is every number and text; then `main` is called.

{ text = text $0 "\n" }

END { at = 1; value(""); main() }

function blank() { while (substr(text, at, 1) ~ /[ \t\n\r]/) at++ }

function word(    from) {
    from = ++at
    while (substr(text, at, 1) != "\"") at += substr(text, at, 1) == "\\" ? 2 : 1
    return substr(text, from, at++ - from)
}

function value(path,    n, key, c) {
    blank(); c = substr(text, at, 1)
    if (c == "\"") { v[path] = word(); return }
    if (c == "{" || c == "[") {
        at++; blank(); n = 0
        if (substr(text, at, 1) ~ /[]}]/) { at++; return }
        while (1) {
            key = n++
            if (c == "{") { blank(); key = word(); blank(); at++ }
            value(path "/" key)
            blank()
            if (substr(text, at++, 1) != ",") return
        }
    }
    match(substr(text, at, 40), /[^],}\n ]+/)
    v[path] = substr(text, at, RLENGTH) + 0
    at += RLENGTH
}
