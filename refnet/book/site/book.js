"use strict";

// The search: every section that has all words, those with a word in the title first.
function matches(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const found = [];
  for (const [page, title, href, text] of ENTRIES) {
    const all = `${page} ${title} ${text}`.toLowerCase();
    if (words.every((word) => all.includes(word))) {
      const score = words.filter((word) => title.toLowerCase().includes(word)).length;
      const at = text.toLowerCase().indexOf(words[0]);
      const snippet = at < 0 ? text.slice(0, 90) : text.slice(Math.max(0, at - 40), at + 60);
      found.push({ page, title, href, snippet, score });
    }
  }
  return found.sort((a, b) => b.score - a.score).slice(0, 30);
}

function startSearch() {
  const input = document.getElementById("search");
  const results = document.getElementById("results");
  const close = () => { results.hidden = true; };
  input.addEventListener("input", () => {
    const found = matches(input.value);
    results.hidden = !input.value.trim();
    results.replaceChildren(...(found.length ? found.map(entry) : [text("li", "Nothing found")]));
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter") results.querySelector("a")?.click();
  });
  results.addEventListener("click", close);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("header")) close();
  });
}

function entry({ page, title, href, snippet }) {
  const link = text("a", page === title ? title : `${page}: ${title}`);
  link.href = href;
  link.append(text("small", `… ${snippet} …`));
  const item = document.createElement("li");
  item.append(link);
  return item;
}

function text(tag, words) {
  const element = document.createElement(tag);
  element.textContent = words;
  return element;
}

// The sliders: frames that refnet computed, drawn as lines.
// On a phone the drawing is narrower, so that its letters stay legible.
const WIDTH = typeof innerWidth === "undefined" || innerWidth > 640 ? 640 : 370;
const HEIGHT = 330, LEFT = 62, RIGHT = 12, TOP = 12, BOTTOM = 44;
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "1 4"];

// From a number to its place on an axis that runs from least to most over the pixels a to b.
function scale(least, most, a, b, log) {
  const of = log ? Math.log10 : (v) => v;
  return (v) => a + ((of(v) - of(least)) / (of(most) - of(least))) * (b - a);
}

// The place of the values at these positions among the frames: the last control changes fastest.
function frameIndex(controls, positions) {
  return controls.reduce((index, control, n) => index * control.values.length + positions[n], 0);
}

// A line as the d of an SVG path; a gap where a point is missing, or not above 0 on a log axis.
function path(xs, ys, toX, toY, log) {
  let d = "", pen = "M";
  xs.forEach((x, n) => {
    const y = ys[n];
    if (x === null || y === null || (log && y <= 0)) { pen = "M"; return; }
    d += `${pen}${toX(x).toFixed(1)} ${toY(y).toFixed(1)}`;
    pen = "L";
  });
  return d;
}

function ticks(least, most, log) {
  if (log) {
    const low = Math.ceil(Math.log10(least)), high = Math.floor(Math.log10(most));
    const step = Math.max(1, Math.ceil((high - low) / 6));
    const all = [];
    for (let e = low; e <= high; e += step) all.push(10 ** e);
    return all;
  }
  const raw = (most - least) / 6, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const all = [];
  for (let v = Math.ceil(least / step) * step; v <= most + step / 1e6; v += step) all.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return all;
}

function svg(tag, attributes, words) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (words !== undefined) element.textContent = words;
  return element;
}

function axes(canvas, data, toX, toY) {
  const [x0, x1, y0, y1] = data.box;
  const small = { "font-size": 11, fill: "currentColor" };
  for (const v of ticks(x0, x1, false)) {
    canvas.append(svg("path", { d: `M${toX(v)} ${HEIGHT - BOTTOM}v4`, stroke: "currentColor" }));
    canvas.append(svg("text", { ...small, x: toX(v), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, +v.toPrecision(4)));
  }
  for (const v of ticks(y0, y1, data.log)) {
    canvas.append(svg("path", { d: `M${LEFT - 4} ${toY(v)}H${WIDTH - RIGHT}`, stroke: "var(--rule)" }));
    const label = svg("text", { ...small, x: LEFT - 7, y: toY(v) + 4, "text-anchor": "end" });
    if (data.log && v !== 1) {
      label.append("10", svg("tspan", { dy: -4, "font-size": 8 }, Math.round(Math.log10(v)).toString().replace("-", "−")));
    } else label.append((+v.toPrecision(4)).toString().replace("-", "−"));
    canvas.append(label);
  }
  canvas.append(svg("path", { d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}`, fill: "none", stroke: "currentColor" }));
  canvas.append(svg("text", { ...small, "font-size": 12, x: (LEFT + WIDTH) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, data.axes[0]));
  canvas.append(svg("text", { ...small, "font-size": 12, transform: `translate(14 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" }, data.axes[1]));
}

function startSlider(box) {
  const data = JSON.parse(box.querySelector("script").textContent);
  const [x0, x1, y0, y1] = data.box;
  const toX = scale(x0, x1, LEFT, WIDTH - RIGHT, false);
  const toY = scale(y0, y1, HEIGHT - BOTTOM, TOP, data.log);
  const name = `clip-${box.id}`;
  const canvas = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const clip = svg("clipPath", { id: name });
  clip.append(svg("rect", { x: LEFT, y: TOP, width: WIDTH - RIGHT - LEFT, height: HEIGHT - BOTTOM - TOP }));
  canvas.append(clip);
  axes(canvas, data, toX, toY);
  const style = (n) => ({ stroke: `var(--line-${n % 5})`, "stroke-width": 2, "stroke-dasharray": DASHES[n % 5] });
  const lines = data.lines.map((_, n) => svg("path", { ...style(n), fill: "none", "clip-path": `url(#${name})` }));
  canvas.append(...lines);
  const legend = document.createElement("div");
  legend.className = "legend";
  data.lines.forEach((line, n) => {
    const sample = svg("svg", { viewBox: "0 0 36 10" });
    sample.append(svg("path", { d: "M0 5h36", ...style(n) }));
    const item = text("span", line);
    item.prepend(sample);
    legend.append(item);
  });
  const note = text("p", "");
  note.className = "note";
  const inputs = data.controls.map((control) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    const middle = Math.floor((control.values.length - 1) / 2);
    Object.assign(input, { type: "range", min: 0, max: control.values.length - 1, value: middle });
    label.append(text("span", control.label), input, document.createElement("output"));
    input.addEventListener("input", draw);
    box.append(label);
    return input;
  });
  box.append(legend, canvas, note);
  draw();

  function draw() {
    const positions = inputs.map((input) => Number(input.value));
    const frame = data.frames[frameIndex(data.controls, positions)];
    frame.lines.forEach(([xs, ys], n) => lines[n].setAttribute("d", path(xs, ys, toX, toY, data.log)));
    inputs.forEach((input, n) => { input.nextSibling.value = data.controls[n].values[positions[n]]; });
    note.textContent = frame.note;
  }
}

if (typeof document !== "undefined") {
  startSearch();
  document.querySelectorAll(".frames").forEach(startSlider);
  const menu = document.getElementById("menu");
  const here = location.pathname.split("/").pop() || "index.html";
  menu.querySelector(`a[href="${here}"]`)?.classList.add("here");
  if (!matchMedia("(min-width: 76rem)").matches) menu.open = false;
} else module.exports = { frameIndex, matches, path, scale, ticks };
