// Draws the figures in the colours of the page; makes tables sortable (`data-sort`) and searchable.
"use strict";

const figures = JSON.parse(document.getElementById("figures").textContent);
const paperWidth = 660;

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Plotly knows no CSS variables: replaces `var(--ink)` by its value, only under names of colours.
function coloured(value, key = "") {
  if (Array.isArray(value)) return value.map(entry => coloured(entry, key));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, k)]));
  }
  if (typeof value !== "string" || !/color/.test(key)) return value;
  const variable = value.match(/^var\((--[\w-]+)\)$/);
  return variable ? css(variable[1]) : value;
}

function axis(given = {}) {
  return {
    automargin: true, gridcolor: css("--grid"), linecolor: css("--grid"), zeroline: false,
    zerolinecolor: css("--muted"), fixedrange: matchMedia("(pointer: coarse)").matches, ...given,
    title: {text: "", standoff: 8, font: {size: 13}, ...given.title},
  };
}

function draw(name, width) {
  const {data, layout} = coloured(figures[name]);
  const panel = {bgcolor: css("--panel"), bordercolor: css("--grid")};
  const themed = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {family: css("--font"), size: 12, color: css("--ink")},
    colorway: [2, 1, 3, 4, 5].map(i => css(`--series-${i}`)),
    hoverlabel: {...panel, font: {color: css("--ink"), family: css("--font")}},
    margin: {l: 56, r: 12, t: 28, b: 44},
    ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
  };
  if (width) themed.width = width;
  Plotly.react(name, data, themed, {displayModeBar: false, responsive: !width});
}

function drawAll() {
  for (const name of Object.keys(figures)) {
    if (!document.getElementById(name).closest("details:not([open])")) draw(name);
  }
}

drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
for (const box of document.querySelectorAll("details")) {
  box.addEventListener("toggle", () => box.open && drawAll());
}
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("on-paper");
  for (const box of document.querySelectorAll("details")) box.open = true;
  for (const name of Object.keys(figures)) {
    const column = document.getElementById(name).closest(".columns");
    draw(name, column ? paperWidth / 2 - 12 : paperWidth);
  }
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("on-paper");
  drawAll();
});

// What a cell is sorted by: numbers before words, and missing values at the end.
function keyOf(cell) {
  const text = cell.textContent.trim();
  const number = parseFloat(text.replace(/,/g, ""));
  if (text === "" || text === "–") return [2, 0];
  return Number.isNaN(number) || cell.classList.contains("text") ? [1, text] : [0, number];
}

function compare([kindA, a], [kindB, b]) {
  if (kindA !== kindB) return kindA - kindB;
  return kindA === 1 ? a.localeCompare(b) : a - b;
}

function sortBy(table, column, descending) {
  const sign = descending ? -1 : 1;
  const rows = [...table.tBodies[0].rows].map(row => ({row, key: keyOf(row.cells[column])}));
  rows.sort((a, b) => (a.key[0] === 2) - (b.key[0] === 2) || sign * compare(a.key, b.key));
  table.tBodies[0].append(...rows.map(entry => entry.row));
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    if (i === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

for (const table of document.querySelectorAll("table[data-sort]")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      const sorted = head.getAttribute("aria-sort");
      sortBy(table, column, sorted ? sorted === "ascending" : !head.classList.contains("text"));
    });
    head.replaceChildren(button);
  });
}

for (const field of document.querySelectorAll("input[type=search]")) {
  const table = document.getElementById(field.dataset.table);
  const message = document.getElementById(`${field.dataset.table}-count`);
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    message.textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length}`;
  });
}
