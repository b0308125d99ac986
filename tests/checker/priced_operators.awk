# Arcs of a proof of operators, checked a second time from docs/reference/costs.md and certificate.md
# alone. Prints the least seconds by prices of every stage that a plan may have, as
#
#     arc MICRO-BATCH DEVICES STAGES-AFTER ENTERS LEAVES START STOP SECONDS
#
# (enters, leaves: 1 from or to another node), and the least seconds of the pipelines of these:
#
#     bound MICRO-BATCH SECONDS
#
#     awk -f json.awk -f priced_operators.awk plan.json

function main(    c, k, found) {
    P = "/certificate/independent/"
    NEVER = 1e30
    MIB = 1048576
    read()
    for (c = 0; (P "cases/" c "/micro_batch") in v; c++) {
        M = v[P "cases/" c "/micro_batch"]
        B = batch / M
        for (k = 0; (P "set/devices_of_stages/" k) in v; k++)
            arcs(c, v[P "set/devices_of_stages/" k])
        found = NEVER
        for (k = 0; (P "set/nodes/" k) in v; k++) {
            best = NEVER
            pipelines(v[P "set/nodes/" k] * per, n, 0, 0, 0)
            if (best < found) found = best
        }
        printf "bound %d %.17g\n", M, found
    }
}

function read(    k, r, c, x, y) {
    costs = v[P "table/costs"]
    aceso = costs == "aceso"
    family = v[P "table/family"]
    state = family == "resnet" ? 4 : 8
    per = v[P "set/devices_per_node"]
    batch = v[P "set/global_batch"]
    limit = v[P "set/memory_limit_bytes"] * (1 + 1e-9)
    most = v[P "set/max_stages"]
    for (n = 0; (P "table/chain/" n) in v; n++) kind[n] = v[P "table/chain/" n]
    for (k = 0; (P "table/operators/" k) in v; k++) name[k] = v[P "table/operators/" k]
    for (degrees = 0; (P "table/tensor_degrees/" degrees) in v; degrees++)
        degree[degrees] = v[P "table/tensor_degrees/" degrees]
    for (splits = 0; (P "table/splits/" splits) in v; splits++)
        split_of[splits] = v[P "table/splits/" splits]
    for (k = 0; (P "table/samples/" k) in v; k++) profiled[v[P "table/samples/" k]] = 1
    for (r = 0; (P "table/rows/" r "/0") in v; r++) {
        x = v[P "table/rows/" r "/0"] SUBSEP v[P "table/rows/" r "/1"]
        x = x SUBSEP v[P "table/rows/" r "/2"] SUBSEP v[P "table/rows/" r "/3"]
        known[x] = 1
        for (c = 4; c < 12; c++) R[x, c] = v[P "table/rows/" r "/" c]
    }
    for (k = 0; (P "table/intra_node/" k) in v; k++) rate[0, k] = v[P "table/intra_node/" k]
    last_rate[0] = k - 1
    for (k = 0; (P "table/inter_node/" k) in v; k++) rate[1, k] = v[P "table/inter_node/" k]
    last_rate[1] = k - 1
    for (c = 0; (P "table/collectives/" c "/name") in v; c++) {
        x = v[P "table/collectives/" c "/name"] SUBSEP v[P "table/collectives/" c "/devices"]
        for (k = 0; (P "table/collectives/" c "/mib/" k) in v; k++) {
            y = v[P "table/collectives/" c "/mib/" k]
            C[x, y] = v[P "table/collectives/" c "/seconds/" k]
            if (y > 0 && C[x, y] < 100) size_of[x, sizes[x]++] = y
        }
    }
}

# ---- seconds

function nodes(g) { return int((g + per - 1) / per) }

function power(i,    x) {
    for (x = 1; i > 0; i--) x *= 2
    return x
}

function floor_log(y,    i) {
    for (i = 0; y >= 2; i++) y /= 2
    return i
}

function send(z, c,    y, q, low, high) {
    if (z <= 0) return 0
    y = z / MIB
    if (aceso) {
        if (y >= 1) {
            q = floor_log(y)
            if (q >= 1) q--
            if (q > last_rate[c]) q = last_rate[c]
        } else {
            q = -floor_log(1 / y)
            if (q < 0) q += last_rate[c] + 1
            if (q < 0) q = 0
        }
        return z / rate[c, q]
    }
    if (y <= 1) return z / rate[c, 0]
    if (y >= power(last_rate[c])) return z / rate[c, last_rate[c]]
    q = floor_log(y)
    low = power(q) * MIB / rate[c, q]
    high = power(q + 1) * MIB / rate[c, q + 1]
    return low + (high - low) * (y - power(q)) / power(q)
}

function even(y,    i) {
    i = int(y + 0.5)
    return i - (i == y + 0.5 && i % 2 == 1)
}

