// What the page starts with, and its buttons.
const drawn = [];

function redrawAll() {
  for (const one of drawn) {
    one.label();
    one.draw();
  }
}

const THEMES = ["auto", "dark", "light"];
document.getElementById("theme").addEventListener("click", (event) => {
  const root = document.documentElement, now = root.dataset.theme || "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  if (next === "auto") delete root.dataset.theme; else root.dataset.theme = next;
  event.target.textContent = `Theme: ${next}`;
  redrawAll();
});

// Copies by the clipboard where the browser lets a file do so, and else by a selection.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const parts = button.dataset.copies.split(" ").map((id) => document.getElementById(id));
    const done = await copied(parts.map((part) => part ? part.textContent : "").join(""));
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

// A launch file is shown from its first flags on.
for (const box of document.querySelectorAll("pre.flags")) {
  const before = box.textContent.split("\n").findIndex((line) => /^\s*--\w/.test(line));
  const height = parseFloat(getComputedStyle(box).lineHeight);
  if (before > 1) box.scrollTop = (before - 1) * height;
}

async function started(Kind, root) {
  try {
    const data = dataOf(root);
    const one = new Kind(root, data, await unpack(data.packed));
    drawn.push(one);
    return one;
  } catch (error) {
    root.querySelector(".readout").textContent = `Not drawn: ${error.message}. A browser of 2023 ` +
      "or later is needed.";
    return null;
  }
}

async function start() {
  const timelines = [];
  for (const root of document.querySelectorAll(".timeline")) {
    const one = await started(Timeline, root);
    if (one) timelines.push(one);
  }
  for (const one of timelines) one.linked = timelines;
  for (const root of document.querySelectorAll(".devices")) await started(Devices, root);
  if (timelines.length) timelines[0].show(0, Math.max(...timelines.map((one) => one.opens)));
  redrawAll();
  window.addEventListener("resize", redrawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  document.documentElement.dataset.ready = "yes";
}

start();
