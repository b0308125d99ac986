// Every device of every node, with its place in the plan.
class Devices {
  constructor(root, data, columns) {
    Object.assign(this, { root, data });
    this.canvas = root.querySelector("canvas");
    this.readout = root.querySelector(".readout");
    const count = columns.length / 3;
    this.count = count;
    this.rank = columns.subarray(0, count);
    this.replica = columns.subarray(count, 2 * count);
    this.place = columns.subarray(2 * count);
    this.nodeOf = new Int32Array(count);
    this.first = [];
    let device = 0;
    data.nodes.forEach((size, node) => {
      this.first.push(device);
      for (let i = 0; i < size; i++) this.nodeOf[device++] = node;
    });
    this.sizes = new Int32Array(data.ranks);   // devices of each pipeline rank
    this.widths = new Int32Array(data.ranks);  // devices of each of its replicas
    for (let d = 0; d < count; d++) {
      if (this.rank[d] < 0) continue;
      this.sizes[this.rank[d]]++;
      this.widths[this.rank[d]] = Math.max(this.widths[this.rank[d]], this.place[d] + 1);
    }
    this.chosen = -1;
    const more = data.grouped ? " to see its groups" : "";
    this.readout.textContent = `Colours and numbers are pipeline ranks. Pick a device${more}.`;
    this.listen();
  }

  fill(rank) {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
      (matchMedia("(prefers-color-scheme: dark)").matches && !document.documentElement.dataset.theme);
    return rank < 0 ? colour("idle")
      : `hsl(${(210 + rank * 137.508) % 360} 52% ${(dark ? 40 : 74) + (rank % 3) * 4}%)`;
  }

  layout(width) {
    const most = Math.max(...this.data.nodes), boxed = (cell) => Math.min(most, 8) * (cell + 2) + 14;
    this.cell = this.count > 4096 ? 7 : this.count > 512 ? 12 : 24;
    const across = Math.min(most, 8), box = boxed(this.cell);
    const columns = Math.max(1, Math.floor((width + 14) / box));
    const rows = Math.ceil(most / across), high = rows * (this.cell + 2) + 26;
    this.at = (d) => {
      const node = this.nodeOf[d], slot = d - this.first[node];
      return [
        (node % columns) * box + (slot % across) * (this.cell + 2),
        Math.floor(node / columns) * high + 16 + Math.floor(slot / across) * (this.cell + 2),
      ];
    };
    this.labels = this.data.nodes.map((_, node) =>
      [(node % columns) * box, Math.floor(node / columns) * high + 11, box - 14]);
    return Math.ceil(this.data.nodes.length / columns) * high;
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const context = sharpened(this.canvas, width, this.layout(width)), { cell } = this;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colour("quiet");
    this.labels.forEach(([x, y, wide], node) => {
      const text = cell > 20 ? `node ${node}: ${this.data.types[node]}` : String(node);
      context.fillText(text, x, y, wide);
    });
    const groups = this.groupsOf(this.chosen);
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let d = 0; d < this.count; d++) {
      const [x, y] = this.at(d);
      context.fillStyle = this.fill(this.rank[d]);
      context.fillRect(x, y, cell, cell);
      if (cell > 20 && this.rank[d] >= 0) {
        context.fillStyle = colour("mark");
        context.fillText(this.rank[d], x + cell / 2, y + cell / 2 + 1);
      }
    }
    groups.forEach(([, members, name], n) => {
      context.strokeStyle = colour(name);
      context.lineWidth = 2;
      for (const d of members) {
        const [x, y] = this.at(d), inner = cell > 20 ? 1 + 3 * n : 0.5;
        context.strokeRect(x + inner, y + inner, cell - 2 * inner, cell - 2 * inner);
      }
    });
    if (this.chosen >= 0) {
      const [x, y] = this.at(this.chosen);
      context.strokeStyle = colour("mark");
      context.strokeRect(x - 1, y - 1, cell + 2, cell + 2);
    }
    const entries = groups.map(([name, , fill]) => [`its ${name} group`, colour(fill)]);
    legend(this.root.querySelector(".legend"), entries);
  }

  // The groups of a device: [kind, members, colour]. None of a device that is idle.
  groupsOf(device) {
    if (device < 0 || this.place[device] < 0) return [];
    const { rank, replica, place, widths, sizes, data } = this, found = [];
    const r = rank[device], tp = Math.max(1, Math.floor(widths[r] / data.cp));
    const all = Array.from({ length: this.count }, (_, d) => d);
    const here = all.filter((d) => rank[d] === r), own = here.filter((d) => replica[d] === replica[device]);
    const row = (d) => Math.floor(place[d] / tp);
    found.push(["tensor", own.filter((d) => row(d) === row(device)), "p0"]);
    if (data.cp > 1) {
      found.push(["context", own.filter((d) => place[d] % tp === place[device] % tp), "p4"]);
    }
    found.push(["data", here.filter((d) => place[d] === place[device]), "p7"]);
    const line = (d) => replica[d] * widths[rank[d]] + place[d];
    const alike = all.filter((d) => place[d] >= 0 && sizes[rank[d]] === sizes[r]);
    if (data.ranks > 1 && sizes.every((size) => size === sizes[r])) {
      found.push(["pipeline", alike.filter((d) => line(d) === line(device)), "p2"]);
    }
    return found.filter(([, members]) => members.length > 1);
  }

  choose(device) {
    this.chosen = device;
    const node = this.nodeOf[device], { data } = this;
    let text = `Device ${device}: node ${node}, ${data.types[node]}, `;
    if (this.rank[device] < 0) text += "idle";
    else {
      text += `pipeline rank ${this.rank[device]}`;
      if (this.place[device] >= 0) {
        text += `, replica ${this.replica[device]}, place ${this.place[device]} in it`;
      }
      for (const [kind, members] of this.groupsOf(device)) {
        text += `; ${kind} group of ${members.length}: ${ranges(members)}`;
      }
    }
    this.readout.textContent = text;
    this.draw();
  }

  listen() {
    const { canvas } = this;
    const under = (event) => {
      for (let d = 0; d < this.count; d++) {
        const [x, y] = this.at(d), dx = event.offsetX - x, dy = event.offsetY - y;
        if (dx >= 0 && dy >= 0 && dx < this.cell + 2 && dy < this.cell + 2) return d;
      }
      return -1;
    };
    canvas.addEventListener("click", (event) => {
      const device = under(event);
      if (device >= 0) this.choose(device);
    });
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -8, ArrowDown: 8 };
    canvas.addEventListener("keydown", (event) => {
      const by = steps[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const next = this.chosen < 0 ? 0 : this.chosen + by;
      this.choose(clamp(next, 0, this.count - 1));
    });
  }

  label() {}
}

// `0-3, 7` for 0, 1, 2, 3, 7; of many runs the first ones.
function ranges(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && last[1] + 1 === number) last[1] = number;
    else runs.push([number, number]);
  }
  const shown = runs.slice(0, 12).map(([a, b]) => a === b ? `${a}` : `${a}-${b}`);
  return shown.join(", ") + (runs.length > 12 ? `, and ${runs.length - 12} more runs` : "");
}