function collective(p, k, z,    x, y, q, many, t, from, to, low, high) {
    x = p SUBSEP k
    y = z / MIB
    if (aceso) {
        if ((x, even(y)) in C) return C[x, even(y)]
        if (y >= 1 && (x, even(y - 1)) in C) return C[x, even(y - 1)]
        return 100
    }
    many = sizes[x] + 0
    if (!many) {
        t = p == "all_reduce" ? 2 / k : p == "all_gather" ? 1 : 1 / k
        return t * (k - 1) * send(z, 0)
    }
    low = -1
    high = -1
    for (q = 0; q < many; q++) {
        t = size_of[x, q]
        if (t < y && (low < 0 || t > low)) low = t
        if (t >= y && (high < 0 || t < high)) high = t
    }
    if (high < 0) return C[x, low] * y / low
    if (low < 0) return C[x, high]
    return C[x, low] + (C[x, high] - C[x, low]) * (y - low) / (high - low)
}

# Layouts as "copies part part part", "any".
function layout(x, t, e, a, wants,    token, column, head, both) {
    token = t " 1 " e " 1"
    column = "1 1 " e " " t
    head = "1 " e " " t " 1"
    both = t " " e " 1 1"
    if (x == "encoder-embedding") return wants ? "any" : token
    if (x ~ /^enc-(1st-layernorm|2nd-layernorm|post-attention-dropout|post-MLP-dropout)$/) return token
    if (x == "final-layernorm") return wants ? token : both
    if (x == "enc-attention-qkv" || x == "enc-MLP-GEMM-1") return (wants == (a == 0)) ? token : column
    if (x == "enc-attention-dense" || x == "enc-MLP-GEMM-2") return (wants == (a == 0)) ? column : token
    if (x == "enc-attention-score") return wants ? column : head
    if (x == "enc-attention-softmax" || x == "enc-attention-dropout") return head
    if (x == "enc-attention-context") return wants ? head : column
    if (x == "enc-MLP-gelu") return column
    if (x == "gpt-post-process") return wants ? both : "any"
    return both
}

# Seconds of a tensor from one layout to another; -1: there is no way. z < 0: 0 or 1, whether any.
function moved(from, to, z,    p, q, i, j) {
    if (from == to || from == "any" || to == "any") return 0
    split(from, p, " ")
    split(to, q, " ")
    if (p[1] > q[1]) {
        for (i = 2; i <= 4; i++) if (p[i] < q[i]) return z < 0 ? 1 : collective("all_gather", p[1] / q[1], z)
        return -1
    }
    for (i = 2; i <= 4; i++) {
        if (p[i] <= q[i]) continue
        if (p[1] < q[1]) return z < 0 ? 1 : collective("all_gather", p[i] / q[i], z)
        for (j = 2; j <= 4; j++)
            if (j != i && p[j] < q[j]) return z < 0 ? 1 : 2 * collective("all_to_all", p[i] / q[i], z)
    }
    return -1
}

function change(u, p, w, o, g,    z) {
    if (aceso && family == "t5") return 0
    if (nodes(g) > 1 && moved(layout(name[u], 1, oe[p], oa[p], 0), layout(name[w], 1, oe[p], oa[o], 1), -1))
        return -1
    z = R[row(w, o), 6]
    return moved(layout(name[u], ot[p], oe[p], oa[p], 0), layout(name[w], ot[o], oe[o], oa[o], 1), z)
}

function work(u, o, g,    w, e, h, inside, network) {
    if (aceso) return 0
    w = R[row(u, o), 8]
    e = oe[o]
    h = nodes(g)
    if (e == 1 || w == 0) return 2 * state * w / 700e9
    if (h == 1) return 2 * state * w / 700e9 + 2 * (e - 1) / e * send(w, 0)
    inside = e > h ? send(w, 0) : 0
    network = ot[o] * w / rate[1, last_rate[1]]
    return 2 * state * w / 700e9 + 2 * (e - 1) / e * (network > inside ? network : inside)
}

function once(g,    h, x) {
    h = nodes(g)
    if (aceso || h == 1) return 0
    x = 2 * send(MIB, 1) - send(2 * MIB, 1)
    return 2 * (h - 1) * (x > 0 ? x : 0)
}

# ---- memory

function shared(u) {
    if (!aceso) return 0
    if (name[u] ~ /^(enc-attention-dropout|enc-attention-softmax|bn1)$/ || name[u] ~ /-bn3/) return 1
    return name[u] ~ /-downsample/ && name[u] !~ /0-0/
}

function starts(u) {
    if (aceso) return name[u] == "enc-1st-layernorm" || name[u] ~ /-conv1/
    return name[u] ~ /(1st-layernorm|-conv1)$/
}

function keeps(u, o) {
    if (aceso && name[u] == "enc-attention-dropout") return 1.5 * R[row(u, o), 9]
    return shared(u) ? 0 : R[row(u, o), 9]
}

# ---- stages

function row(u, o) { return u SUBSEP (M / oe[o]) SUBSEP ot[o] SUBSEP oa[o] }

function out(u, o, t,    x) {
    x = u SUBSEP (M / oe[o]) SUBSEP t SUBSEP oa[o]
    if (x in known) return R[x, 7]
    return aceso ? 1e6 * MIB : power(60)
}

