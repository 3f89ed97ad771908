// The console without this file shows the same pages. It adds: rates, following, copying, the theme.
"use strict";

const root = document.documentElement;
const stored = localStorage.getItem("theme");
if (stored) root.dataset.theme = stored;

document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => {
    if (!confirm(form.dataset.confirm)) event.preventDefault();
  });
}

const field = (data, path) => path.split(".").reduce((value, name) => value[name], data);
const thin = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");

function size(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return `${number.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}

async function read(path) {
  const response = await fetch(path, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(response.status);
  return response.json();
}

// Rates: two readings of the broker's counters.
const live = document.querySelector("[data-live]");
const history = new Map();

const time = (data) => (data.traffic || data).at_ms;

// The records of topics: two readings of the list give each row's rate.
function showTopicRates(before, after) {
  const old = new Map(before.topics.map((row) => [row.name, row.records]));
  const seconds = (after.at_ms - before.at_ms) / 1000;
  for (const row of after.topics) {
    const cell = live.querySelector(`[data-topic="${CSS.escape(row.name)}"]`);
    if (cell && row.is_sized && old.has(row.name)) {
      cell.textContent = thin(Math.max(0, row.records - old.get(row.name)) / seconds);
    }
  }
}

function showRates(before, after) {
  const seconds = (time(after) - time(before)) / 1000;
  if (live.dataset.live.startsWith("/api/topics")) {
    showTopicRates(before, after);
    return;
  }
  for (const each of live.querySelectorAll("[data-rate]")) {
    const rate = Math.max(0, field(after, each.dataset.rate) - field(before, each.dataset.rate)) / seconds;
    each.textContent = each.dataset.format === "size" ? size(rate) : thin(rate);
    const unit = each.parentElement.querySelector("[data-unit]");
    if (unit) unit.textContent = each.dataset.format === "size" ? " per second" : `${each.dataset.rate.endsWith("requests") ? "requests" : "records"} per second`;
  }
  for (const each of live.querySelectorAll("[data-value]")) each.textContent = thin(field(after, each.dataset.value));
  for (const each of live.querySelectorAll("[data-level]")) {
    const points = history.get(each.dataset.level) || [field(before, each.dataset.level)];
    points.push(field(after, each.dataset.level));
    history.set(each.dataset.level, points.slice(-300));
    drawLine(each, history.get(each.dataset.level));
  }
  for (const each of live.querySelectorAll("[data-spark]")) {
    const path = each.dataset.spark;
    const points = history.get(path) || [];
    points.push(Math.max(0, field(after, path) - field(before, path)) / seconds);
    history.set(path, points.slice(-60));
    drawLine(each, history.get(path));
  }
}

function drawLine(svg, points) {
  const most = Math.max(1, ...points);
  const step = 100 / Math.max(1, points.length - 1);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.map((value, at) => `${at * step},${23 - (22 * value) / most}`).join(" "));
  svg.replaceChildren(line);
  const hidden = svg.closest("[hidden]");
  if (hidden) hidden.hidden = false;
}

if (live) {
  let before = null;
  const tick = async () => {
    if (!document.hidden) {
      try {
        const after = await read(live.dataset.live);
        if (before) showRates(before, after);
        before = after;
      } catch (error) { before = null; }
    }
    setTimeout(tick, Number(live.dataset.every || 2) * 1000);
  };
  tick();
}

// Following: read on from the cursor of the page.
const follow = document.getElementById("follow");
if (follow) {
  const rows = document.getElementById("records");
  let cursor = follow.dataset.cursor;
  let timer = null;
  follow.hidden = false;

  const cell = (row, name, text, link, note) => {
    const made = row.insertCell();
    made.className = name;
    const inner = document.createElement(link ? "a" : name === "key" || name === "value" ? "code" : "span");
    if (link) inner.href = link;
    if (inner.tagName === "CODE") inner.className = "held";
    inner.textContent = text;
    made.append(inner);
    if (note) {
      const below = document.createElement("span");
      below.className = "held-note";
      below.textContent = note;
      made.append(below);
    }
  };

  const poll = async () => {
    try {
      const query = new URLSearchParams(follow.dataset.query);
      query.set("cursor", cursor);
      const page = await read(`${follow.dataset.api}?${query}`);
      cursor = page.cursor;
      for (const record of page.records) {
        const row = rows.insertRow(0);
        row.className = "new-row";
        cell(row, "num", record.partition);
        cell(row, "num", record.offset, `${follow.dataset.api.slice(4)}/${record.partition}/${record.offset}`);
        cell(row, "time", new Date(record.timestamp_ms).toISOString().replace("T", " ").slice(0, 23));
        cell(row, "key", record.key.text === null ? "null" : record.key.text, null, record.key.note);
        cell(row, "value", record.value.text === null ? "null" : record.value.text, null, record.value.note);
      }
      while (rows.rows.length > 500) rows.deleteRow(-1);
    } catch (error) { /* the next poll tries again */ }
    timer = setTimeout(poll, document.hidden ? 5000 : 1000);
  };

  follow.addEventListener("click", () => {
    const on = follow.getAttribute("aria-pressed") !== "true";
    follow.setAttribute("aria-pressed", on);
    follow.textContent = on ? "Following" : "Follow";
    clearTimeout(timer);
    if (on) poll();
  });
}
