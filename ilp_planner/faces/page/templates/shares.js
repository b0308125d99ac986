// Operations of a rank that are narrower than a pixel: in each column of pixels, every kind is as
// high as its share of the time.
class Shares {
  constructor(context, y, high, fills) {
    Object.assign(this, { context, y, high, fills, column: -1, covered: [0, 0, 0, 0] });
  }

  add(kind, left, right) {
    for (let column = Math.floor(left); column < right; column++) {
      if (column !== this.column) this.flush();
      this.column = column;
      this.covered[kind] += Math.min(right, column + 1) - Math.max(left, column);
    }
  }

  flush() {
    let y = this.y;
    this.covered.forEach((share, kind) => {
      if (!share) return;
      this.context.fillStyle = this.fills[kind];
      this.context.fillRect(this.column, y, 1, share * this.high);
      y += share * this.high;
    });
    this.covered.fill(0);
  }
}