function arcs(c, g,    t, a, b, flight, l, p, e) {
    options = 0
    for (t = 0; t < degrees; t++) {
        e = g / degree[t]
        if (e != int(e) || M % e || degree[t] * nodes(g) > g || !((M / e) in profiled)) continue
        for (a = 0; a < splits; a++) {
            ot[options] = degree[t]
            oe[options] = e
            oa[options++] = split_of[a]
        }
    }
    if (!options) return
    for (b = 0; b < most; b++) for (l = 0; l < 2; l++) {
        flight = (aceso || b + 1 < B) ? b + 1 : B
        sweep(g, b, flight, l, 0, 0)
        for (p = 0; (P "cases/" c "/prices/" p "/0") in v; p++)
            if (v[P "cases/" c "/prices/" p "/0"] == g && v[P "cases/" c "/prices/" p "/1"] == flight)
                sweep(g, b, flight, l, v[P "cases/" c "/prices/" p "/2"],
                      v[P "cases/" c "/prices/" p "/3"] / 4096e12)
        for (e = 0; e < 2; e++)
            for (t = 0; t < n; t++)
                for (a = t + 1; a <= n; a++)
                    printf "arc %d %d %d %d %d %d %d %.17g\n", M, g, b, e, l, t, a, arc[M, g, b, e, l, t, a]
    }
}

# Bounds by one price of stages with b after them, from every operator to every other.
function sweep(g, b, flight, l, floors, price,    i, j, o, r, p, s, u, w, x, e, least, bytes, moves, here, y, z, rf, rb) {
    for (j = 1; j <= n; j++) {
        rf = 0
        rb = 0
        for (i = j - 1; i >= 0; i--) {
            u = kind[i]
            for (o = 0; o < options; o++) for (r = 0; r < 2; r++) {
                here[o, r] = NEVER
                x = row(u, o)
                if (!(x in known)) continue
                if (i == j - 1) {
                    least = NEVER
                    for (w = 0; w < degrees; w++) {
                        if (g % degree[w]) continue
                        y = send(out(u, o, degree[w]), l)
                        if (y < least && has_degree(degree[w])) least = y
                    }
                } else {
                    least = NEVER
                    w = kind[i + 1]
                    for (p = 0; p < options; p++) {
                        if (!(row(w, p) in known)) continue
                        y = change(u, o, w, p, g)
                        if (y < 0) continue
                        for (s = 0; s < 2; s++) {
                            z = y + rest[p, s]
                            if (r && s && !(starts(w) && !shared(u))) z -= price * flight * keeps(u, o)
                            if (z < least) least = z
                        }
                    }
                }
                bytes = (state + floors) * R[x, 8] + flight * keeps(u, o)
                here[o, r] = least + R[x, 4] + R[x, 5] + r * R[x, 4] + work(u, o, g) / B + price * bytes
            }
            if (i < j - 1) {
                y = NEVER
                z = NEVER
                for (o = 0; o < options; o++) {
                    x = row(u, o)
                    if (x in known && R[x, 10] < y) y = R[x, 10]
                    if (x in known && R[x, 11] < z) z = R[x, 11]
                }
                if (y < NEVER && y > rf) rf = y
                if (z < NEVER && z > rb) rb = z
            }
            for (o = 0; o < options; o++) for (r = 0; r < 2; r++) rest[o, r] = here[o, r]
            for (e = 0; e < 2; e++) {
                least = NEVER
                for (o = 0; o < options; o++) for (r = 0; r < 2; r++) {
                    if (rest[o, r] >= NEVER / 2) continue
                    x = R[row(u, o), 6]
                    y = rest[o, r] + send(x, e) + price * flight * x
                    if (y < least) least = y
                }
                if (least < NEVER / 2) least += once(g) / B - price * (limit - (floors ? 0 : rf + rb))
                if (!((M, g, b, e, l, i, j) in arc) || least > arc[M, g, b, e, l, i, j])
                    arc[M, g, b, e, l, i, j] = least
            }
        }
    }
}

function has_degree(t,    o) {
    for (o = 0; o < options; o++) if (ot[o] == t) return 1
    return 0
}

# ---- pipelines, from the last stage on: it ends before device d and operator j, b stages after it

function pipelines(d, j, b, longest, sum,    k, g, i, first, x) {
    if (j == 0 || d == 0) {
        if (j == 0 && d == 0 && (B - 1) * longest + sum < best) best = (B - 1) * longest + sum
        return
    }
    if (b == most) return
    for (k = 0; (P "set/devices_of_stages/" k) in v; k++) {
        g = v[P "set/devices_of_stages/" k]
        first = d - g
        if (first < 0) continue
        if (int(first / per) != int((d - 1) / per) && (first % per || g % per)) continue
        for (i = 0; i < j; i++) {
            if (!((M, g, b, 0, 0, i, j) in arc)) continue
            x = arc[M, g, b, first > 0 && first % per == 0, d % per == 0, i, j]
            if (x < NEVER / 2) pipelines(first, i, b + 1, x > longest ? x : longest, sum + x)
        }
    }
}
