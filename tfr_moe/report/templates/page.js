// Makes tables sortable (`data-sort`) and searchable; opens all boxes for printing.
"use strict";

addEventListener("beforeprint", () => {
  for (const box of document.querySelectorAll("details")) box.open = true;
});

// What a cell is sorted by: numbers before words, and missing values at the end.
function keyOf(cell) {
  const text = cell.textContent.trim();
  const number = parseFloat(text.replace(/^[▲▼≈] |,/g, ""));
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
