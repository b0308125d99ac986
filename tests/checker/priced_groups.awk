# The prices of a proof, checked a second time from docs/reference/costs.md and certificate.md alone:
# of plans of `--space groups` under Metis's costs. Prints, for each number of micro-batches and each
# longest stage, the seconds that pipelines of no longer stages take at least, without messages and
# what an iteration has once.
#
#     awk -f json.awk -f priced_groups.awk plan.json

function main(    k, n, c, q, t, r, x, l, p) {
    P = "/certificate/independent/"
    L = v[P "table/layers"]
    for (k = 0; (P "set/types/" k) in v; k++) {
        name[k] = v[P "set/types/" k]
        limit[k] = v[P "set/memory_limit_bytes/" k] / 1048576 * (1 + 1e-9)
    }
    types = k
    for (n = 0; (P "set/nodes/" n "/0") in v; n++) {
        k = v[P "set/nodes/" n "/0"]
        for (c = 0; c < v[P "set/nodes/" n "/2"]; c++)
            size[k, nodes[k]++] = v[P "set/nodes/" n "/1"]
        count[k] += v[P "set/nodes/" n "/1"] * v[P "set/nodes/" n "/2"]
    }
    seated = 0
    for (k = 0; k < types; k++)
        for (c = 0; (P "set/tensor_degrees/" k "/" c) in v; c++) {
            t = v[P "set/tensor_degrees/" k "/" c]; x = r = 0
            for (n = 0; n < nodes[k]; n++) { x += int(size[k, n] / t); r += size[k, n] % t > 0 }
            if (r) { of[seated] = k; degree[seated] = t; places[seated++] = x }
        }
    for (q = 0; (P "table/pairs/" q "/tp") in v; q++) {
        k = v[P "table/pairs/" q "/type"]; t = v[P "table/pairs/" q "/tp"]
        for (r = 0; (P "table/pairs/" q "/samples/" r) in v; r++) {
            x = v[P "table/pairs/" q "/samples/" r]
            known[k, t, x] = 1
            if (x > most) most = x
            sync[k, t, x] = v[P "table/pairs/" q "/sync/" r]
            for (l = 0; l < L; l++) {
                ms[k, t, x, l] = v[P "table/pairs/" q "/time/" r "/" l]
                mib[k, t, x, l] = v[P "table/pairs/" q "/mib/" r "/" l]
            }
        }
    }
    for (c = 0; (P "cases/" c "/micro_batches") in v; c++) {
        B = v[P "cases/" c "/micro_batches"]; S = v[P "set/global_batch"] / B
        several = v[P "cases/" c "/several"]
        for (p = 0; (P "cases/" c "/prices/" p "/0") in v; p++) {
            longest = v[P "cases/" c "/prices/" p "/0"] / 1e12
            for (k = 0; k < types; k++)
                price[k] = v[P "cases/" c "/prices/" p "/" (k + 1)] / 4096e12
            for (q = 0; q < seated; q++)
                seat[q] = v[P "cases/" c "/prices/" p "/" (types + q + 1)] / 4096e12
            bound()
        }
    }
}

# ---- one vector of prices

function bound(    i, j, k, tp, all) {
    for (i = 0; i < L; i++) for (j = 1; j <= L; j++) best[i, j] = 1e30
    for (tp = 1; tp <= 1024; tp++) choose(0, tp, 0, 0)
    before[0] = 0
    for (j = 1; j <= L; j++) {
        before[j] = 1e30
        for (i = 0; i < j; i++)
            if (before[i] + best[i, j] < before[j]) before[j] = before[i] + best[i, j]
    }
    for (k = 0; k < types; k++) all += price[k] * count[k]
    for (k = 0; k < seated; k++) all += seat[k] * places[k]
    all = (before[L] >= 1e29) ? 1e30 : before[L] - all
    printf "%d %.17g %.17g\n", B, longest, all
}

