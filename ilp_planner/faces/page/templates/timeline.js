// One iteration of a pipeline: a row per rank, a box per operation.
class Timeline {
  constructor(root, data, columns) {
    Object.assign(this, { root, data });
    this.canvas = root.querySelector("canvas");
    this.drawing = document.createElement("canvas");
    this.readout = root.querySelector(".readout");
    this.linked = [this];
    this.seconds = data.whole / data.ticks;
    this.opens = data.opens / data.ticks;
    this.hovered = -1;   // operation under the pointer or the keys
    this.rank = 0;       // row that the keys are in
    this.followed = -1;  // micro-batch that is picked out
    this.fingers = new Map();
    this.read(columns);
    this.from = 0;
    this.to = this.seconds;
    this.listen();
  }

  read(columns) {
    const { data } = this, count = columns.length / 3;
    this.codes = summed(columns.subarray(0, count));
    this.microBatches = summed(columns.subarray(count, 2 * count));
    const gaps = columns.subarray(2 * count);
    this.lasting = new Int32Array(4 * data.stages);
    for (const [code, ticks] of Object.entries(data.durations)) this.lasting[code] = ticks;
    this.begins = new Int32Array(count);
    this.held = new Int32Array(count);  // micro-batches whose activations the rank holds meanwhile
    for (let rank = 0; rank < data.ranks; rank++) {
      let time = 0, held = 0;
      for (let i = data.starts[rank]; i < data.starts[rank + 1]; i++) {
        const kind = data.letters[this.codes[i] & 3];
        this.begins[i] = time += gaps[i];
        time += this.lasting[this.codes[i]];
        this.held[i] = held += kind === "F" ? 1 : 0;
        if (kind === "B" || kind === "W") held--;
      }
    }
    this.most = this.held.reduce((most, held) => Math.max(most, held), 1);
  }

  start(i) { return this.begins[i] / this.data.ticks; }
  end(i) { return (this.begins[i] + this.lasting[this.codes[i]]) / this.data.ticks; }

