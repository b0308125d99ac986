"use strict";

// Whole numbers that were deflated and written in base64: `page/packed.py` does the opposite.
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const view = new DataView(buffer), values = new Int32Array(buffer.byteLength / 4);
  for (let i = 0; i < values.length; i++) values[i] = view.getInt32(4 * i, true);
  return values;
}

// The sums of differences.
function summed(differences) {
  const values = new Int32Array(differences.length);
  let sum = 0;
  for (let i = 0; i < values.length; i++) values[i] = sum += differences[i];
  return values;
}

function dataOf(element) {
  return JSON.parse(document.getElementById(element.dataset.source).textContent);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function clamp(value, least, most) {
  return Math.max(least, Math.min(most, value));
}

function secondsText(seconds) {
  if (!seconds) return "0 s";
  const size = Math.abs(seconds);
  const [unit, factor] = size >= 1 ? ["s", 1] : size >= 1e-3 ? ["ms", 1e3] : ["us", 1e6];
  return `${Number((seconds * factor).toPrecision(size >= 1000 ? 7 : 4))} ${unit}`;
}

// A canvas as sharp as the screen is. Returns its context, in CSS pixels.
function sharpened(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

// Names with the colours that stand for them.
function legend(element, entries) {
  element.replaceChildren(...entries.map(([name, fill]) => {
    const entry = document.createElement("span"), box = document.createElement("i");
    box.style.background = fill;
    entry.append(box, name);
    return entry;
  }));
}