# Choose the replicas of each type from the k-th on, of so many types and replicas so far.
function choose(k, tp, kinds, dp,    n, d, allowed, seats, m) {
    if (k == types) { if (kinds) group(tp, kinds, dp); return }
    replicas[k] = 0
    choose(k + 1, tp, kinds, dp)
    for (d = 0; (P "set/tensor_degrees/" k "/" d) in v; d++)
        if (v[P "set/tensor_degrees/" k "/" d] == tp) allowed = 1
    for (m = 0; m < nodes[k]; m++) seats += int(size[k, m] / tp)
    for (n = 1; allowed && n <= seats && dp + n <= S; n++) {
        replicas[k] = n
        choose(k + 1, tp, kinds + 1, dp + n)
    }
    replicas[k] = 0
}

function group(tp, kinds, dp,    mean, r, k, j, i, l, x, part, lead, sum, speed, together, y, given, f,
               pick, done, loads, use, keys, key, a, time, held, end, cost, fits, taken, power) {
    mean = int(S / dp)
    if (mean < 1 || mean > most) return
    if (kinds > 1 && several == "none") return
    if (kinds > 2 && several == "pairs") return
    if (kinds > 1 && several != "all")
        for (k = 0; k < types; k++) {
            for (power = 1; power < replicas[k]; power *= 2) ;
            if (replicas[k] && power != replicas[k]) return
        }
    if (kinds == 1 && mean * dp != S) return
    # replicas in the order of their types' names
    r = 0
    while (r < dp) {
        pick = -1
        for (k = 0; k < types; k++)
            if (replicas[k] && !(k in taken) && (pick < 0 || name[k] < name[pick])) pick = k
        taken[pick] = 1
        for (j = 0; j < replicas[pick]; j++) lead[r++] = pick
    }
    if (kinds == 1) for (r = 0; r < dp; r++) x[r] = mean
    else {
        for (r = 0; r < dp; r++) {
            if (!((lead[r], tp, 1) in known)) return
            sum = 0
            for (l = 0; l < L; l++) sum += ms[lead[r], tp, 1, l]
            speed[r] = 1 / sum
        }
        for (r = 0; r < dp; r++) together += speed[r]
        for (r = 0; r < dp; r++) {
            y = S * (speed[r] / together)
            x[r] = int(y); f[r] = y - int(y); given += x[r]
        }
        for (; given < S; given++) {
            pick = -1
            for (r = 0; r < dp; r++) if (!(r in done) && (pick < 0 || f[r] > f[pick])) pick = r
            done[pick] = 1
            x[pick]++
        }
        for (r = 0; r < dp; r++) if (!x[r]) return
    }
    for (r = 0; r < dp; r++) keys[lead[r], x[r]] = 1
    for (key in keys) {
        split(key, a, SUBSEP)
        for (part = 1; part * 2 <= a[2]; part *= 2) ;
        if (kinds == 1) part = a[2]
        held[key] = part
        for (y = a[2]; y > 0; part = int(part / 2)) {
            if (part > y) continue
            if (!((a[1], tp, part) in known)) return
            for (l = 0; l < L; l++) loads[key, l] += ms[a[1], tp, part, l]
            y -= part
        }
    }
    end = -1e30; fits = 1
    for (k = 0; k < types; k++) if (replicas[k]) {
        use += price[k] * replicas[k] * tp
        for (i = 0; i < seated; i++)
            if (of[i] == k) use += seat[i] * replicas[k] * int(tp / degree[i])
        if (!((k, tp, mean) in known)) fits = 0
        else if (sync[k, tp, mean] > end) end = sync[k, tp, mean]
    }
    for (i = 0; i < L; i++) for (j = i + 1; j <= L; j++) {
        time = 0; pick = 1
        for (key in keys) {
            split(key, a, SUBSEP); sum = 0; y = 0
            for (l = i; l < j; l++) {
                sum += loads[key, l]
                y += mib[a[1], tp, held[key], l]
            }
            if (sum > time) time = sum
            if (y > limit[a[1]]) pick = 0
        }
        if (!pick || time / 1000 > longest || (j == L && !fits)) continue
        cost = time / 1000 + use + (j == L ? B * end / 1000 : 0)
        if (cost < best[i, j]) best[i, j] = cost
    }
}
