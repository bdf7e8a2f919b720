// Draws the figures in the page's colours, and makes tables with `data-sort` sortable and searchable.
"use strict";

const figures = JSON.parse(document.getElementById("figures").textContent);
const printWidth = 660;

function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = name => style.getPropertyValue(name).trim();
  return {
    ink: read("--ink"), muted: read("--muted"), grid: read("--grid"), paper: read("--paper"),
    panel: read("--panel"), font: read("--font"),
    series: [2, 1, 3, 4, 5].map(i => read(`--series-${i}`)),
  };
}

function scale(kind, c) {
  if (kind === "share") return [[0, c.panel], [1, c.series[0]]];
  return [[0, c.series[0]], [0.5, c.paper], [1, c.series[1]]];
}

function draw(name, c, width) {
  const spec = figures[name];
  const data = spec.data.map(trace =>
    trace.type === "heatmap" ? {...trace, colorscale: scale(trace.meta, c)} : {...trace});
  const axis = own => ({
    automargin: true, gridcolor: c.grid, linecolor: c.grid, zerolinecolor: c.muted, zeroline: false,
    fixedrange: matchMedia("(pointer: coarse)").matches, ...own,
    title: {text: "", font: {size: 13}, ...(own && own.title)},
  });
  const layout = {
    ...spec.layout,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {family: c.font, size: 12, color: c.ink}, colorway: c.series,
    hoverlabel: {bgcolor: c.panel, bordercolor: c.grid, font: {color: c.ink, family: c.font}},
    margin: {l: 56, r: 12, t: 28, b: 44},
    xaxis: axis(spec.layout.xaxis), yaxis: axis(spec.layout.yaxis),
    shapes: (spec.layout.shapes || []).map(s => ({...s, line: {...s.line, color: c.muted}})),
  };
  if (width) layout.width = Math.min(width, printWidth);
  Plotly.react(name, data, layout, {displayModeBar: false, responsive: !width});
}

function drawAll(width) {
  const c = colours();
  for (const name of Object.keys(figures)) {
    const own = document.getElementById(name);
    if (own.closest("details:not([open])")) continue;
    draw(name, c, width);
  }
}

drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
for (const box of document.querySelectorAll("details")) {
  box.addEventListener("toggle", () => box.open && drawAll());
}
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("on-paper");
  for (const box of document.querySelectorAll("details")) box.open = true;
  for (const name of Object.keys(figures)) {
    const column = document.getElementById(name).closest(".columns");
    draw(name, colours(), column ? printWidth / 2 - 12 : printWidth);
  }
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("on-paper");
  drawAll();
});

function keyOf(cell) {
  const text = cell.textContent.trim();
  const number = parseFloat(text.replace(/,/g, ""));
  if (text === "" || text === "–") return [2, 0];
  return Number.isNaN(number) || cell.classList.contains("text") ? [1, text] : [0, number];
}

function compare(a, b) {
  const [kindA, valueA] = keyOf(a), [kindB, valueB] = keyOf(b);
  if (kindA !== kindB) return kindA - kindB;
  return kindA === 1 ? valueA.localeCompare(valueB) : valueA - valueB;
}

function sortBy(table, column, falling) {
  const body = table.tBodies[0], sign = falling ? -1 : 1;
  const rows = [...body.rows].map((row, place) => ({row, place}));
  rows.sort((a, b) => {
    const [x, y] = [a.row.cells[column], b.row.cells[column]];
    const missing = (keyOf(x)[0] === 2) - (keyOf(y)[0] === 2);
    return missing || sign * compare(x, y) || a.place - b.place;
  });
  body.append(...rows.map(entry => entry.row));
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    if (i === column) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

for (const table of document.querySelectorAll("table[data-sort]")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const words = head.classList.contains("text");
      sortBy(table, column, before ? before === "ascending" : !words);
    });
    head.replaceChildren(button);
  });
}

for (const field of document.querySelectorAll("input[type=search]")) {
  const table = document.getElementById(field.dataset.table);
  const told = document.getElementById(`${field.dataset.table}-count`);
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
      shown += !row.hidden;
    }
    told.textContent = `${shown} of ${table.tBodies[0].rows.length}`;
  });
}
