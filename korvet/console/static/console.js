// The console without this file shows the same pages. It adds: links and forms without a reload,
// the palette, rates, following, copying, the theme.
"use strict";

const root = document.documentElement;
const stored = localStorage.getItem("theme");
if (stored) root.dataset.theme = stored;

const find = (selector) => document.querySelector(selector);
const thin = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");

function make(tag, values = {}, ...children) {
  const made = Object.assign(document.createElement(tag), values);
  made.append(...children);
  return made;
}

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

// Pages: a link or a form of the console replaces the content, without a reload.
let turn = 0;
let here = "";

async function show(url, { body = null, pushes = true, keepsPlace = false } = {}) {
  const mine = ++turn;
  root.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(url, body ? { method: "POST", body } : {});
    const kind = response.headers.get("content-type") || "";
    const text = await response.text();
    if (mine !== turn) return;
    const page = new DOMParser().parseFromString(text, "text/html");
    const main = page.getElementById("main");
    if (!kind.startsWith("text/html") || !main || !page.querySelector("nav")) {
      location.assign(response.url);
      return;
    }
    // A refused form has the URL of its page.
    if (pushes && (!body || response.redirected)) history.pushState(null, "", response.url);
    find("main").replaceWith(main);
    find(".side nav").replaceWith(page.querySelector(".side nav"));
    find("#more").checked = false;
    document.title = page.title;
    const wrong = main.querySelector("[aria-invalid], [autofocus]");
    if (wrong) wrong.focus(); else main.focus({ preventScroll: true });
    if (!keepsPlace) scrollTo(0, 0);
    begin();
  } catch (error) {
    location.assign(url);
  } finally {
    if (mine === turn) root.removeAttribute("aria-busy");
  }
}

function isPage(url, link) {
  return url.origin === location.origin && !link.target && !link.hasAttribute("download")
    && !/^\/(api|static|metrics|sign-)/.test(url.pathname);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  if (!isPage(url, link) || (url.hash && url.pathname === location.pathname)) return;
  event.preventDefault();
  if (palette) palette.close();
  show(url.href, { keepsPlace: Boolean(link.closest("th")) });
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) { event.preventDefault(); return; }
  const url = new URL(form.action);
  if (!isPage(url, form)) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form, event.submitter));
  if (form.method === "post") { show(url.href, { body: fields }); return; }
  for (const [name, value] of [...fields]) if (!value) fields.delete(name);
  show(`${url.pathname}?${fields}`);
});

// A link to a place of the page, such as #main, is a popstate too.
addEventListener("popstate", () => {
  if (here !== location.pathname + location.search) show(location.href, { pushes: false });
});

// The palette: pages, topics and groups by name.
let palette = null;

function openPalette() {
  if (!palette) {
    const input = make("input", { type: "search", placeholder: "Page, topic or group", autocomplete: "off" });
    input.setAttribute("aria-label", "Page, topic or group");
    palette = make("dialog", {}, input, make("ul"));
    input.addEventListener("input", listPalette);
    palette.addEventListener("keydown", (event) => {
      const links = [...palette.querySelectorAll("a")];
      const at = links.findIndex((link) => link.hasAttribute("aria-selected"));
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Enter") { event.preventDefault(); if (links[at]) links[at].click(); }
      if (!step || !links.length) return;
      event.preventDefault();
      links[at].removeAttribute("aria-selected");
      const chosen = links[(at + step + links.length) % links.length];
      chosen.setAttribute("aria-selected", "true");
      chosen.scrollIntoView({ block: "nearest" });
    });
    palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
    document.body.append(palette);
  }
  if (palette.open) return;
  palette.querySelector("input").value = "";
  palette.showModal();
  listPalette();
}

async function listPalette() {
  const text = palette.querySelector("input").value.trim();
  const rows = [...document.querySelectorAll(".side nav a")]
    .map((link) => [link.textContent.trim(), "page", link.getAttribute("href")])
    .filter(([name]) => name.toLowerCase().includes(text.toLowerCase()));
  const query = `q=${encodeURIComponent(text)}&size=8`;
  const [topics, groups] = await Promise.all([
    read(`/api/topics?${query}&lags=0`).catch(() => ({ topics: [] })),
    read(`/api/groups?${query}`).catch(() => ({ groups: [] })),
  ]);
  if (text !== palette.querySelector("input").value.trim()) return;
  for (const { name } of topics.topics) rows.push([name, "topic", `/topics/${encodeURIComponent(name)}`]);
  for (const { group } of groups.groups) rows.push([group, "group", `/group?id=${encodeURIComponent(group)}`]);
  palette.querySelector("ul").replaceChildren(...rows.map(([name, kind, href], at) => {
    const link = make("a", { href }, name, make("span", { className: "quiet-text" }, kind));
    if (!at) link.setAttribute("aria-selected", "true");
    return make("li", {}, link);
  }));
}

document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    openPalette();
  } else if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    const field = find("main [role=search] input");
    if (field) field.focus(); else openPalette();
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("#theme, #jump, [data-copy], [data-expand]");
  if (!button) return;
  if (button.id === "jump") openPalette();
  if (button.dataset.expand) expand(button);
  if (button.dataset.copy !== undefined) {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    toast("Copied.");
  }
  if (button.id === "theme") {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  }
});

// A record below its row: the content of its page.
async function expand(button) {
  const row = button.closest("tr");
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", !isOpen);
  if (isOpen) { row.nextElementSibling.remove(); return; }
  const cell = make("td", { colSpan: row.cells.length, className: "opened" }, "Reading\u2026");
  row.after(make("tr", {}, cell));
  const response = await fetch(button.dataset.expand);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  cell.replaceChildren(page.getElementById("record") || page.querySelector("[role=alert]"));
  enable();
}

