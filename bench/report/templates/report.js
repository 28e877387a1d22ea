"use strict";
(() => {
  const FIRST = 100;
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const drawn = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // As the tables of the page write them: so many significant digits, but whole thousands stay whole.
  const number = (value, digits) => {
    if (value === null) return "-";
    if (value === 0) return "0";
    const places = Math.min(9, Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value)))));
    return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  };
  const share = (value) => value === null ? "-" : (value * 100).toFixed(1) + "%";
  const count = (value) => value === null ? "-" : value.toLocaleString("en-US");

  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // What points at a source with a mouse can be tapped, too.
  const tip = byId("tip");
  const sourced = "td[title]:not(#trial-table td), li[title], span[title], figcaption[title], dd[title]";
  document.addEventListener("click", (event) => {
    const from = event.target.closest("a, button, summary") ? null : event.target.closest(sourced);
    tip.hidden = !from;
    tip.textContent = from ? from.title : "";
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  // Missing values (no sort key) stay last in both directions.
  const compare = (a, b, way) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return (a - b) * way;
    return String(a).localeCompare(String(b), "en", { numeric: true }) * way;
  };
  const turn = (head) => {
    const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
    return way;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => head.addEventListener("click", () => {
      const way = turn(head);
      const key = (row) => {
        const cell = row.cells[column];
        if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
        return head.dataset.kind === "text" ? cell.textContent.replace(/(\d),(?=\d{3})/g, "$1") : null;
      };
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(key(a), key(b), way));
      rows.forEach((row) => row.classList.remove("new"));
      table.tBodies[0].append(...rows);
    }));
  }

  // What follows is the list of trials, which not every page has.
  const table = byId("trial-table");
  if (!table) return;
  const routes = JSON.parse(byId("trial-routes").textContent);
  const trials = JSON.parse(byId("trial-data").textContent);
  // Places of a trial's values; drill.py writes them in this order.
  const [ID, ROUTE, TIER, CONDITION, REPLAY, ATTEMPT, PROMPT, OUTPUT, TTFT, DECODE, ACCEPT, LENGTH, REUSE, TOTAL,
    VALID, VERDICT, NOTES, DETAIL, WAVE] = Array(19).keys();
  // The requests of a wave, in the order of their streams.
  const members = (trial) => trial[WAVE] === null ? []
    : trials.filter((other) => other[WAVE] !== null && other[WAVE][0] === trial[WAVE][0]);
  let all = false;
  let order = null;
  const show = () => {
    const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const only = byId("only").checked;
    const found = trials.filter((trial) => {
      if (only && trial[VALID]) return false;
      const text = [trial[ID], trial[CONDITION], trial[VERDICT], ...trial[NOTES]].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    if (order) found.sort((a, b) => compare(a[order.key], b[order.key], order.way));
    const rows = all ? found : found.slice(0, FIRST);
    table.tBodies[0].replaceChildren(...rows.map(row));
    byId("count").textContent = `${rows.length.toLocaleString("en-US")} of ${trials.length.toLocaleString("en-US")} shown`;
    byId("more").hidden = rows.length === found.length;
  };
  for (const head of table.tHead.rows[0].cells) head.addEventListener("click", () => {
    order = { key: Number(head.dataset.key), way: turn(head) };
    show();
  });
  byId("find").addEventListener("input", show);
  byId("only").addEventListener("change", show);
  byId("more").addEventListener("click", () => { all = true; show(); });

  const heads = [...table.tHead.rows[0].cells];
  // A phone names the column beside the number.
  const label = (head) => {
    const unit = head.querySelector("small");
    return head.querySelector("button").firstChild.textContent.trim() + (unit ? ` (${unit.textContent})` : "");
  };
  const row = (trial) => {
    const line = element("tr", undefined, "trial" + (trial[VALID] ? "" : " invalid"));
    const name = element("td");
    const dot = element("i", undefined, "dot");
    dot.style.background = routes[trial[ROUTE]].color;
    const open = element("button", trial[ID] + (trial[ATTEMPT] > 1 ? ` (attempt ${trial[ATTEMPT]})` : ""), "open");
    open.type = "button";
    open.setAttribute("aria-expanded", "false");
    name.append(dot, open);
    const condition = trial[CONDITION] + (trial[REPLAY] ? " " + trial[REPLAY] : "")
      + (trial[WAVE] ? `, ${trial[WAVE][2]} of ${trial[WAVE][1]} at once` : "");
    line.append(name, element("td", count(trial[TIER]), "n"),
      element("td", condition),
      element("td", number(trial[TTFT], 4), "n"), element("td", number(trial[DECODE], 3), "n"),
      element("td", share(trial[ACCEPT]), "n"), element("td", share(trial[REUSE]), "n"),
      element("td", number(trial[TOTAL], 4), "n"));
    const verdict = element("td");
    verdict.append(element("span", trial[VERDICT], "badge " + (trial[VALID] ? "ok" : "invalid")));
    line.append(verdict);
    heads.forEach((head, column) => {
      const cell = line.cells[column];
      cell.title = head.title;
      if (head.className === "n") cell.dataset.label = label(head);
    });
    line.addEventListener("click", () => {
      const next = line.nextElementSibling;
      const shut = next && next.classList.contains("detail");
      if (shut) next.remove(); else line.after(detail(trial));
      open.setAttribute("aria-expanded", String(!shut));
    });
    return line;
  };

  const detail = (trial) => {
    const line = element("tr", undefined, "detail");
    const cell = element("td");
    cell.colSpan = table.tHead.rows[0].cells.length;
    const box = element("div", undefined, "box");
    const facts = element("dl");
    const fact = (name, text) => { if (text) facts.append(element("dt", name), element("dd", text)); };
    const seconds = (value) => value === null ? "" : number(value, 4) + " s";
    const data = trial[DETAIL];
    if (data && data[0].length) box.append(curve(trial, data));
    if (trial[WAVE]) fact("wave", `stream ${trial[WAVE][2]} of ${trial[WAVE][1]} released together`);
    fact("verdict", trial[VALID] ? "valid" : "");
    trial[NOTES].forEach((note, place) => fact(!trial[VALID] && place === 0 ? "verdict" : "note", note));
    fact("prompt", count(trial[PROMPT]) + " tokens");
    fact("output", count(trial[OUTPUT]) + " tokens");
    if (trial[LENGTH] !== null) fact("acceptance length", number(trial[LENGTH], 3));
    if (data) {
      const [, , , , , ended, [connect, uploaded, headers, text], [idle, settle], started, said, missing, witness, prompt] = data;
      fact("prompt sha256", prompt);
      fact("started", started);
      fact("connect (before)", seconds(connect));
      fact("uploaded", seconds(uploaded));
      fact("headers", seconds(headers));
      fact("first text", seconds(text));
      fact("ended", seconds(ended));
      const whose = trial[WAVE] ? " (the wave)" : "";
      fact("waited for idle" + whose, seconds(idle));
      fact("counters settled" + whose, seconds(settle));
      fact("reuse missing", missing);
      fact("witnesses", witness);
      fact(trial[VALID] ? "answer" : "server said", said);
    }
    box.append(facts);
    if (trial[WAVE]) box.append(together(trial));
    cell.append(box);
    line.append(cell);
    return line;
  };

  // A wave as a whole: its requests side by side, and what pages and samples say of all of them at once.
  const together = (trial) => {
    const [, size, , , shared] = trial[WAVE];
    const frame = element("div", undefined, "wave");
    const made = element("table");
    made.append(element("caption", `The wave of ${size}; pages and samples are of all its requests together: `
      + shared.map(([name, text]) => `${name} ${text}`).join("; ")));
    const head = element("tr");
    for (const [name, align] of [["stream"], ["sent after release", "n"], ["TTFT", "n"], ["decode", "n"], ["output", "n"],
      ["verdict"]]) {
      head.append(element("th", name, align));
    }
    made.append(head);
    const unit = (value, digits, of) => value === null ? "-" : number(value, digits) + of;
    for (const other of members(trial)) {
      const line = element("tr", undefined, other === trial ? "this" : "");
      const late = other[WAVE][3];
      line.append(element("th", String(other[WAVE][2])), element("td", unit(late, 3, " s"), "n"),
        element("td", unit(other[TTFT], 4, " s"), "n"), element("td", unit(other[DECODE], 3, " tok/s"), "n"),
        element("td", count(other[OUTPUT]), "n"), element("td", other[VERDICT]));
      made.append(line);
    }
    frame.append(made);
    return frame;
  };

  const step = (reach) => {
    const rough = reach / 5;
    const size = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((by) => by * size).find((by) => by >= rough);
  };
  const curve = (trial, data) => {
    const [times, counts, unit, at, use, ended] = data;
    const [width, height, left, right, top, bottom] = [560, 230, 48, 46, 14, 36];
    const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "arrival curve" });
    // The other requests of its wave, on this one's clock.
    const others = members(trial)
      .filter((other) => other !== trial && other[DETAIL] && other[DETAIL][2] === unit && other[DETAIL][0].length)
      .map((other) => [other[DETAIL][0].map((t) => t + (other[WAVE][3] || 0) - (trial[WAVE][3] || 0)), other[DETAIL][1]]);
    const last = (values) => values[values.length - 1];
    const reach = Math.max(ended, last(times), ...others.map(([theirs]) => last(theirs))) || 1;
    const most = Math.max(last(counts), ...others.map(([, theirs]) => last(theirs))) || 1;
    const x = (t) => left + Math.max(0, t) / reach * (width - left - right);
    const y = (n, full) => height - bottom - n / full * (height - top - bottom);
    const put = (name, attributes, text) => picture.append(drawn(name, attributes, text));
    const small = { "font-size": 11, fill: "var(--note)" };
    put("rect", { x: x(0), y: top, width: x(times[0]) - x(0), height: height - top - bottom, fill: "var(--soft)" });
    for (let t = 0; t <= reach; t += step(reach)) {
      put("line", { x1: x(t), x2: x(t), y1: top, y2: height - bottom, stroke: "var(--line)" });
      put("text", { x: x(t), y: height - bottom + 14, "text-anchor": "middle", ...small }, String(Number(t.toPrecision(6))));
    }
    for (let n = 0; n <= most; n += Math.max(1, step(most))) {
      put("text", { x: left - 6, y: y(n, most) + 4, "text-anchor": "end", ...small }, count(Math.round(n)));
    }
    const line = (xs, ys, full, attributes) => put("polyline", {
      points: xs.map((t, i) => ys[i] === null ? "" : `${x(t).toFixed(1)},${y(ys[i], full).toFixed(1)}`).filter(Boolean).join(" "),
      fill: "none", ...attributes });
    if (at.length) {
      const full = Math.max(0.01, ...use.filter((share) => share !== null)) * 1.2;
      line(at, use, full, { stroke: "var(--note)", "stroke-width": 1.3, "stroke-dasharray": "4 3" });
      for (const part of [0, 0.5, 1]) {
        put("text", { x: width - right + 5, y: y(part * full, full) + 4, ...small }, (part * full * 100).toPrecision(2) + "%");
      }
      put("text", { x: width - right, y: top - 3, "text-anchor": "end", ...small }, (trial[WAVE] ? "KV use of the wave" : "KV use") + " (dashed)");
    }
    for (const [theirs, so] of others) line(theirs, so, most, { stroke: "var(--note)", "stroke-width": 1, opacity: 0.6 });
    line(times, counts, most, { stroke: routes[trial[ROUTE]].color, "stroke-width": 2 });
    put("text", { x: left, y: top - 3, ...small }, unit + " received" + (others.length ? " (thin: the others of its wave)" : ""));
    put("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle", ...small }, "seconds after the first request byte");
    return picture;
  };
  show();
})();