  // The first operation of a rank that ends after a moment; `starts[rank + 1]` where none does.
  after(rank, seconds) {
    let low = this.data.starts[rank], high = this.data.starts[rank + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end(middle) > seconds) high = middle; else low = middle + 1;
    }
    return low;
  }

  // ---- drawing ---------------------------------------------------------------------------------

  draw() {
    const { data } = this, width = this.canvas.clientWidth;
    if (!width) return;
    this.top = 22;
    this.row = clamp(Math.floor(620 / data.ranks), 7, 30);
    const height = this.height = this.top + this.row * data.ranks + 2;
    const context = sharpened(this.drawing, width, height);
    const fills = ["forward", "backward", "input", "weight"].map(colour);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colour("idle");
    const scale = width / (this.to - this.from);
    context.fillRect(0, this.top, Math.min(width, (this.seconds - this.from) * scale), height);
    for (let rank = 0; rank < data.ranks; rank++) {
      this.drawRank(context, rank, scale, width, fills);
      if (this.shows) this.drawHeld(context, rank, scale, width);
    }
    this.drawAfter(context, scale, width, height);
    this.drawTicks(context, scale, width);
    this.present();
    this.root.querySelector(".range").textContent =
      `${secondsText(this.from)} to ${secondsText(this.to)}`;
  }

  // The drawing, and on it what is pointed at: all that changes while a pointer moves.
  present() {
    const width = this.canvas.clientWidth, context = sharpened(this.canvas, width, this.height);
    context.drawImage(this.drawing, 0, 0, width, this.height);
    this.drawHovered(context, width / (this.to - this.from));
  }

  drawRank(context, rank, scale, width, fills) {
    const { data } = this, y = this.top + rank * this.row, high = this.row - (this.row > 9 ? 2 : 1);
    const last = data.starts[rank + 1], shares = new Shares(context, y, high, fills);
    for (let i = this.after(rank, this.from); i < last; i++) {
      const left = (this.start(i) - this.from) * scale;
      if (left > width) break;
      const right = (this.end(i) - this.from) * scale;
      const code = this.codes[i], chunk = Math.floor((code >> 2) / data.ranks);
      const faint = this.followed >= 0 && this.microBatches[i] !== this.followed;
      context.globalAlpha = faint ? 0.22 : 1;
      if (right - left < 1 && (faint || this.followed < 0)) {
        shares.add(code & 3, left, right);
        continue;
      }
      if (chunk % 2 && right - left > 6 && !faint) context.globalAlpha = 0.68;
      context.fillStyle = fills[code & 3];
      const wide = Math.max(right - left - (right - left > 4 ? 0.7 : 0), 1);
      context.fillRect(left, y, wide, high);
      if (wide > 22 && high >= 11) {
        context.fillStyle = "#fff";
        context.textAlign = "center";
        context.textBaseline = "middle";
        const visible = (Math.max(left, 0) + Math.min(right, width)) / 2;
        context.fillText(data.letters[code & 3] + this.microBatches[i], visible, y + high / 2);
      }
    }
    context.globalAlpha = this.followed >= 0 ? 0.22 : 1;
    shares.flush();
    context.globalAlpha = 1;
  }

  // A line of what the rank holds, as high as the row for the most that any rank holds.
  drawHeld(context, rank, scale, width) {
    const bottom = this.top + (rank + 1) * this.row - 2, high = this.row - 4;
    const last = this.data.starts[rank + 1];
    context.strokeStyle = colour("mark");
    context.lineWidth = 1.5;
    context.beginPath();
    let y = bottom;
    context.moveTo(-this.from * scale, y);
    for (let i = this.data.starts[rank]; i < last; i++) {
      const x = (this.start(i) - this.from) * scale;
      if (x > width) break;
      context.lineTo(x, y);
      y = bottom - high * this.held[i] / this.most;
      context.lineTo(x, y);
    }
    context.lineTo(Math.min((this.end(last - 1) - this.from) * scale, width), y);
    context.stroke();
  }

  // What comes after the pipeline: all ranks do it, and no schedule moves it.
  drawAfter(context, scale, width, height) {
    const left = (this.data.pipeline / this.data.ticks - this.from) * scale;
    const right = Math.min((this.seconds - this.from) * scale, width);
    if (right - left < 0.3 || left > width) return;
    context.fillStyle = colour("after");
    context.globalAlpha = 0.75;
    context.fillRect(Math.max(left, 0), this.top, right - Math.max(left, 0), height);
    context.globalAlpha = 1;
  }

  drawTicks(context, scale, width) {
    const wanted = (this.to - this.from) * 90 / width;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= wanted) * power;
    context.fillStyle = context.strokeStyle = colour("quiet");
    context.textBaseline = "alphabetic";
    for (let n = Math.ceil(this.from / step); n * step <= this.to; n++) {
      const x = (n * step - this.from) * scale;
      context.globalAlpha = 1;
      context.textAlign = x < 20 ? "left" : x > width - 30 ? "right" : "center";
      context.fillText(secondsText(n * step), x, 12);
      context.globalAlpha = 0.4;
      context.fillRect(x, 16, 1, 6);
    }
    context.globalAlpha = 1;
  }

  drawHovered(context, scale) {
    const i = this.hovered;
    if (i < 0) return;
    const left = (this.start(i) - this.from) * scale, right = (this.end(i) - this.from) * scale;
    context.strokeStyle = colour("mark");
    context.lineWidth = 2;
    context.strokeRect(left, this.top + this.rank * this.row, Math.max(right - left, 2), this.row - 1);
  }

  // ---- what is under the pointer ---------------------------------------------------------------

  tell(text) { this.readout.textContent = text; }

  operationText(i) {
    const code = this.codes[i], { kinds } = this.data;
    return `Rank ${this.rank}: ${kinds[code & 3]} of micro-batch ${this.microBatches[i]}, ` +
      `stage ${code >> 2}; ${secondsText(this.start(i))} to ${secondsText(this.end(i))}, ` +
      `${secondsText(this.end(i) - this.start(i))}; holds activations of ${this.held[i]} of at ` +
      `most ${this.most}`;
  }

  pointAt(x, y) {
    const { data, canvas } = this, rank = Math.floor((y - this.top) / this.row);
    if (rank < 0 || rank >= data.ranks) return this.forget();
    const moment = this.from + x / canvas.clientWidth * (this.to - this.from);
    const next = this.after(rank, moment), last = data.starts[rank + 1];
    this.rank = rank;
    this.hovered = next < last && this.start(next) <= moment ? next : -1;
    if (this.hovered >= 0) this.tell(this.operationText(next));
    else this.tell(this.idleText(rank, moment, next, last));
    this.present();
  }

  idleText(rank, moment, next, last) {
    const { data } = this, pipeline = data.pipeline / data.ticks;
    if (moment >= pipeline) {
      return `After the pipeline, on all ranks: ${secondsText(this.seconds - pipeline)}`;
    }
    const begin = next > data.starts[rank] ? this.end(next - 1) : 0;
    if (next === last) {
      return `Rank ${rank}: done, waits ${secondsText(pipeline - begin)} for the other ranks`;
    }
    const name = `${data.kinds[this.codes[next] & 3]} of micro-batch ${this.microBatches[next]}`;
    return `Rank ${rank}: idle for ${secondsText(this.start(next) - begin)} before the ${name}`;
  }

  forget() {
    this.hovered = -1;
    this.tell(this.summary());
    this.present();
  }

  summary() {
    const { travelling, hidden } = this.data.sends;
    if (this.followed >= 0) return `Micro-batch ${this.followed} is picked out.`;
    if (!travelling) return "Point at an operation; click one to follow its micro-batch.";
    const share = (100 * hidden / travelling).toFixed(1);
    return `Messages between ranks travel for ${secondsText(travelling)} in all, ` +
      `${share} % of it while the receiver computes. Click an operation to follow its micro-batch.`;
  }

  follow(i) {
    const same = i < 0 || this.followed === this.microBatches[i];
    for (const other of this.linked) other.followed = same ? -1 : this.microBatches[i];
    if (i < 0) this.tell(this.summary());
    this.redraw();
  }

  // ---- moving ----------------------------------------------------------------------------------

  redraw() { for (const other of this.linked) other.draw(); }

  show(from, to) {
    const whole = Math.max(...this.linked.map((other) => other.seconds));
    const least = Math.min(whole, 64 / this.data.ticks);
    const length = clamp(to - from, least, whole), start = clamp(from, 0, whole - length);
    for (const other of this.linked) Object.assign(other, { from: start, to: start + length });
    this.redraw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) / factor, at + (this.to - at) / factor);
  }

  pan(share) {
    const length = this.to - this.from;
    this.show(this.from + share * length, this.from + share * length + length);
  }

  step(by) {
    const { starts } = this.data, first = starts[this.rank], last = starts[this.rank + 1] - 1;
    const begun = this.hovered >= first && this.hovered <= last;
    this.hovered = begun ? clamp(this.hovered + by, first, last)
      : clamp(this.after(this.rank, this.from), first, last);
    this.arrive();
  }

  changeRank(by) {
    const moment = this.hovered >= 0 ? this.start(this.hovered) : this.from;
    this.rank = clamp(this.rank + by, 0, this.data.ranks - 1);
    const last = this.data.starts[this.rank + 1] - 1;
    this.hovered = Math.min(this.after(this.rank, moment), last);
    this.arrive();
  }

  arrive() {
    this.tell(this.operationText(this.hovered));
    const start = this.start(this.hovered), end = this.end(this.hovered);
    const length = this.to - this.from;
    if (start < this.from || end > this.to) {
      this.show((start + end - length) / 2, (start + end + length) / 2);
    } else this.present();
  }

  listen() {
    const { canvas } = this, actions = {
      in: () => this.zoom(2), out: () => this.zoom(0.5), all: () => this.show(0, Infinity),
      left: () => this.pan(-0.4), right: () => this.pan(0.4), held: () => this.toggle(),
    };
    for (const button of this.root.querySelectorAll("[data-do]")) {
      button.addEventListener("click", actions[button.dataset.do]);
    }
    const keys = {
      "+": actions.in, "=": actions.in, "-": actions.out, 0: actions.all,
      ArrowLeft: (e) => e.shiftKey ? this.pan(-0.2) : this.step(-1),
      ArrowRight: (e) => e.shiftKey ? this.pan(0.2) : this.step(1),
      ArrowUp: () => this.changeRank(-1), ArrowDown: () => this.changeRank(1),
      Enter: () => this.follow(this.hovered), Escape: () => this.follow(-1),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key](event);
    });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.fingers.set(event.pointerId, event.offsetX);
      this.dragged = 0;
    });
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => this.fingers.delete(event.pointerId));
    }
    canvas.addEventListener("pointerleave", () => this.forget());
    canvas.addEventListener("click", (event) => {
      if (this.dragged > 4) return;
      this.pointAt(event.offsetX, event.offsetY);
      this.follow(this.hovered);
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;  // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.25 : 0.8, this.momentAt(event.offsetX));
    }, { passive: false });
    this.tell(this.summary());
  }

  toggle() {
    this.shows = !this.shows;
    this.root.querySelector("[data-do=held]").setAttribute("aria-pressed", this.shows);
    this.draw();
  }

  momentAt(x) { return this.from + x / this.canvas.clientWidth * (this.to - this.from); }

  // A finger or a pressed button pans, two fingers zoom, a mouse points.
  moved(event) {
    const before = this.fingers.get(event.pointerId);
    if (before === undefined) return this.pointAt(event.offsetX, event.offsetY);
    this.fingers.set(event.pointerId, event.offsetX);
    this.dragged += Math.abs(event.offsetX - before);
    const others = [...this.fingers].filter(([id]) => id !== event.pointerId);
    if (!others.length) return this.pan((before - event.offsetX) / this.canvas.clientWidth);
    const still = others[0][1], apart = Math.abs(event.offsetX - still);
    const was = Math.abs(before - still);
    if (was > 8 && apart > 8) this.zoom(apart / was, this.momentAt(still));
  }

  // The kinds of operations that there are, and what is no operation.
  label() {
    const used = new Set(Object.keys(this.data.durations).map((code) => code & 3));
    const names = ["forward", "backward", "input", "weight"];
    const entries = [...used].sort().map((kind) => [this.data.kinds[kind], colour(names[kind])]);
    entries.push(["bubble", colour("idle")]);
    if (this.data.whole > this.data.pipeline) entries.push(["after the pipeline", colour("after")]);
    legend(this.root.querySelector(".legend"), entries);
  }
}