// Results of changes.
const toasts = make("div", { id: "toast" });
document.body.append(toasts);

function toast(what) {
  const shown = typeof what === "string" ? make("p", { className: "done" }, what) : what;
  shown.setAttribute("role", "status");
  toasts.replaceChildren(shown);
  setTimeout(() => shown.remove(), 10_000);
}

// Rates: two readings of the broker's counters.
const field = (data, path) => path.split(".").reduce((value, name) => value[name], data);
const time = (data) => (data.traffic || data).at_ms;

// The records of topics: two readings of the list give each row's rate.
function showTopicRates(live, before, after) {
  const old = new Map(before.topics.map((row) => [row.name, row.records]));
  const seconds = (after.at_ms - before.at_ms) / 1000;
  for (const row of after.topics) {
    const cell = live.querySelector(`[data-topic="${CSS.escape(row.name)}"]`);
    if (cell && row.is_sized && old.has(row.name)) {
      cell.textContent = thin(Math.max(0, row.records - old.get(row.name)) / seconds);
    }
  }
}

function showRates(live, seen, before, after) {
  const seconds = (time(after) - time(before)) / 1000;
  if (live.dataset.live.startsWith("/api/topics")) {
    showTopicRates(live, before, after);
    return;
  }
  const rate = (path) => Math.max(0, field(after, path) - field(before, path)) / seconds;
  const add = (svg, path, value, first) => {
    const points = seen.get(path) || first;
    points.push(value);
    seen.set(path, points.slice(-300));
    drawLine(svg, seen.get(path));
  };
  for (const each of live.querySelectorAll("[data-rate]")) {
    const isSize = each.dataset.format === "size";
    each.textContent = (isSize ? size : thin)(rate(each.dataset.rate));
    const unit = each.parentElement.querySelector("[data-unit]");
    if (unit) unit.textContent = isSize ? " per second" : `${each.dataset.rate.endsWith("requests") ? "requests" : "records"} per second`;
  }
  for (const each of live.querySelectorAll("[data-value]")) each.textContent = thin(field(after, each.dataset.value));
  for (const each of live.querySelectorAll("[data-level]")) {
    const path = each.dataset.level;
    add(each, path, field(after, path), [field(before, path)]);
  }
  for (const each of live.querySelectorAll("[data-spark]")) add(each, each.dataset.spark, rate(each.dataset.spark), []);
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

function watch(live) {
  const seen = new Map();
  let before = null;
  const tick = async () => {
    if (!live.isConnected) return;
    if (!document.hidden) {
      try {
        const after = await read(live.dataset.live);
        if (before) showRates(live, seen, before, after);
        before = after;
      } catch (error) { before = null; }
    }
    setTimeout(tick, Number(live.dataset.every || 2) * 1000);
  };
  tick();
}

// Following: read on from the cursor of the page.
function follows(button) {
  const rows = document.getElementById("records");
  let cursor = button.dataset.cursor;
  let timer = null;
  button.hidden = false;

  const cell = (row, name, text, link, note) => {
    const made = row.insertCell();
    made.className = name;
    const inner = make(link ? "a" : name === "key" || name === "value" ? "code" : "span");
    if (link) inner.href = link;
    if (inner.tagName === "CODE") inner.className = "held";
    inner.textContent = text;
    made.append(inner);
    if (note) made.append(" ", make("span", { className: "held-note" }, note));
  };

  const poll = async () => {
    if (!button.isConnected) return;
    try {
      const query = new URLSearchParams(button.dataset.query);
      query.set("cursor", cursor);
      const page = await read(`${button.dataset.api}?${query}`);
      cursor = page.cursor;
      for (const record of page.records) {
        const row = rows.insertRow(0);
        row.className = "new-row";
        cell(row, "minor", "");
        cell(row, "num", record.partition);
        cell(row, "num", record.offset, `${button.dataset.api.slice(4)}/${record.partition}/${record.offset}`);
        cell(row, "time", new Date(record.timestamp_ms).toISOString().slice(11, 23));
        cell(row, "key", record.key.text === null ? "null" : record.key.text, null, record.key.note);
        cell(row, "value", record.value.text === null ? "null" : record.value.text, null, record.value.note);
      }
      while (rows.rows.length > 500) rows.deleteRow(-1);
    } catch (error) { /* the next poll tries again */ }
    timer = setTimeout(poll, document.hidden ? 5000 : 1000);
  };

  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", on);
    button.textContent = on ? "Following" : "Follow";
    clearTimeout(timer);
    if (on) poll();
  });
}

function enable() {
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  for (const button of document.querySelectorAll("[data-expand]")) button.hidden = false;
}

// What each new content needs.
function begin() {
  const done = find("main > .done");
  if (done) toast(done);
  const url = new URL(location);
  if (url.searchParams.has("mark")) {
    url.searchParams.delete("done");
    url.searchParams.delete("mark");
    history.replaceState(null, "", url);
  }
  here = location.pathname + location.search;
  const zone = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const each of document.querySelectorAll("time[data-ms]")) {
    if (name !== "UTC") each.title += `\n${zone.format(Number(each.dataset.ms))} ${name}`;
  }
  enable();
  const live = find("[data-live]");
  if (live) watch(live);
  const follow = find("#follow");
  if (follow) follows(follow);
}

const jump = find("#jump");
if (jump) jump.hidden = false;
begin();
